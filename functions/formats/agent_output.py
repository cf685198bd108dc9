"""Reads tokens and cost from the output of coding agents.

Claude Code (`claude -p --output-format stream-json --verbose`) ends with a `result` with its `usage` and
`total_cost_usd`. Before that, every `assistant` message has the usage of its own request. Codex (`codex exec --json`)
has the usage of its thread in each `turn.completed`, and in older versions in `token_count` messages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

Amount = TypeVar("Amount", int, float)
LONGEST_LINE = 4 * 1024 * 1024
"""Longest message of an agent, in bytes."""


@dataclass(frozen=True)
class Usage:
    """Tokens and cost; None: the tool does not print them."""

    tokens: int | None = None
    """Input and output, cached input included."""
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _sum(self.tokens, other.tokens),
            _sum(self.cost_usd, other.cost_usd),
        )


@dataclass
class Meter:
    """Reads the lines of one process. A printed total replaces everything before it."""

    _total: Usage = field(default_factory=Usage)
    _messages: dict[str, int] = field(default_factory=dict)
    """Tokens of each message, which may be printed several times."""

    @property
    def usage(self) -> Usage:
        if self._total.tokens is None and self._messages:
            return Usage(sum(self._messages.values()), self._total.cost_usd)
        return self._total

    def read(self, line: bytes) -> None:
        """One line that it has printed."""
        if not line.startswith(b"{") or len(line) > LONGEST_LINE:
            return
        try:
            said = json.loads(line)
        except ValueError:
            return
        match said:
            case {"type": "result", **more}:
                cost = more.get("total_cost_usd")
                self._total = Usage(_tokens(more.get("usage")), _amount(cost))
            case {"type": "assistant", "message": {"id": str(name), "usage": usage}}:
                self._messages[name] = _tokens(usage) or 0
            case {"type": "turn.completed", "usage": usage}:
                self._total = Usage(_tokens(usage, cached_apart=False))
            case {"msg": {"type": "token_count", "info": {"total_token_usage": usage}}}:
                self._total = Usage(_tokens(usage, cached_apart=False))


def _tokens(usage: Any, *, cached_apart: bool = True) -> int | None:
    """The sum of a usage; Codex counts what it has cached among the input, Claude beside it."""
    if not isinstance(usage, dict):
        return None
    names = ["input_tokens", "output_tokens"]
    if cached_apart:
        names += ["cache_creation_input_tokens", "cache_read_input_tokens"]
    return int(sum(_amount(usage.get(name)) or 0.0 for name in names))


def _amount(value: Any) -> float | None:
    """A number that can be a sum of money or tokens."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e15 else None


def _sum(one: Amount | None, other: Amount | None) -> Amount | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
