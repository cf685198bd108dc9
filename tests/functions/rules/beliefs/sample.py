"""Hypotheses for the tests of a swarm's beliefs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from state.records import Hypothesis


def claim(name: str = "hyp_000001", **fields: Any) -> Hypothesis:
    given = {"hypothesis_id": name, "tag": "swarm", "statement": f"the claim of {name}", "created_at": 1.0}
    return Hypothesis.model_validate(given | fields)


def believed(probability: float, n: int = 20, name: str = "hyp_000001", **fields: Any) -> Hypothesis:
    """A claim whose posterior mean is this after `n` results."""
    total = 4 + n
    belief = {"alpha": probability * total, "beta": (1 - probability) * total, "n_experiments": n}
    return claim(name, **belief, **fields)


@st.composite
def claims(draw: st.DrawFn, least: int = 1, most: int = 12) -> list[Hypothesis]:
    """Hypotheses of a tag in any state."""
    return [
        believed(
            draw(st.floats(0.01, 0.99)),
            draw(st.integers(0, 40)),
            f"hyp_{n:06x}",
            importance=draw(st.sampled_from([0.0, 0.15, 0.5, 1.0])),
            source=draw(st.sampled_from(["default", "llm_proposed", "operator"])),
            allocation_penalty=draw(st.sampled_from([0.5, 1.0])),
        )
        for n in range(draw(st.integers(least, most)))
    ]
