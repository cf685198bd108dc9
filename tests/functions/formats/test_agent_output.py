from __future__ import annotations

import json

import pytest

from functions.formats.agent_output import LONGEST_LINE, Meter, Usage

CLAUDE = {
    "input_tokens": 3,
    "output_tokens": 7,
    "cache_creation_input_tokens": 90,
    "cache_read_input_tokens": 900,
}
MESSAGE = {"type": "assistant", "message": {"id": "msg_1", "usage": CLAUDE}}
OTHER = {"type": "assistant", "message": {"id": "msg_2", "usage": {"input_tokens": 1}}}
CODEX = {"input_tokens": 90, "cached_input_tokens": 80, "output_tokens": 10}


def result(cost: object, **usage: int) -> dict[str, object]:
    return {"type": "result", "total_cost_usd": cost, "usage": usage}


@pytest.mark.parametrize(
    ("lines", "usage"),
    [
        ([{"type": "system", "subtype": "init"}, result(0.125, **CLAUDE)], Usage(1000, 0.125)),
        # a later result stands for the whole process
        ([result(1, input_tokens=8), result(2, input_tokens=16)], Usage(16, 2.0)),
        # a process that was ended early has the tokens of its messages, each once
        ([MESSAGE, MESSAGE, OTHER], Usage(1001)),
        # Codex counts what it has cached among the input
        (
            [{"type": "thread.started", "thread_id": "x"}, {"type": "turn.completed", "usage": CODEX}],
            Usage(100),
        ),
        ([{"msg": {"type": "token_count", "info": {"total_token_usage": CODEX}}}], Usage(100)),
        *(([line], Usage()) for line in (b"hello", b"{", b"{}", b"\xff\xfe", b"{" + b"x" * LONGEST_LINE)),
        *(
            ([{"type": "result", "total_cost_usd": cost, "usage": []}], Usage())
            for cost in ("much", True, -1)
        ),
        ([{"type": "assistant", "message": {"id": 3, "usage": {}}}], Usage()),
        ([{"msg": {"type": "token_count", "info": None}}], Usage()),
    ],
)
def test_tokens_and_cost_are_read_and_other_lines_passed_over(lines: list[object], usage: Usage) -> None:
    meter = Meter()
    for line in lines:
        meter.read(line if isinstance(line, bytes) else json.dumps(line).encode())
    assert meter.usage == usage


def test_usages_add_up_and_what_is_unknown_stays_so() -> None:
    assert Usage(3) + Usage(4, 0.5) == Usage(7, 0.5)
    assert Usage() + Usage() == Usage()
