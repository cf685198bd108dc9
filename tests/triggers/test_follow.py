"""Reading server-sent events: whole blocks only, whatever else stands between them."""

from __future__ import annotations

from typing import Any

import pytest

from triggers.cli.events import line, read

FIRST = ["id: 1-0", "event: gpu.idle", 'data: {"n": 1}', ""]
GAP = ["event: reset", 'data: {"since": "1-0", "first": "9-0"}', ""]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (
            [*FIRST, *GAP],
            [
                ("1-0", {"type": "gpu.idle", "n": 1}),
                ("1-0", {"type": "reset", "since": "1-0", "first": "9-0"}),
            ],
        ),
        (["id: 1-0", "", *FIRST[:3]], [("1-0", None)]),  # what was cut is left to the next connection
    ],
)
def test_whole_blocks_are_read_with_the_id_to_go_on_from(lines: list[str], found: list[Any]) -> None:
    assert list(read(lines)) == found


def test_an_agent_s_text_commands_no_terminal() -> None:
    event = {
        "type": "experiment.registered",
        "time": "2026-01-01T00:00:00.000Z",
        "tag": "t",
        "subject": "t-1",
        "data": {"hypothesis": "wider\x1b]0;owned\x07 [bold]is[/bold]\nbetter", "category": "other"},
    }

    shown = line(event).plain

    assert shown.endswith(r"other  wider\x1b]0;owned\x07 [bold]is[/bold] better")
