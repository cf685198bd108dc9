"""A worker runs only what the lab decided, even if another worker writes into Redis."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.lanes import TrainedRun, TrainingJob, TrainingResult, Watcher
from functions.process.lifecycle import Process, opened
from state.assignments import Assignment, Assignments
from state.backup import back_up, restore
from state.client import Lab
from state.experiments import Experiments
from state.patches import packed
from state.settings import Settings
from state.signing import Signer
from tests.functions.test_train import Surveyed, trained
from tests.labs import add_gpu, asked, dump, handed_over, idea, open_tag, registered, told

GPU = "host:gpu0"
PATCH, OTHER = "diff --git a/x b/x\n+1\n", b"diff --git a/x b/x\n+import os\n"
BASE = "badc0de"
TAG: Mapping[str, Any] = {
    "base_commit": BASE,
    "evaluator_files": ["data"],
    "evaluator_command": "python prepare.py --fast",
    "policy": {"baseline_first": False, "budgets.base_s": 20},
}
IDEA: Mapping[str, Any] = {
    "commit_sha": "4f9a1c2",
    "diff": PATCH,
    "config_delta": {"DEPTH": 12, "RATE": 0.1 + 0.2, "NAME": 'é"'},
    "seed": 7,
    "timeout_s": 33.5,
}
REWRITTEN = {
    "commit_sha": "bad0bad",
    "config_delta": json.dumps({"DEPTH": "__import__('os')"}),
    "seed": "8",
    "budget_s": "604800",
    "timeout_s": "604800",
}
REWRITTEN_TAG = {
    "base_commit": "bad0bad",
    "metric": "loss",
    "evaluator": "train.py",
    "evaluator_files": "[]",
    "evaluator_command": "python train.py",
}


class Quick(Surveyed):
    """A runner whose runs last no time."""

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        self.jobs.append(job)
        return TrainedRun(
            {metric: 0.9}, evaluator_hash="e1", gpu_class="H100", log_tail="", metric=0.9, score="trusted"
        )


@pytest.fixture
async def lab(client: httpx.AsyncClient, process: Process) -> Lab:
    """A lab with a tag, a GPU and an experiment that waits."""
    await open_tag(client, **TAG)
    await told(client, "/api/experiment/submit", **idea(**IDEA))
    await add_gpu(client)
    return process.lab


async def rewrite(lab: Lab, name: str = "mar11-1") -> None:
    """What another worker could write of an experiment, and of its tag."""
    other, content = await packed(OTHER)
    await lab.command("SET", lab.keys("diffs", other or ""), content or b"")
    for key, fields in (
        (lab.keys.experiment(name), REWRITTEN | {"diff_id": other or ""}),
        (lab.keys.tag("mar11"), REWRITTEN_TAG),
    ):
        await lab.command("HSET", key, *(word for field in fields.items() for word in field))


async def run(settings: Settings, payload: Mapping[str, Any]) -> tuple[str, TrainingJob | None]:
    """What a worker makes of a job: the outcome, and what it ran."""
    runner = Quick(None)
    outcome = await trained(settings, runner, dict(payload))
    return outcome, runner.jobs[0] if runner.jobs else None


def is_as_registered(job: TrainingJob) -> bool:
    decided = (job.commit_sha, job.patch, job.config_delta, job.seed, job.budget_s, job.timeout_s)
    of_tag = (job.base_commit, job.evaluator, job.evaluator_files, job.evaluator_command)
    assert decided == ("4f9a1c2", PATCH.encode(), IDEA["config_delta"], 7, 20.0, 33.5)
    assert of_tag == (BASE, "prepare.py", ["data"], "python prepare.py --fast")
    return True


@pytest.mark.parametrize("when", ["while it waits", "once it is leased"])
async def test_what_was_registered_is_run_whatever_is_rewritten_of_it_and_its_tag(
    client: httpx.AsyncClient, settings: Settings, lab: Lab, when: str
) -> None:
    if when == "while it waits":
        await rewrite(lab)
    await told(client, "/api/pool/dispatch")
    if when == "once it is leased":
        await rewrite(lab)
    [payload] = handed_over(lab)

    outcome, job = await run(settings, payload)

    assert outcome in ("keep", "discard")
    assert job is not None
    assert is_as_registered(job)


def signed_by(signer: Signer, text: str) -> str:
    return f"{signer.key_id} {signer.sign(text)} {text}"


def altered(payload: Mapping[str, Any], how: str) -> dict[str, Any]:
    """A job as another worker could rewrite it."""
    key_id, signature, text = payload["assignment"].split(" ", 2)
    match how:
        case "no assignment":
            return {name: value for name, value in payload.items() if name != "assignment"}
        case "its timeout":
            text = text.replace('"timeout_s":33.5', '"timeout_s":604800.0')
            return {**payload, "assignment": f"{key_id} {signature} {text}"}
        case "a key of its own":
            return {**payload, "assignment": signed_by(Signer(), text)}
        case "a key that it names another":
            _, own, text = signed_by(Signer(), text).split(" ", 2)
            return {**payload, "assignment": f"{key_id} {own} {text}"}
        case "nonsense":
            return {**payload, "assignment": "é:* {} \n"}
        case _:
            return {**payload, how: payload[how] + 1}


@pytest.mark.parametrize(
    "how",
    [
        *("no assignment", "its timeout", "a key of its own", "a key that it names another", "nonsense"),
        *("attempt", "fence"),
    ],
)
async def test_an_altered_assignment_is_refused_and_the_experiment_is_trained_as_registered(
    client: httpx.AsyncClient,
    process: Process,
    settings: Settings,
    lab: Lab,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    await told(client, "/api/pool/dispatch")
    [payload] = handed_over(lab)

    refused = await run(settings, altered(payload, how))
    await lab.command("ZADD", lab.keys("starting"), 0, "mar11-1")  # as if its worker should have begun by now
    again = await told(client, "/api/pool/dispatch")
    outcome, job = await run(settings, handed_over(lab)[0])

    assert refused == ("refused", None)
    assert again["enqueued_again"] == ["mar11-1"]
    assert (outcome, (await Experiments(lab).get("mar11-1")).attempt) == ("keep", 1)
    assert job is not None
    assert is_as_registered(job)
    gpu = (await asked(client, "/api/pool/list"))["workers"][0]
    assert (gpu["consecutive_crashes"], gpu["sick"]) == (0, None)
    assert [r.levelname for r in caplog.records if "is refused" in r.getMessage()] == ["ERROR"]
    assert (await told(client, "/api/lab/audit"))["violations"] == []


@pytest.mark.parametrize("of", ["another GPU", "another experiment", "the lease before", "the lab before"])
async def test_an_assignment_of_something_else_is_refused(
    client: httpx.AsyncClient, process: Process, settings: Settings, lab: Lab, of: str
) -> None:
    await told(client, "/api/pool/dispatch")
    [payload] = handed_over(lab)
    here = Assignment.model_validate_json(payload["assignment"].split(" ", 2)[2])
    changes: dict[str, dict[str, Any]] = {
        "another GPU": {"gpu_id": "host:gpu1"},
        "another experiment": {"experiment_id": "mar11-2"},
        "the lease before": {"fence": here.fence - 1},
        "the lab before": {"lab": "0123456789abcdef"},
    }
    other = await Assignments(lab).signed(here.model_copy(update=changes[of]))

    assert await run(settings, {**payload, "assignment": other}) == ("refused", None)


async def test_what_nobody_has_registered_is_run_by_nobody(
    client: httpx.AsyncClient, settings: Settings, lab: Lab
) -> None:
    keys, forged = lab.keys, {}
    for tag in ("mar11", "evil"):
        name = forged[tag] = f"{tag}-9"
        of_first = await lab.hash(keys.experiment("mar11-1"))
        fields = of_first | {"experiment_id": name, "number": "9", "tag": tag, "commit_sha": "bad0bad"}
        await lab.command(
            "HSET", keys.experiment(name), *(word for field in fields.items() for word in field)
        )
        await lab.command("ZADD", keys.queue(), -1, name)
    of_tag = await lab.hash(keys.tag("mar11"))
    await lab.command("HSET", keys.tag("evil"), *(word for field in of_tag.items() for word in field))
    await lab.command("ZADD", keys("tags"), 1, "evil")

    for gpu_id in (GPU, "host:gpu1"):
        await add_gpu(client, gpu_id)
    await told(client, "/api/pool/dispatch")

    assert handed_over(lab) == handed_over(lab, "host:gpu1") == []
    for name in forged.values():
        e = await Experiments(lab).get(name)
        assert (e.status, e.error) == ("lost", "no process of the lab has registered it")
    assert (await asked(client, "/api/pool/list"))["idle"] == 2
    await told(client, "/api/pool/dispatch")
    assert [p["experiment_id"] for g in (GPU, "host:gpu1") for p in handed_over(lab, g)] == ["mar11-1"]


async def test_a_retest_runs_what_was_registered_of_its_first_run(
    client: httpx.AsyncClient, settings: Settings, lab: Lab
) -> None:
    await told(client, "/api/pool/dispatch")
    await run(settings, handed_over(lab)[0])

    await rewrite(lab)
    await lab.command("HSET", lab.keys.experiment("mar11-1"), "config_delta", '{"SEED": 1}')
    retest = (await told(client, "/api/experiment/retest", experiment_id="mar11-1"))["retest_id"]
    await told(client, "/api/gpu/train", experiment_id=retest)
    await told(client, "/api/pool/dispatch")
    [payload] = [p for p in handed_over(lab) if p["experiment_id"] == retest]
    _, job = await run(settings, payload)

    assert job is not None
    assert (job.commit_sha, job.patch, job.config_delta) == ("4f9a1c2", PATCH.encode(), IDEA["config_delta"])
    assert (job.budget_s, job.timeout_s) == (20.0, 33.5)
    assert job.seed not in (None, 7, 8)


async def test_a_baseline_is_of_the_base_commit_that_its_tag_was_opened_with(
    client: httpx.AsyncClient, settings: Settings, process: Process
) -> None:
    await open_tag(client, base_commit=BASE)
    await add_gpu(client)
    await process.lab.command("HSET", process.lab.keys.tag("mar11"), "base_commit", "bad0bad")

    await told(client, "/api/experiment/submit", **idea(**IDEA))
    await told(client, "/api/pool/dispatch")
    _, job = await run(settings, handed_over(process.lab)[0])

    assert job is not None
    assert (job.commit_sha, job.base_commit) == (BASE, BASE)


async def test_an_attempt_whose_dispatcher_was_killed_before_it_was_queued_gets_its_assignment_from_another(
    client: httpx.AsyncClient, process: Process, settings: Settings, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("state.train_queue.TrainQueue.enqueue", killed)
        with pytest.raises(KilledError):
            await process.invoker.call("pool::dispatch", {}, process.invoker.system("test"))
    assert handed_over(lab) == []

    await lab.command("ZADD", lab.keys("starting"), 0, "mar11-1")
    async with opened("events", settings) as another:
        await another.invoker.call("pool::dispatch", {}, another.invoker.system("test"))
    outcome, job = await run(settings, handed_over(lab)[0])

    assert outcome == "keep"
    assert job is not None
    assert is_as_registered(job)


class KilledError(Exception):
    """In the place of a SIGKILL."""


async def test_a_restored_lab_runs_nothing_that_was_assigned_before(
    client: httpx.AsyncClient, process: Process, settings: Settings, lab: Lab, tmp_path: Path
) -> None:
    await told(client, "/api/pool/dispatch")
    [payload] = handed_over(lab)
    file = tmp_path / "lab.nightjar"
    await back_up(lab, file)

    other = settings.model_copy(update={"lab": f"{settings.lab}b"})
    restored = Lab(other.lab, lab.url)
    try:
        await restore(restored, file)
        before = await run(other, payload)
        async with opened("events", other) as events:
            await add_gpu_to(events)
            await events.invoker.call("pool::dispatch", {}, events.invoker.system("test"))
        outcome, job = await run(other, handed_over(restored)[0])
    finally:
        await restored.close()

    assert before == ("refused", None)
    assert outcome == "keep"
    assert job is not None
    assert is_as_registered(job)


async def add_gpu_to(process: Process) -> None:
    gpu = {"gpu_id": GPU, "gpu_index": 0, "gpu_name": "H100", "vram_mb": 80000.0}
    await process.invoker.call("pool::register_gpu", gpu, process.invoker.system("test"))


async def test_a_private_key_stands_nowhere_but_in_the_memory_of_its_process(
    client: httpx.AsyncClient,
    process: Process,
    settings: Settings,
    lab: Lab,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    assignments = Assignments(lab)
    await told(client, "/api/pool/dispatch")
    [payload] = handed_over(lab)
    here = Assignment.model_validate_json(payload["assignment"].split(" ", 2)[2])

    signed = await assignments.signed(here)

    assert await assignments.checked(signed) == here
    private = assignments._signer._key.private_bytes_raw()
    texts = (private.hex(), base64.b64encode(private).decode(), base64.urlsafe_b64encode(private).decode())
    everything = f"{await dump(lab, without=frozenset())} {signed} {caplog.text} {os.environ}"
    assert not [text for text in texts if text.rstrip("=") in everything]
    assert not [
        file for file in settings.data_dir.rglob("*") if file.is_file() and private in file.read_bytes()
    ]


async def test_a_worker_that_checks_an_assignment_makes_no_key(
    client: httpx.AsyncClient, settings: Settings, lab: Lab
) -> None:
    await told(client, "/api/pool/dispatch")
    [payload] = handed_over(lab)
    worker = Assignments(lab)

    await worker.checked(payload["assignment"])

    assert list(vars(worker._signer)) == []


async def test_the_run_of_a_claim_takes_no_longer_than_its_policy_allows_whatever_its_record_says(
    client: httpx.AsyncClient, settings: Settings, process: Process
) -> None:
    await open_tag(client, **TAG)
    await add_gpu(client)
    claim = await registered(client, commit_sha="4f9a1c2", diff=PATCH)
    await told(client, "/api/experiment/complete", experiment_id=claim, val_bpb=0.5, budget_seconds=20)
    e = {"budget_s": "604800", "timeout_s": "604800", "commit_sha": "bad0bad"}
    key = process.lab.keys.experiment(claim)
    await process.lab.command("HSET", key, *(word for field in e.items() for word in field))

    await told(client, "/api/experiment/judge-retests", experiment_id=claim)
    await told(client, "/api/pool/dispatch")
    _, job = await run(settings, handed_over(process.lab)[0])

    assert job is not None
    assert (job.commit_sha, job.budget_s, job.timeout_s) == ("4f9a1c2", 20.0, 100.0)
