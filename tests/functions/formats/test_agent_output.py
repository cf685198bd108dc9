from __future__ import annotations

import json

import pytest

from functions.formats.agent_output import LONGEST_LINE, Meter, Usage


def read(*lines: object) -> Usage:
    meter = Meter()
    for line in lines:
        meter.read(line if isinstance(line, bytes) else json.dumps(line).encode())
    return meter.usage


CLAUDE = {
    "input_tokens": 3,
    "output_tokens": 7,
    "cache_creation_input_tokens": 90,
    "cache_read_input_tokens": 900,
}


def test_claude_code_s_result_has_tokens_and_cost() -> None:
    result = {"type": "result", "subtype": "success", "total_cost_usd": 0.125, "usage": CLAUDE}
    assert read({"type": "system", "subtype": "init"}, result) == Usage(1000, 0.125)


def test_a_later_result_stands_for_the_whole_process() -> None:
    results = [
        {"type": "result", "total_cost_usd": cost, "usage": {"input_tokens": cost * 8}} for cost in (1, 2)
    ]
    assert read(*results) == Usage(16, 2.0)


def test_a_process_that_was_ended_early_has_the_tokens_of_its_messages_each_once() -> None:
    message = {"type": "assistant", "message": {"id": "msg_1", "usage": CLAUDE}}
    other = {"type": "assistant", "message": {"id": "msg_2", "usage": {"input_tokens": 1}}}
    assert read(message, message, other) == Usage(1001)


@pytest.mark.parametrize(
    "line",
    [
        {
            "type": "turn.completed",
            "usage": {"input_tokens": 90, "cached_input_tokens": 80, "output_tokens": 10},
        },
        {
            "id": "0",
            "msg": {
                "type": "token_count",
                "info": {"total_token_usage": {"input_tokens": 99, "output_tokens": 1}},
            },
        },
    ],
)
def test_codex_prints_tokens_of_which_the_cached_are_a_part(line: object) -> None:
    assert read({"type": "thread.started", "thread_id": "x"}, line) == Usage(100)


@pytest.mark.parametrize(
    "line",
    [
        *(b"hello", b"{", b"{}", b"\xff\xfe", b"{" + b"x" * LONGEST_LINE, {"type": "result"}),
        {"type": "result", "total_cost_usd": "much", "usage": []},
        {"type": "result", "total_cost_usd": True},
        {"type": "result", "total_cost_usd": -1},
        {"type": "assistant", "message": {"id": 3, "usage": {}}},
        {"msg": {"type": "token_count", "info": None}},
    ],
)
def test_lines_that_say_nothing_of_it_are_passed_over(line: object) -> None:
    assert read(line) == Usage()


def test_usages_add_up_and_what_is_unknown_stays_so() -> None:
    assert Usage(3) + Usage(4, 0.5) == Usage(7, 0.5)
    assert Usage() + Usage() == Usage()
