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


NO_FLAGS: list[Any] = ["yes", 1, []]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rate_limit": {"burst": 5}}, "near_miss_margin, crash_limit, on_abort"),
    ({"budgets.most_s": 60}, "policy.budgets.most_s: there is no such value, only base_s"),
    ({"adapt": {"nothing": 1}}, "there is no such value, only rule"),
    ({".".join("a" * 1000): 1}, "there is no policy value 'a.a."),
    *(({"near_miss_margin": value}, "near_miss_margin") for value in (-0.001, float("nan"))),
    *(({"crash_limit": value}, "crash_limit") for value in (0, "3", True)),
    *(({"budgets": value}, "budgets") for value in ({"base_s": float("inf")}, 3)),
    *(({"on_abort": "panic"}, "on_abort"), ({"allocation.temperature": 0}, "allocation.temperature")),
    *(({"max_attempts": 21}, "max_attempts"), ({"stale_after_s": 0}, "stale_after_s")),
    *(({"traces": 3}, "traces"), ({"traces.scheduler_params": {"c": "much"}}, "traces.scheduler_params")),
    *(({"stopping.rule": "best"}, "stopping.rule"), ({"stopping.tick_source": "stderr"}, "tick_source")),
    *(({"stopping.eta": 1}, "stopping.eta"), ({"stopping.max_prob": 1.1}, "max_prob")),
    *(({"stopping.min_peers": 0}, "min_peers"), ({"stopping.extend_at": 0.5}, "extend_at")),
    *(({"enable_parallel_multi_trace": wrong}, "policy.traces.mode") for wrong in NO_FLAGS),
    ({"max_traces": 0}, "policy.traces.target_traces"),  # a name of the published proposal is told as ours
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=range(len(REFUSED)))
def test_an_unknown_name_is_told_the_known_ones_and_a_value_out_of_its_range_is_named(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        Policy().changed(change)
    assert refusal.value.hint is not None
    assert words in refusal.value.detail


def test_dotted_and_nested_names_mean_the_same() -> None:
    dotted = Policy().changed({"budgets.base_s": 5, "stopping.eta": 7})
    grouped = Policy().changed({"budgets": {"base_s": 5}, "stopping": {"eta": 7}})
    assert dotted == grouped
    assert (dotted.budgets.base_s, dotted.stopping.max_prob, dotted.stopping.eta) == (5, 0.65, 7)


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
    changed: dict[str, float] = {"crash_limit": 9, "near_miss_margin": 0.5, "budgets.base_s": 7}
    changed |= {"stopping.eta": 7, "stopping.max_prob": 0.9}

    answers = await asyncio.gather(*(policies.change("mar11", {n: v}) for n, v in changed.items()))

    assert sorted(version for _, version in answers) == [2, 3, 4, 5, 6]
    policy, version = await policies.get("mar11")
    assert version == 6
    assert policy == Policy().changed(changed)
