"""What a swarm's new tag may vary: a profile that comes along, or a file of the operator's."""

from __future__ import annotations

from pathlib import Path

import pytest

from functions.formats.dimensions import EXAMPLE
from functions.swarm.dimensions import PROFILES, Profile, dimensions_of, swarm_dimensions
from state.errors import Invalid


@pytest.mark.parametrize("profile", PROFILES)
def test_a_name_is_a_profile(profile: Profile) -> None:
    assert swarm_dimensions(profile) == dimensions_of(profile)


def test_any_other_text_is_the_path_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "dimensions.toml"
    file.write_text(EXAMPLE)
    assert [d.name for d in swarm_dimensions(str(file))] == ["LEARNING_RATE"]


@pytest.mark.parametrize("content", [None, b"", b"[[dimension]]", b"\xff\xfe", b"\0", b"x" * 300_000])
def test_a_file_without_dimensions_is_refused_by_its_setting(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "dimensions.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Invalid, match="NIGHTJAR_SWARM_PROFILE") as refusal:
        swarm_dimensions(str(file))
    assert refusal.value.hint


@pytest.mark.parametrize("path", ["", "~nobody-of-this-name/x", "a\0b", "/"])
def test_what_is_no_path_of_a_file_is_refused(path: str) -> None:
    with pytest.raises(Invalid, match="neither mnist nor nanochat"):
        swarm_dimensions(path)
