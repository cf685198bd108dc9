"""Under the rule `confirmed` a keep stands or falls by a second run."""

from __future__ import annotations

from typing import Any

import httpx

from functions.process import Process
from state.pool import Pool
from state.records import Experiment
from tests.labs import add_gpu, asked, begun, events_of, idea, open_tag, told

GPU = "host:gpu0"


async def opened(client: httpx.AsyncClient, **policy: Any) -> None:
    await open_tag(client, base_commit="abc1234", policy={"keep_rule": "confirmed", **policy})
    await add_gpu(client, GPU)


async def trained(
    client: httpx.AsyncClient, process: Process, value: float, **changes: Any
) -> dict[str, Any]:
    """The verdict on a new experiment that a worker trained; what its retests are is settled."""
    submitted = await told(client, "/api/experiment/submit", **idea(**changes))
    return await measured(client, process, submitted["experiment_id"], value)


async def measured(client: httpx.AsyncClient, process: Process, name: str, value: float) -> dict[str, Any]:
    """What a worker's report of this waiting run is answered."""
    await told(client, "/api/pool/dispatch")
    e = await begun(process, name)
    answer = await told(
        client,
        "/api/experiment/complete",
        experiment_id=name,
        val_bpb=value,
        attempt=e.attempt,
        fence=e.fence,
        gpu_class="H100",
        budget_seconds=300,
        evaluator_hash="e" * 16,
    )
    await free(process, e)
    await settle(client, name)
    return answer


async def free(process: Process, e: Experiment) -> None:
    """Its GPU is proven empty again."""
    assert e.gpu_id is not None
    await Pool(process.lab).release(e.gpu_id, e.experiment_id, e.fence, proven=True)


async def settle(client: httpx.AsyncClient, name: str) -> list[str]:
    """As the event of this experiment's end has it done."""
    answer = await told(client, "/api/experiment/settle", experiment_id=name)
    return list(answer["steps"])


async def best_of(client: httpx.AsyncClient) -> str:
    answer = await told(client, "/api/experiment/best", tag="mar11")
    return str(answer["best"]["experiment_id"])


async def test_a_lucky_run_is_kept_provisionally_and_demoted_by_its_second_run(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await trained(client, process, 1.0, commit_sha="abc1234")
    await measured(client, process, "mar11-1.2", 1.001)
    await measured(client, process, "mar11-1.3", 0.9995)

    lucky = await trained(client, process, 0.9992)

    assert (lucky["status"], lucky["action"], lucky["trust"]) == ("keep", "keep_commit", "provisional")
    assert lucky["retest"] == {"retest_id": "mar11-2.2", "seed": 104_729}
    assert await best_of(client) == "mar11-2"

    again = await measured(client, process, "mar11-2.2", 1.0012)

    assert again["status"] == "measured"
    found = (await asked(client, "/api/experiment/mar11-2"))["experiment"]
    assert (found["status"], found["trust"], found["improved"]) == ("discard", "demoted", False)
    assert found["base_commit_sha"] == "abc1234"
    assert await best_of(client) == "mar11-1"
    [event] = await events_of(process, "experiment.demoted")
    assert event["subject"] == "mar11-2"
    assert event["base_commit_sha"] == "abc1234"
    summary = await told(client, "/api/report/summary", tag="mar11")
    assert {k: summary["stats"][k] for k in ("total", "kept", "discarded")} == {
        "total": 2,
        "kept": 1,
        "discarded": 1,
    }
    near = await told(client, "/api/experiment/near-misses", tag="mar11")
    assert [n["experiment_id"] for n in near["near_misses"]] == ["mar11-2"]
    audit = await told(client, "/api/lab/audit")
    assert audit["violations"] == []
