"""The dimensions that come with Nightjar, by the project that they are of."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, get_args

from functions.formats.dimensions import read_dimensions
from functions.rules.swarm.dimensions import DeclaredDimension

Profile = Literal["mnist", "nanochat"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

_FOLDER = Path(__file__).parent / "formats" / "profiles"


@cache
def dimensions_of(profile: Profile) -> list[DeclaredDimension]:
    """What a swarm may vary in it."""
    return read_dimensions((_FOLDER / f"{profile}.toml").read_text()).dimensions
