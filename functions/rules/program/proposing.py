"""Which hypothesis the findings suggest by themselves, where no language model proposes any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from functions.rules.program.findings import Findings
from state.records import Hypothesis

LEAST_SHARE: Final = 0.05
"""Of the variance that a pair explains only together, for a claim to be made of it."""


def suggested(findings: Findings, opened: Sequence[Hypothesis]) -> Iterator[dict[str, Any]]:
    """Proposals for the gate, of which one is to enter: each claims of two dimensions that they matter together.

    None while an earlier one is under test: each claim takes workers from the others. Single ranges are no claims:
    the search looks there anyway.
    """
    if any(h.kind == "interaction" and h.source == "default" and h.settled is None for h in opened):
        return
    for a, b, share in findings.interactions:
        if share >= LEAST_SHARE:
            yield {
                "statement": f"the effect of {a} depends on {b}",
                "type": "interaction",
                "importance": round(min(0.3 + share, 0.9), 3),
                "dimensions": [a, b],
                "rationale": f"together they explain {share:.0%} of the variance beyond what each does alone",
            }
