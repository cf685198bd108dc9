"""Which hypotheses the findings suggest by themselves, where no language model proposes any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from functions.rules.program.findings import Findings

LEAST_SHARE: Final = 0.05
"""Of the variance that a pair explains only together, for a claim to be made of it."""
MOST: Final = 1
"""Claims at once: each takes workers from those that are under test."""


def suggested(findings: Findings) -> Iterator[dict[str, Any]]:
    """Proposals for the gate: that two dimensions matter together which the measured shares say so of.

    Single ranges are no claims of their own: the search looks there anyway, and each claim takes workers.
    """
    for a, b, share in findings.interactions:
        if share >= LEAST_SHARE:
            yield {
                "statement": f"the effect of {a} depends on {b}",
                "type": "interaction",
                "importance": round(min(0.3 + share, 0.9), 3),
                "dimensions": [a, b],
                "rationale": f"together they explain {share:.0%} of the variance beyond what each does alone",
            }
