"""Moves take their keys and values by name; a wrong name is an error before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import state.moves
from functions.kernel.process.lifecycle import Process
from state.moves import load, moves


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of scripts for one test."""
    (tmp_path / "_move.lua").write_text((state.moves.FOLDER / "_move.lua").read_text())
    monkeypatch.setattr(state.moves, "FOLDER", tmp_path)
    load.cache_clear()
    yield tmp_path
    load.cache_clear()


async def test_keys_and_values_are_read_by_their_names(process: Process, folder: Path) -> None:
    (folder / "tell.lua").write_text(
        "-- keys: tag others* gone?\n-- args: id patch seconds? words*\n"
        "return {K.tag, #K.others, K.others[2], K.gone or 'none', A.id, #A.patch, A.seconds or 'none', A.words[1]}"
    )

    told = await process.lab.move(
        "tell",
        keys={"tag": "{t}:a", "others": ["{t}:b", "{t}:c"], "gone": None},
        args={"words": ["one", "two"], "seconds": None, "patch": b"\xff\x00\n", "id": "x"},
    )

    assert told == ["{t}:a", 2, "{t}:c", "none", "x", 3, "none", "one"]


async def test_a_missing_or_unknown_name_is_an_error_that_names_it(process: Process, folder: Path) -> None:
    (folder / "tell.lua").write_text("-- keys: tag\n-- args: id\nreturn A.id")

    with pytest.raises(TypeError, match="'tell' needs the value id"):
        await process.lab.move("tell", keys={"tag": "{t}:a"})
    with pytest.raises(TypeError, match="'tell' takes no key tga"):
        await process.lab.move("tell", keys={"tag": "{t}:a", "tga": "{t}:b"}, args={"id": 1})
    with pytest.raises(TypeError):
        await process.lab.move("tell", keys={"tag": "{t}:a"}, args={"id": ["a", "list"]})
    with pytest.raises(ValueError, match="nan"):
        await process.lab.move("tell", keys={"tag": "{t}:a"}, args={"id": float("nan")})
    (folder / "slip.lua").write_text("-- keys: tag\nreturn A.ditance")
    with pytest.raises(Exception, match="ditance"):
        await process.lab.move("slip", keys={"tag": "{t}:a"})


def test_what_a_part_declares_its_script_declares_and_required_wins(folder: Path) -> None:
    (folder / "_inner.lua").write_text("-- keys: events\n")
    (folder / "_outer.lua").write_text("-- parts: inner\n-- keys: tag?\n")
    (folder / "tell.lua").write_text("-- parts: outer inner\n-- keys: tag\n-- args: id\nreturn 1")

    move = load("tell")

    assert move.keys == {"tag": "", "events": "", "stored": "?"}
    assert move.args == {"id": "", "traceparent": "?", "most_stored": "?"}
    assert move.text.index("-- keys: events") < move.text.index("-- parts: inner")


@pytest.mark.parametrize("name", moves())
def test_every_move_addresses_by_name_the_keys_and_values_that_it_declares(name: str) -> None:
    """Redis Cluster and the ACL of the workers rely on it."""
    text = load(name).text
    code = "\n".join(line.partition("--")[0] for line in text.splitlines())

    assert not re.search(r"\b(?:KEYS|ARGV)\[", code)
    used = set(re.findall(r"\b[KA]\.(\w+)", code))
    assert used <= {*load(name).keys, *load(name).args}


async def test_keys_that_a_lab_or_a_tag_has_once_need_not_be_given(process: Process, folder: Path) -> None:
    (folder / "tell.lua").write_text(
        "-- keys: events? forest tag best gone?\n-- args: tag\n"
        "return {K.events, K.forest, K.tag, K.best, K.gone or 'none'}"
    )
    keys = process.lab.keys

    told = await process.lab.move("tell", keys={"best": keys.best("t", "other")}, args={"tag": "t"})

    assert told == [keys("events"), keys("forest", "t"), keys.tag("t"), keys.best("t", "other"), "none"]
