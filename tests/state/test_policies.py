"""Research policy: ranges, dotted names, versions, changes that meet."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.errors import Invalid
from state.policy import Policy, read_policy
from state.tags import Policies
from tests.labs import open_tag


def test_a_stored_policy_of_an_older_version_is_read_without_the_names_that_are_gone() -> None:
    stored = (
        '{"crash_limit": 4, "gone": 1, "belief": {"evidence": "baseline", "test_decision": "significant"}}'
    )

    assert read_policy(stored) == Policy().changed({"crash_limit": 4, "belief.evidence": "baseline"})


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({"rate_limit": {"burst": 5}}, "near_miss_margin, crash_limit, on_abort"),
        ({"budgets.most_s": 60}, "policy.budgets.most_s: there is no such value, only base_s"),
        ({"adapt": {"nothing": 1}}, "there is no such value, only rule"),
    ],
    ids=range(3),
)
def test_an_unknown_name_is_told_the_known_ones(change: dict[str, Any], known: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Policy().changed(change)

    assert known in refusal.value.detail


@pytest.mark.parametrize(
    "change",
    [
        {"near_miss_margin": -0.001},
        {"near_miss_margin": float("nan")},
        {"crash_limit": 0},
        {"crash_limit": "3"},
        {"crash_limit": True},
        {"on_abort": "panic"},
        {"allocation.temperature": 0},
        {"budgets": {"base_s": float("inf")}},
        {"budgets": 3},
        {"max_attempts": 21},
        {"stale_after_s": 0},
        {"nothing": 1},
        {"adapt.nothing": 1},
        {".".join("a" * 1000): 1},
        {"traces": 3},
        {"traces.scheduler_params": {"c": "much"}},
    ],
    ids=range(16),
)
def test_a_value_out_of_its_range_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refusal:
        Policy().changed(change)

    assert refusal.value.hint is not None
    assert next(iter(change)).partition(".")[0] in refusal.value.detail


def test_dotted_and_nested_names_mean_the_same() -> None:
    dotted = Policy().changed({"budgets.base_s": 5, "stopping.eta": 7})
    grouped = Policy().changed({"budgets": {"base_s": 5}, "stopping": {"eta": 7}})

    assert dotted == grouped
    assert (dotted.budgets.base_s, dotted.stopping.max_prob, dotted.stopping.eta) == (5, 0.65, 7)


@pytest.mark.parametrize(
    ("proposed", "field"),
    [
        ({"enable_parallel_multi_trace": "yes"}, "policy.traces.mode"),
        ({"enable_parallel_multi_trace": 1}, "policy.traces.mode"),
        ({"enable_parallel_multi_trace": []}, "policy.traces.mode"),
        ({"max_traces": 0}, "policy.traces.target_traces"),
    ],
    ids=range(4),
)
def test_a_wrong_value_under_a_name_of_the_proposal_is_named_as_ours(
    proposed: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid, match=field):
        Policy().changed(proposed)


def test_another_scheduler_does_not_inherit_the_parameters_of_the_last() -> None:
    before = Policy().changed(
        {"traces.scheduler": "softmax", "traces.scheduler_params": {"eps": 0.2, "kept": 2}}
    )

    assert before.changed({"traces.scheduler": "uct"}).traces.scheduler_params == {}
    assert before.changed({"traces.scheduler_params.eps": 0.3}).traces.scheduler_params == {"eps": 0.3}
    assert before.changed({"traces.target_traces": 4}).traces.scheduler_params == {"eps": 0.2, "kept": 2}


async def test_changes_that_meet_are_all_kept(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    policies = Policies(process.lab)
    changes: list[dict[str, Any]] = [
        {"crash_limit": 9},
        {"near_miss_margin": 0.5},
        {"stopping.eta": 7},
        {"stopping.max_prob": 0.9},
        {"budgets.base_s": 7},
    ]

    answers = await asyncio.gather(*(policies.change("mar11", change) for change in changes))

    assert sorted(version for _, version in answers) == [2, 3, 4, 5, 6]
    policy, version = await policies.get("mar11")
    assert version == 6
    for change in changes:
        assert policy.changed(change) == policy
