"""Reading server-sent events: whole blocks only, whatever else stands between them."""

from __future__ import annotations

from triggers.cli.events import line, read


def test_blocks_are_read_with_their_ids() -> None:
    lines = [
        *("id: 1-0", "event: gpu.idle", 'data: {"n": 1}', "", "id: 2-0", "event: gpu.idle"),
        *('data: {"n": 2}', ""),
    ]

    assert list(read(lines)) == [("1-0", {"type": "gpu.idle", "n": 1}), ("2-0", {"type": "gpu.idle", "n": 2})]


def test_what_was_cut_in_the_middle_is_left_to_the_next_connection() -> None:
    assert list(read(["id: 1-0", "", "id: 2-0", "event: gpu.idle", 'data: {"n": 1}'])) == [("1-0", None)]


def test_a_gap_keeps_the_id_that_was_there() -> None:
    gap = ["event: reset", 'data: {"since": "1-0", "first": "9-0"}', ""]

    assert list(read(gap, "1-0")) == [("1-0", {"type": "reset", "since": "1-0", "first": "9-0"})]


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
