"""Records come back from Redis to the last bit, and never hold what is no number."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.kernel.process.lifecycle import Process
from state.change import Change
from state.moves import wire
from state.records import Best, Evidence, Experiment, Hypothesis, Link, dumps, flatten
from tests.functions.sample import experiment

EDGES = [
    5e-324,
    2.2250738585072014e-308,
    -0.0,
    0.1,
    1 / 3,
    1.7976931348623157e308,
    2**53 + 1.0,
    0.9979000000000001,
]
FLOATS = st.sampled_from(EDGES) | st.floats(allow_nan=False, allow_infinity=False)


def bits(value: float | None) -> bytes:
    assert value is not None
    return struct.pack("<d", value)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(FLOATS, st.text(min_size=1), st.dictionaries(st.text(), FLOATS, max_size=3))
async def test_a_record_comes_back_through_a_script_as_it_was(
    process: Process, value: float, text: str, metrics: dict[str, float]
) -> None:
    lab = process.lab
    texts = {"hypothesis": text, "description": text, "diff_summary": text}
    given: dict[str, Any] = {
        "val_bpb": value,
        "metrics": metrics,
        "config_delta": {"text": text, "n": 10**30},
    }
    record = experiment(1, registered_at=value, **texts, **given)
    key = lab.keys("policy", "record")
    await lab.command("DEL", key)

    async def decide(change: Change) -> None:
        change.hset(key, record.flat())

    await lab.change(decide)
    found = Experiment.parse(await lab.hash(key))

    await lab.command("ZADD", lab.keys("scores"), wire(value), "member")

    assert float(await lab.command("ZSCORE", lab.keys("scores"), "member")) == value
    assert found == record
    assert bits(found.val_bpb) == bits(value)
    assert {n: bits(v) for n, v in found.metrics.items()} == {n: bits(v) for n, v in metrics.items()}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_never_reaches_the_state(value: float) -> None:
    link = Link(experiment_id="a-1", val_bpb=1.0, commit_sha="c").model_copy(update={"val_bpb": value})

    with pytest.raises(ValueError, match="state"):
        wire(value)
    for held in (value, {"deep": [value]}, [link]):
        with pytest.raises(ValueError, match="JSON"):
            flatten({"x": held})
    with pytest.raises(ValueError, match="finite"):
        Best(experiment_id="mar11-1", val_bpb=value, commit_sha="abc", updated_at=1.0)


def test_other_arguments_travel_plainly_a_text_may_say_nan_and_none_stands_nowhere() -> None:
    assert [wire(value) for value in (7, True, "x", b"\0")] == ["7", "1", "x", b"\0"]
    assert dumps({"error": "loss is NaN", "places": [1e-7]}) == '{"error":"loss is NaN","places":[1e-7]}'
    found = flatten({"a": None, "b": "text", "c": False, "d": [1], "e": ""})
    assert found == {"b": "text", "c": "false", "d": "[1]", "e": ""}


@given(alpha=FLOATS, low=FLOATS, outcome=FLOATS)
def test_a_hypothesis_comes_back_with_all_that_it_holds(alpha: float, low: float, outcome: float) -> None:
    said = Evidence(experiment_id="swarm-1", outcome=outcome, against="reference", reference_id="swarm-2")
    values: dict[str, Any] = {
        "hypothesis_id": "hyp_1",
        "tag": "swarm",
        "statement": "LR matters",
        "created_at": 1.5,
    }
    values |= {"config_constraint": {"LR": {"min": low}, "OPTIMIZER": ["adam", "sgd"]}, "evidence": [said]}
    hypothesis = Hypothesis(**values, reference_config={"LR": 0.0003}, alpha=alpha)
    assert Hypothesis.parse(hypothesis.flat()) == hypothesis
