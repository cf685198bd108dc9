"""A tag with any number of stored experiments, written through the real scripts, hundreds in one round trip."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

from functions.kernel.contract import CATEGORIES
from state.change import Change
from state.client import Lab
from state.decisions import Ending, Entered, Entry
from state.experiments import Experiments
from state.records import Best, Experiment, Idea
from state.tags import Policies

TAG = "mar11"
IN_ONE_TRIP = 500
KEEPS = 40
"""However long a search is, its records grow rare: as many keeps in a short tag as in a long one."""
BEST = 1.0
AGENTS = 8
LONGEST = "a wider MLP learns faster " * 153 + "for once: it does."


async def crowd(lab: Lab, count: int, *, wordy: int = 0) -> None:
    """Register and finish experiments of a tag that is new: few keeps, near misses, discards, crashes, timeouts.

    The texts of the newest `wordy` ones are as long as they may be.
    """
    experiments = Experiments(lab)
    policy, version = await Policies(lab).get(TAG)
    finishes = (_finish(nth, count, policy.stale_after_s, version) for nth in range(1, count + 1))
    for batch in _batches(finishes, IN_ONE_TRIP):
        ideas: list[Idea] = []
        for finish in batch:
            told = finish.experiment.model_dump()
            if finish.experiment.number > count - wordy:
                told |= dict.fromkeys(("hypothesis", "description", "diff_summary"), LONGEST)
            ideas.append(Idea.model_validate(told))
        names = await asyncio.gather(*(_registered(experiments, idea) for idea in ideas))
        assert names == [finish.experiment.experiment_id for finish in batch]
        await asyncio.gather(*map(experiments.end, batch))


async def _registered(experiments: Experiments, idea: Idea) -> str:
    async def decide(change: Change) -> Entered:
        facts = await experiments.entry_facts(change, idea, None)
        return await experiments.register(change, Entry(idea), facts)

    return (await experiments.change(decide)).experiment_id


def _batches(finishes: Iterator[Ending], size: int) -> Iterator[list[Ending]]:
    while batch := list(itertools.islice(finishes, size)):
        yield batch


def _finish(nth: int, count: int, patience_s: float, policy_version: int) -> Ending:
    e = Experiment(
        experiment_id=f"{TAG}-{nth}",
        tag=TAG,
        number=nth,
        status="registered",
        hypothesis="a wider MLP learns faster",
        description="MLP ratio 4 -> 5",
        # a tag of 1,000 has more combinations than any answer reads
        category="combination" if nth % 4 == 0 else CATEGORIES[nth % len(CATEGORIES)],
        commit_sha=f"{nth:07x}",
        diff_summary="MLP ratio 4 -> 5",
        parent_ids=[f"{TAG}-1"] if nth > 1 else [],
        agent=f"agent{nth % AGENTS}",
        policy_version=policy_version,
        patience_s=patience_s,
        registered_at=0.0,
    )
    every = count // KEEPS
    if nth % every == 1 and nth // every < KEEPS:
        value = BEST + (KEEPS - 1 - nth // every) * 1e-3
        new = Best(experiment_id=e.experiment_id, val_bpb=value, commit_sha=e.commit_sha, updated_at=0.0)
        return Ending(e, "keep", _measured(value), best=new, crashes=0, training_seconds=300.0)
    if nth % 20 in (7, 13):
        status, kind = ("crash", "oom") if nth % 20 == 7 else ("timeout", "timeout")
        fields = {"error": "out of memory", "error_kind": kind}
        return Ending(e, "crash" if status == "crash" else "timeout", fields, crashes=1)
    # A fifth of all lies within the margin of the best: 1,000 hold more than any answer shows.
    value = BEST + (0.001 if nth % 5 == 0 else 0.05) + nth * 1e-9
    return Ending(e, "discard", _measured(value), crashes=0, training_seconds=300.0)


def _measured(value: float) -> dict[str, Any]:
    return {"val_bpb": value, "training_seconds": 300.0, "peak_vram_mb": 44_000.0, "delta": 0.0}
