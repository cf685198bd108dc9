"""How hypotheses hang together, and what is said of them."""

from __future__ import annotations

from typing import Any

from functions.beliefs.rules.theory import Edge, edges_of, neighbours, summary_of
from state.records import Hypothesis


def claim(name: str, **changes: Any) -> Hypothesis:
    fields: dict[str, Any] = {"tag": "swarm", "statement": f"{name} matters", "created_at": 1.0}
    return Hypothesis(**{**fields, "hypothesis_id": name, "dimensions": [name], **changes})


def test_parts_hang_below_their_parent_and_claims_of_one_dimension_are_linked() -> None:
    whole, part = claim("LR"), claim("warm", dimensions=["WARMUP"], parent_id="LR")
    near = claim("low", dimensions=[], config_constraint={"LR": {"max": 0.01}})
    edges = edges_of([whole, part, near])
    assert edges == [Edge("LR", "warm", "decomposes_into"), Edge("LR", "low", "linked")]
    assert edges_of([claim("a", parent_id="gone")]) == []
    assert neighbours(edges) == ({"LR": ["warm"]}, {"LR": ["low"], "low": ["LR"]})


def test_the_summary_says_what_is_known_what_is_not_and_what_was_given_up() -> None:
    told = summary_of(
        [
            claim("LR", status="supported", alpha=22.0, beta=4.0, n_experiments=22),
            claim("SEED", settled="irrelevant", n_experiments=60),
            claim("DEPTH", n_experiments=1),
            claim("BETA", settled="refuted", status="refuted", alpha=3.0, beta=21.0, n_experiments=20),
        ]
    )

    assert told.splitlines() == [
        "Supported (1): LR matters (P = 0.85, 22 runs).",
        "Refuted (1): BETA matters (P = 0.12, 20 runs).",
        "Irrelevant (1): SEED matters (P = 0.50, 60 runs).",
        "Undecided (1): DEPTH matters (P = 0.50, 1 run).",
    ]
    assert summary_of([]) == "No hypotheses yet."
    assert summary_of([claim(f"D{n}") for n in range(7)]).endswith("and 2 more.")
