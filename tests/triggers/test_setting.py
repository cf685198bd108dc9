"""`nightjar best --write` sets constants in a train.py: to the letter, all or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from functions.formats.constants import read_constants
from state.errors import Invalid
from tests.conftest import ROOT
from triggers.cli.looking import set_constants

SCRIPT = b'LR = 3e-4  # found by hand\r\nDEPTH: int = 2**3\r\nOPTIMIZER = "sgd"\r\nprint("\xc3\xa9", LR)\r\n'


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (file := tmp_path / "train.py").write_bytes(SCRIPT)
    return file


def test_the_values_change_and_no_other_byte_nor_its_mode(script: Path) -> None:
    script.chmod(0o751)

    changed = set_constants(script, {"LR": 1e-05, "OPTIMIZER": "adam"})

    assert script.read_bytes() == SCRIPT.replace(b"3e-4", b"1e-05").replace(b'"sgd"', b"'adam'")
    assert script.stat().st_mode & 0o7777 == 0o751
    assert [*script.parent.iterdir()] == [script]
    assert changed == {"LR": (3e-4, 1e-05), "OPTIMIZER": ("sgd", "adam")}


def test_where_a_constant_is_missing_nothing_is_written(script: Path) -> None:
    before = script.stat()

    with pytest.raises(Invalid, match="left as it is: constant 'WIDTH' is not a top-level name"):
        set_constants(script, {"LR": 0.1, "WIDTH": 64})

    assert script.read_bytes() == SCRIPT
    assert script.stat().st_ino == before.st_ino
    assert [*script.parent.iterdir()] == [script]


def test_a_link_stays_one_and_the_file_that_it_names_is_set(script: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "elsewhere").mkdir()
    (link := folder / "train.py").symlink_to(script)

    set_constants(link, {"LR": 0.1})

    assert link.is_symlink()
    assert read_constants(script.read_text())["LR"] == 0.1


@pytest.mark.parametrize("content", [b"\xff\xfe", b"LR = = 3\n"])
def test_what_is_no_script_is_left_as_it_is(script: Path, content: bytes) -> None:
    script.write_bytes(content)

    with pytest.raises(Invalid):
        set_constants(script, {"LR": 0.1})

    assert script.read_bytes() == content


def test_the_example_takes_every_constant_that_a_swarm_varies(script: Path) -> None:
    script.write_bytes((ROOT / "examples/tinylm/train.py").read_bytes())
    wanted = {"LEARNING_RATE": 0.0003, "DEPTH": 3, "WIDTH": 96}

    set_constants(script, wanted)

    constants = read_constants(script.read_text())
    assert {name: constants[name] for name in wanted} == wanted
