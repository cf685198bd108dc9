"""The lease of a run over HTTP: what is sent, how often, and what happens while the lab does not answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from functions.kernel.lanes import Extension
from state.errors import Conflict, Damaged, NightjarError, Unauthenticated, Unavailable
from workers.attempt.job import TrainingJob
from workers.lab_client import RemoteLab, Spool
from workers.trainer import RemoteLease

JOB = TrainingJob("mar11-1", 2, 17, "abc1234", None, None, None, "prepare.py", 300.0, 660.0)
WHO = {"experiment_id": "mar11-1", "attempt": 2, "fence": 17}
SELDOM, ALWAYS = 3600.0, 0.0
CONTINUE = {"order": "continue", "extra_s": None, "budget_s": None}


class Lab:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.answers: dict[str, Mapping[str, Any]] = {"gpu::renew": CONTINUE}
        self.problem: NightjarError | None = None

    async def call(self, function: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((function, request))
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        return self.answers.get(function, {})

    @property
    def renewals(self) -> list[Mapping[str, Any]]:
        """What came with each renewal."""
        return [
            {name: value for name, value in request.items() if name not in WHO}
            for function, request in self.asked
            if function == "gpu::renew"
        ]


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def lease(lab: Lab, spool: Spool, every_s: float, job: TrainingJob = JOB) -> RemoteLease:
    return RemoteLease(cast("RemoteLab", lab), "far:cpu0", job, spool, lease_s=60.0, every_s=every_s)


async def test_a_script_that_reports_all_the_time_asks_the_lab_at_each_bucket_and_seldom_between(
    lab: Lab, spool: Spool
) -> None:
    held = lease(lab, spool, SELDOM)

    for nth in range(1001):
        assert await held.tick(2.0 - nth / 1000, nth / 1000) == "continue"

    told = [renewal["progress"] for renewal in lab.renewals]
    assert told == [0.0, 0.075, 0.15, 0.35, 0.55, 0.75, 0.95]


async def test_a_report_at_a_bucket_goes_at_once_although_a_request_is_under_way(
    lab: Lab, spool: Spool
) -> None:
    held = lease(lab, spool, SELDOM)

    await asyncio.gather(held.tail("line 1"), held.tick(1.5, 0.2))

    assert lab.renewals == [{"log": "line 1"}, {"metric": 1.5, "progress": 0.2}]


async def test_between_two_questions_the_newest_report_and_lines_wait_and_go_together(
    lab: Lab, spool: Spool
) -> None:
    held = lease(lab, spool, SELDOM)
    await held.poll()
    await held.tail("line 1")
    await held.tick(1.5, 0.01)
    await held.tail("line 1\nline 2")
    assert lab.renewals == [{}]

    lab.answers["experiment::complete"] = {"status": "keep"}
    assert await held.report("experiment::complete", {**WHO, "val_bpb": 1.0}) == "keep"

    assert lab.renewals[1:] == [{"metric": 1.5, "progress": 0.01, "log": "line 1\nline 2"}]
    assert [function for function, _ in lab.asked][-1] == "experiment::complete"


async def test_what_was_not_sent_goes_with_the_next_question_and_nothing_newer_is_lost(
    lab: Lab, spool: Spool
) -> None:
    held = lease(lab, spool, ALWAYS)
    lab.problem = Unavailable("the network is cut")
    with pytest.raises(Unavailable):
        await held.tick(1.5, 0.01)
    with pytest.raises(Unavailable):
        await held.tail("line 1")

    # the newer report comes while the older one is on its way
    await asyncio.gather(held.tick(1.4, 0.02), held.tick(1.3, 0.03), return_exceptions=True)

    lab.problem = None
    await held.poll()

    assert lab.renewals[-1] == {"metric": 1.3, "progress": 0.03, "log": "line 1"}


async def test_an_order_stands_until_the_lab_gives_another(lab: Lab, spool: Spool) -> None:
    held = lease(lab, spool, SELDOM)
    lab.answers["gpu::renew"] = {**CONTINUE, "order": "stop"}

    assert [await held.poll() for _ in range(3)] == ["stop"] * 3
    assert len(lab.renewals) == 1


async def test_who_reports_is_told_of_more_time_and_who_polls_is_not(lab: Lab, spool: Spool) -> None:
    held = lease(lab, spool, SELDOM)
    lab.answers["gpu::renew"] = {"order": "continue", "extra_s": 120.0, "budget_s": 420.0}

    assert await held.tick(1.0, 0.8) == Extension(120.0, 420.0)
    assert await held.poll() == "continue"


async def test_two_who_ask_at_once_ask_the_lab_once(lab: Lab, spool: Spool) -> None:
    held = lease(lab, spool, SELDOM)

    assert await asyncio.gather(*(held.poll() for _ in range(5))) == ["continue"] * 5

    assert len(lab.renewals) == 1


async def test_a_result_stays_on_the_disk_until_the_lab_has_answered(lab: Lab, spool: Spool) -> None:
    held, result = lease(lab, spool, SELDOM), {**WHO, "val_bpb": 0.1 + 0.2}
    lab.problem = Unavailable("the lab is away")
    with pytest.raises(Unavailable):
        await held.report("experiment::complete", result)
    [kept] = spool.kept()
    assert json.loads(kept.read_text()) == {"function": "experiment::complete", "request": result}

    lab.problem = None
    lab.answers["experiment::complete"] = {"status": "discard"}

    assert await held.report("experiment::complete", result) == "discard"
    assert spool.kept() == []


async def test_each_attempt_and_fence_has_a_result_of_its_own(lab: Lab, spool: Spool) -> None:
    lab.problem = Unavailable("the lab is away")
    for attempt, fence in ((2, 17), (2, 18), (3, 19)):
        held = lease(lab, spool, SELDOM, replace(JOB, attempt=attempt, fence=fence))
        with pytest.raises(Unavailable):
            await held.report("experiment::crash", WHO)

    assert len(spool.kept()) == 3


@pytest.mark.parametrize(
    ("problem", "left"), [(Conflict("fence 17 of mar11-1 is old"), 0), (Unauthenticated("no such token"), 1)]
)
async def test_a_refused_result_is_not_sent_for_ever_unless_it_is_the_worker_that_is_refused(
    lab: Lab, spool: Spool, problem: NightjarError, left: int
) -> None:
    lab.problem = problem

    with pytest.raises(type(problem)):
        await lease(lab, spool, SELDOM).report("experiment::complete", {**WHO, "val_bpb": 1.0})

    assert len(spool.kept()) == left


@pytest.mark.parametrize("text", ['{"function": "experiment::complete"}', "[1]", '{"function": '])
async def test_a_file_that_holds_no_result_is_set_aside_and_the_next_is_sent(
    lab: Lab, tmp_path: Path, text: str
) -> None:
    spool = Spool(tmp_path / "spool", aside=tmp_path / "spool" / "refused")
    whole = spool.keep("second", "experiment::complete", WHO)
    old = whole.with_name("first.json")
    old.write_text(text)
    os.utime(old, (0.0, 0.0))
    told: list[tuple[str, Any]] = []

    await spool.send_all(lab.call, lambda name, _, answer: told.append((name, answer)))

    (first, damaged), second = told
    assert first == "first"
    assert isinstance(damaged, Damaged)
    assert "first.json holds no result" in damaged.detail
    assert second == ("second", {})
    assert spool.kept() == []
    assert (tmp_path / "spool" / "refused" / "first.json").read_text() == text
