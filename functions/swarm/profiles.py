"""The dimensions that come with Nightjar, by the project that they are of."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, get_args

from functions.formats.dimensions import LONGEST_FILE, read_dimensions
from functions.swarm.rules.dimensions import DeclaredDimension
from state.errors import Invalid

Profile = Literal["mnist", "nanochat"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

_FOLDER = Path(__file__).parents[1] / "formats" / "profiles"


def swarm_dimensions(profile: str) -> list[DeclaredDimension]:
    """The dimensions of a profile, or of the dimensions.toml at a path. Raises Invalid: it is neither."""
    if profile in PROFILES:
        return dimensions_of(profile)
    try:
        with Path(profile).expanduser().open(encoding="utf-8") as file:
            text = file.read(LONGEST_FILE + 1)
    except (OSError, ValueError, RuntimeError) as problem:
        raise Invalid(
            f"NIGHTJAR_SWARM_PROFILE is {profile[:200]!r}: neither {' nor '.join(PROFILES)}, nor a file that can be"
            f" read ({problem})",
            hint="name one of the two, or a dimensions.toml such as ./nightjar dims scan train.py writes",
        ) from problem
    try:
        return read_dimensions(text).dimensions
    except Invalid as problem:
        raise Invalid(
            f"NIGHTJAR_SWARM_PROFILE, {profile[:200]}: {problem.detail}", hint=problem.hint
        ) from problem


@cache
def dimensions_of(profile: Profile) -> list[DeclaredDimension]:
    return read_dimensions((_FOLDER / f"{profile}.toml").read_text()).dimensions
