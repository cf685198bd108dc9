"""Hypotheses, runs and evidence for the tests of a swarm's beliefs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from functions.beliefs.rules.terms import FinishedRun
from state.records import Evidence, Hypothesis, Value

REFERENCE: dict[str, Value] = {"LR": 0.001, "DEPTH": 8, "OPTIMIZER": "adam"}


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


ANY_LR = {"LR": {"min": 0.0}}


def hypothesis(**changes: Any) -> Hypothesis:
    """The claim that any other LR is better than the reference config's."""
    return influence(**{"config_constraint": ANY_LR, **changes})


def influence(**changes: Any) -> Hypothesis:
    """The claim that LR matters."""
    return claim("hyp_1", **{"dimensions": ["LR"], "reference_config": REFERENCE, **changes})


def run(name: str = "swarm-1", **changes: Any) -> FinishedRun:
    """A run of the hypothesis' own population with another LR, which was better than its worker's baseline."""
    plain: dict[str, Any] = {"experiment_id": name, "worker_id": "w1", "config": {**REFERENCE, "LR": 0.01}}
    plain |= {"strategy": "investigate", "hypothesis_id": "hyp_1", "ended": "value", "judged": -0.01}
    return FinishedRun(**plain | changes)


def reference(name: str = "swarm-2", **changes: Any) -> FinishedRun:
    """A run of the reference config that was as good as its worker's baseline."""
    return run(name, **{"config": REFERENCE, "judged": 0.0, **changes})


def pair(outcome: float | None, contrast: float | None = None) -> Evidence:
    """A run beside a reference run of the same worker."""
    runs = {"experiment_id": "swarm-1", "reference_id": "swarm-2"}
    workers = {"worker_id": "w1", "reference_worker_id": "w1"}
    return Evidence(
        **runs, **workers, outcome=outcome, against="reference", delta=contrast, contrast=contrast
    )
