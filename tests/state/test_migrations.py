"""A lab of an earlier version is brought to the present schema once, by one process, and resumed after a kill."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import functions.process.readiness
import state.backup
import state.client
import state.migrations
from functions.process.lifecycle import Process, opened
from functions.process.readiness import until_ready
from state.backup import entries, read_header, restore
from state.client import SCHEMA, Lab
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.experiments import Experiments
from state.migrations import (
    Turn,
    class_runs,
    close_labs,
    count_worker_gpus,
    index_results,
    migrate,
    note_measured,
    open_books,
)
from state.moves import GivenArgs
from state.presence import Presence
from state.settings import Settings
from state.tags import Tags
from tests.conftest import http_client
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, bearer, dump, idea, open_tag, running, told, tried


@pytest.fixture
async def lab(settings: Settings, redis_server: EmbeddedRedis) -> AsyncIterator[Lab]:
    """A lab that was written with schema 1."""
    found = Lab(settings.lab, redis_server.url)
    await found.recognise()
    await found.command("SET", found.keys("schema"), "1")
    yield found
    await found.close()


async def schema(lab: Lab) -> str:
    return str(await lab.command("GET", lab.keys("schema")))


async def test_the_steps_are_done_in_order_and_the_schema_moves_after_each(lab: Lab) -> None:
    done: list[tuple[int, str]] = []

    async def first(turn: Turn) -> None:
        done.append((1, await schema(turn.lab)))

    async def second(turn: Turn) -> None:
        done.append((2, await schema(turn.lab)))

    async def before() -> None:
        done.append((0, await schema(lab)))

    await migrate(lab, 1, steps={1: first, 2: second}, to=3, before=before)

    assert done == [(0, "1"), (1, "1"), (2, "2")]
    assert await schema(lab) == "3"
    assert await lab.command("EXISTS", lab.keys("migration")) == 0


async def test_of_many_processes_one_migrates_and_the_others_say_so(lab: Lab) -> None:
    runs: list[str] = []

    async def slow(turn: Turn) -> None:
        runs.append(turn.token)
        await asyncio.sleep(0.3)

    results = await asyncio.gather(
        *(migrate(lab, 1, steps={1: slow}, to=2) for _ in range(5)), return_exceptions=True
    )

    refused = [r for r in results if isinstance(r, Unavailable)]
    assert len(runs) == 1
    assert len(refused) == 4
    assert all("another process brings" in r.detail and r.retry_after for r in refused)


async def test_a_migration_that_broke_off_is_taken_over_and_its_old_turn_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state.migrations, "TURN_S", 0.05)
    dead = Turn(lab, "dead")
    assert await dead.begin(1) == "ours"
    await asyncio.sleep(0.1)
    runs: list[str] = []

    async def step(turn: Turn) -> None:
        runs.append(turn.token)

    await migrate(lab, 1, steps={1: step}, to=2)

    assert len(runs) == 1
    with pytest.raises(Unavailable, match="taken over"):
        await dead.advance(1, last=True)
    assert await schema(lab) == "2"


PATIENT_S = 4.0
"""How long a process may be silent here: longer than a busy machine holds one up."""


async def until_prolonged(lab: Lab, key: str) -> AsyncIterator[None]:
    """Steps until whoever has the turn of `key` has prolonged it again and again."""
    first = until = float(await lab.command("HGET", lab.keys(key), "until"))
    while until < first + PATIENT_S / 2:
        yield
        await asyncio.sleep(0.1)
        until = float(await lab.command("HGET", lab.keys(key), "until"))


async def test_a_long_migration_keeps_its_turn(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state.migrations, "TURN_S", PATIENT_S)
    answers: list[str] = []

    async def slow(turn: Turn) -> None:
        answers.extend([await Turn(lab, "another").begin(1) async for _ in until_prolonged(lab, "migration")])

    await migrate(lab, 1, steps={1: slow}, to=2)

    assert set(answers) == {"busy"}
    assert await schema(lab) == "2"


LAST_VERSION = Path(__file__).parents[1] / "data" / "lab-606bf23.nightjar"


async def test_the_last_versions_lab_gets_books_that_agree_with_its_records(
    settings: Settings, redis_server: EmbeddedRedis
) -> None:
    lab = Lab(settings.lab, redis_server.url)

    await restore(lab, LAST_VERSION)

    async with opened("web", settings) as process, http_client(process) as http:
        audit = await told(http, "/api/lab/audit")
        tags = {t.name: t for t in await Tags(lab).newest(0, 10)}
    await lab.close()
    assert audit["violations"] == []
    assert audit["experiments"] > 10
    night, accuracy = tags["night"], tags["accuracy"]
    assert (night.spent_runs, night.reserved_runs) == (7, 3)
    assert night.reserved_gpu_seconds == 60.0
    assert (accuracy.spent_runs, accuracy.spent_gpu_seconds) == (5, 4 * 30.5)


async def test_no_other_restore_begins_while_one_migrates_for_long(
    settings: Settings, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state.backup, "SILENT_S", PATIENT_S)
    lab = Lab(settings.lab, redis_server.url)
    another: GivenArgs = {"token": "another", "silent_s": PATIENT_S, "file": "file"}
    answers: list[str] = []

    async def slowly(lab: Lab, found: int) -> None:
        begin = [
            await lab.move("begin_restore", args=another) async for _ in until_prolonged(lab, "restoring")
        ]
        answers.extend(begin)
        await migrate(lab, found)

    monkeypatch.setattr(state.backup, "migrate", slowly)

    await restore(lab, LAST_VERSION)

    await lab.close()
    assert set(answers) == {"busy"}


async def test_what_a_killed_migration_set_aside_is_freed_where_an_older_process_finished_the_run(
    settings: Settings, redis_server: EmbeddedRedis
) -> None:
    async with opened("web", settings) as process, http_client(process) as http:
        await open_tag(http)
        waits, over = [
            str((await told(http, "/api/experiment/submit", **idea()))["experiment_id"]) for _ in "12"
        ]
        await told(http, "/api/experiment/stop", experiment_id=over)
        lab = process.lab
        await lab.command("HSET", lab.keys.experiment(over), "reserved_gpu_seconds", "300.000")
        await lab.command("SET", lab.keys("schema"), "1")
    lab = Lab(settings.lab, redis_server.url)

    await migrate(lab, 1)

    await lab.close()
    async with opened("web", settings) as process, http_client(process) as http:
        assert (await told(http, "/api/lab/audit"))["violations"] == []
        assert (await Tags(process.lab).get("mar11")).reserved_runs == 1
        assert (await Experiments(process.lab).get(waits)).reserved_gpu_seconds == 300.0


async def test_experiments_on_a_gpu_get_its_class_where_they_have_none(
    client: httpx.AsyncClient, process: Process
) -> None:
    lab, experiments = process.lab, Experiments(process.lab)
    await open_tag(client)
    for n, name in enumerate(("H100", "A100")):
        await add_gpu(client, f"host:gpu{n}", gpu_name=name)
    runs = [(await running(client, process)).experiment_id for _ in "12"]
    waits = str((await told(client, "/api/experiment/submit", **idea()))["experiment_id"])
    for name in (*runs, waits):
        await lab.command("HDEL", lab.keys.experiment(name), "gpu_class")
    turn = Turn(lab, "ours")
    assert await turn.begin(SCHEMA) == "ours"

    await class_runs(turn)

    found = {name: await experiments.get(name) for name in (*runs, waits)}
    assert {e.gpu_id: e.gpu_class for e in found.values()} == {
        "host:gpu0": "H100",
        "host:gpu1": "A100",
        None: None,
    }


async def test_the_gpus_of_each_worker_s_token_are_counted(
    client: httpx.AsyncClient, process: Process
) -> None:
    lab = process.lab
    await add_gpu(client, "labs:0")
    bearers = {"wes": await bearer(process, "wes", "worker"), "ann": await bearer(process, "ann", "agent")}
    for name, headers in bearers.items():
        client.headers.update(headers)
        for n in range(2):
            await add_gpu(client, f"{name}:{n}")
    counted = await lab.hash(lab.keys("worker_gpus"))
    await lab.command("DEL", lab.keys("worker_gpus"))
    turn = Turn(lab, "ours")
    assert await turn.begin(SCHEMA) == "ours"

    await count_worker_gpus(turn)

    assert await lab.hash(lab.keys("worker_gpus")) == counted == {"wes": "2"}


async def test_a_lab_with_tokens_is_closed_as_of_its_first_operator_s(process: Process) -> None:
    lab = process.lab
    await bearer(process, "ann", "agent")
    await bearer(process, "olga", "operator")
    closed = await lab.command("GET", lab.keys("closed"))
    await lab.command("DEL", lab.keys("closed"))
    turn = Turn(lab, "ours")
    assert await turn.begin(SCHEMA) == "ours"

    await close_labs(turn)
    await close_labs(turn)

    assert float(await lab.command("GET", lab.keys("closed"))) == float(closed)
    with pytest.raises(Unavailable, match="taken over"):
        await close_labs(Turn(lab, "another's"))


async def test_a_lab_without_tokens_stays_open(process: Process) -> None:
    turn = Turn(process.lab, "ours")
    assert await turn.begin(SCHEMA) == "ours"

    await close_labs(turn)

    assert await process.lab.command("GET", process.lab.keys("closed")) is None


async def test_what_a_killed_migration_counted_is_forgotten_where_an_older_process_let_the_gpus_go(
    client: httpx.AsyncClient, process: Process
) -> None:
    lab = process.lab
    await add_gpu(client, "labs:0")
    await lab.command("HSET", lab.keys("worker_gpus"), "wes", "1")  # as the killed one has left it
    turn = Turn(lab, "ours")
    assert await turn.begin(SCHEMA) == "ours"

    await count_worker_gpus(turn)

    assert await lab.hash(lab.keys("worker_gpus")) == {}


async def test_results_are_listed_by_value_and_by_code_as_if_they_always_had_been(
    client: httpx.AsyncClient, process: Process
) -> None:
    lab = process.lab
    await open_tag(client, metric={"name": "accuracy", "direction": "maximize"})
    for value, commit, gpu_class in (
        (0.5, "aaaaaaa", "H100"),
        (0.4, "bbbbbbb", "H100"),
        (0.6, "ccccccc", "A100"),
    ):
        for more in (0.0, 0.25):
            await tried(client, value + more, commit_sha=commit, result={"gpu_class": gpu_class})
    await told(client, "/api/experiment/retest", experiment_id="mar11-1", train=False)
    await told(client, "/api/experiment/complete", experiment_id="mar11-1.2", val_bpb=0.55)
    before = await dump(lab)
    listed = [key for name in ("keeps:*", "beaten:*", "noise:*:runs:*") async for key in lab.scan(name)]
    assert len(listed) == 1 + 1 + 1 + 1 + 3
    await lab.command("DEL", *listed)
    await lab.command("HDEL", lab.keys.tag("mar11"), "finishes")
    turn = Turn(lab, "ours")
    assert await turn.begin(SCHEMA) == "ours"

    await index_results(turn)

    await lab.command("DEL", lab.keys("migration"))
    assert await dump(lab) == before


async def test_a_tag_that_the_lab_had_measured_before_takes_claims(
    client: httpx.AsyncClient, process: Process
) -> None:
    lab = process.lab
    tag = TagUnderTest(client, process)
    await tag.open(keep_rule="strict")
    for value in (1.0, 0.75, 0.625):
        await tag.trained(value)
    await open_tag(client, "apr05")
    await tried(client, 1.0, "apr05")
    before = await dump(lab)
    await lab.command("HDEL", lab.keys.tag("mar11"), "lab_measured", "largest_gain")
    turn = Turn(lab, "ours")
    assert await turn.begin(SCHEMA) == "ours"

    await note_measured(turn)

    await lab.command("DEL", lab.keys("migration"))
    assert await dump(lab) == before
    answers = [await tried(client, 0.5, tag) for tag in ("mar11", "apr05")]
    assert [(a["status"], a["claimed"]) for a in answers] == [("discard", True), ("keep", False)]


async def test_a_step_that_lost_its_turn_writes_nothing(
    settings: Settings, redis_server: EmbeddedRedis
) -> None:
    lab = Lab(settings.lab, redis_server.url)
    await lab.command("ZADD", lab.keys("tags"), "1", "t")
    await lab.command("HSET", lab.keys.tag("t"), "name", "t")

    with pytest.raises(Unavailable, match="taken over"):
        await open_books(Turn(lab, "never given"))

    found = await lab.hash(lab.keys.tag("t"))
    await lab.close()
    assert found == {"name": "t"}


async def test_nothing_is_migrated_under_processes_of_the_older_version(lab: Lab) -> None:
    await Presence(lab).announce("web@elsewhere:1", {"kind": "web"})

    with pytest.raises(Unavailable, match="web@elsewhere:1") as refusal:
        await migrate(lab, 1, steps={}, to=2)

    assert refusal.value.retry_after
    assert await schema(lab) == "1"


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """This code, one schema later; answers who took the step to it."""
    took: list[str] = []

    async def step(turn: Turn) -> None:
        took.append(turn.token)

    for module in (state.client, functions.process.readiness):
        monkeypatch.setattr(module, "SCHEMA", SCHEMA + 1)

    async def later(lab: Lab, found: int, **options: object) -> None:
        steps = dict.fromkeys(range(1, SCHEMA + 1), step)
        await migrate(lab, found, steps=steps, to=SCHEMA + 1, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(state.migrations, "migrate", later)
    return took


async def test_the_first_process_that_starts_migrates_after_a_backup(
    lab: Lab, settings: Settings, newer: list[str]
) -> None:
    async with opened("web", settings), opened("clock", settings):
        assert await schema(lab) == str(SCHEMA + 1)

    assert len(newer) == SCHEMA
    backups = [settings.data_dir / "backups" / name for name in os.listdir(settings.data_dir / "backups")]
    assert [read_header(file).schema for file in backups] == [1]
    assert "schema" in {name for name, _, _ in entries(backups[0])}


async def test_a_lab_that_waits_for_its_migration_is_not_told_of_at_every_try(
    lab: Lab, settings: Settings, newer: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    await Presence(lab).announce("web@h:1", {"kind": "web", "schema": 1})

    with pytest.raises(Unavailable, match="processes of the older version are alive"):
        await until_ready(lab, settings, patience_s=1.0)

    assert "bringing the lab" not in caplog.text
    assert newer == []
    await Presence(lab).leave("web@h:1")
    await until_ready(lab, settings)
    assert caplog.text.count("bringing the lab") == 1


async def test_who_does_not_migrate_is_told_what_does(lab: Lab, newer: list[str]) -> None:
    with pytest.raises(Unavailable, match="schema 1") as refusal:
        await until_ready(lab)

    assert "./nightjar up" in str(refusal.value.hint)


async def test_a_lab_of_a_newer_version_is_refused_plainly(lab: Lab, settings: Settings) -> None:
    await lab.command("SET", lab.keys("schema"), SCHEMA + 1)

    with pytest.raises(Unavailable, match=f"schema {SCHEMA + 1}, this version reads {SCHEMA}") as refusal:
        async with opened("web", settings):
            pytest.fail("it was opened")

    assert "run the version that wrote it" in str(refusal.value.hint)


async def test_a_process_knows_when_its_lab_was_made_anew(lab: Lab) -> None:
    assert await lab.outlived() is None
    await lab.command("SET", lab.keys("identity"), "another")

    with pytest.raises(Unavailable, match="made anew"):
        await lab.recognise()


@pytest.mark.process
@pytest.mark.parametrize(("key", "value"), [("schema", "99"), ("identity", "another")])
def test_a_process_ends_in_order_when_the_lab_outgrows_it(
    settings: Settings, redis_server: EmbeddedRedis, tmp_path: Path, key: str, value: str
) -> None:
    environment = os.environ | {
        "NIGHTJAR_LAB": settings.lab,
        "NIGHTJAR_REDIS_URL": redis_server.url,
        "NIGHTJAR_DATA": str(tmp_path),
        "NIGHTJAR_HEARTBEAT_S": "0.4",
    }
    command = [sys.executable, "-P", "-m", "triggers.clock"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as clock:
        try:
            asyncio.run(_outgrow(settings.lab, redis_server.url, key, value))

            _, said = clock.communicate(timeout=60)
        finally:
            clock.kill()

    assert clock.returncode == 0
    assert "ends: the lab" in said


async def _outgrow(name: str, url: str, key: str, value: str) -> None:
    lab = Lab(name, url)
    while not await Presence(lab).alive(60):  # noqa: ASYNC110 - it is another process that comes
        await asyncio.sleep(0.05)
    await lab.command("SET", lab.keys(key), value)
    await lab.close()
