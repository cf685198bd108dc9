"""Backups are of one moment and whole or refused; a restored lab is equal, and a lab of its own."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import stat
import struct
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import state.backup
from functions.kernel.process.lifecycle import Process, opened
from state.backup import FORMAT, Entry, Manifest, back_up, entries, packed, read_manifest, restore, write
from state.client import LAYOUT, Lab
from state.embedded import EmbeddedRedis
from state.errors import Conflict, Invalid, Unauthenticated, Unavailable
from state.experiments import Experiments
from state.pool import Pool
from state.settings import Settings
from state.tokens import Tokens
from tests.conftest import http_client
from tests.labs import PRESENCE, add_gpu, crashed, dump, idea, open_tag, running, told, tried

LIFE = PRESENCE | {"identity", "fence", "gpu_pool", "restoring"}
"""What a restore changes on purpose, beside what was with a worker."""


@pytest.fixture
async def other(redis_server: EmbeddedRedis) -> AsyncIterator[Lab]:
    """A lab that does not exist yet."""
    lab = Lab(f"t{uuid.uuid4().hex[:12]}", redis_server.url)
    yield lab
    await lab.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lab.nightjar"


def list_of(file: Path) -> list[str]:
    """What stands in the folder under this name, finished or not."""
    return [found for found in os.listdir(file.parent) if file.name in found]


def damaged(file: Path, how: Callable[[bytes], bytes]) -> Path:
    found = file.with_suffix(".damaged")
    found.write_bytes(how(file.read_bytes()))
    return found


async def a_night(client: httpx.AsyncClient, process: Process) -> None:
    """Two tags with results, patches, a decision and a handler that has work to do."""
    await open_tag(client)
    await open_tag(client, "other")
    await tried(client, 1.0, diff="+ wider\n" * 1000)
    await tried(client, 1.001)
    await crashed(client)
    await told(client, "/api/search/set-strategy", tag="mar11", mode="exploit", reason="r")
    subscription = process.stream.events("search::adapt", "dead")
    await subscription.serve()
    await subscription.read(2, 0.1)


async def renamed(lab: Lab, without: frozenset[str] = LIFE) -> dict[str, Any]:
    """All of a lab's state, its own name taken out."""
    return {
        key.removeprefix(lab.keys("")): value for key, value in (await dump(lab, without=without)).items()
    }


async def test_a_lab_restored_under_another_name_is_equal(
    client: httpx.AsyncClient, process: Process, other: Lab, file: Path
) -> None:
    await a_night(client, process)

    done = await back_up(process.lab, file)
    found = os.stat(file)
    restored = await restore(other, file)

    assert (stat.S_IMODE(found.st_mode), found.st_size) == (0o600, done.size)
    assert (restored.manifest.keys, read_manifest(file).lab) == (done.keys, process.lab.name)
    assert done.keys > 20
    assert done.paused_s > 0
    assert await renamed(other) == await renamed(process.lab)
    assert process.lab.name not in json.dumps(await dump(other))
    groups = [await lab.command("XINFO", "GROUPS", lab.keys("events")) for lab in (process.lab, other)]
    assert groups[0] == groups[1] != []
    restored_patch = await Experiments(other).patch(await Experiments(other).get("mar11-1"))
    assert restored_patch == b"+ wider\n" * 1000


async def test_a_restored_lab_knows_tokens_that_were_revoked_since(
    process: Process, other: Lab, file: Path
) -> None:
    """And nobody is signed in to it."""
    me = await process.tokens.issue(name="me", role="operator", issued_by="local")
    _, proof = await process.tokens.recognise(me.text)
    session, ticket = await process.tokens.open_session(proof), await process.tokens.open_ticket(proof)
    code = await process.tokens.open_code(proof)
    await back_up(process.lab, file)
    await process.tokens.revoke(me.token)

    await restore(other, file)

    tokens = Tokens(other)
    for asked, words in (
        (tokens.session(session.name), "session has ended"),
        (tokens.code(code), "link"),
        (tokens.ticket(ticket), "ticket"),
        (process.tokens.recognise(me.text), "revoked"),
    ):
        with pytest.raises(Unauthenticated, match=words):
            await asked
    assert (await tokens.recognise(me.text))[0].name == "me"


async def test_what_was_with_a_worker_waits_again_under_a_new_identity_and_a_far_fence(
    client: httpx.AsyncClient, process: Process, other: Lab, file: Path
) -> None:
    await open_tag(client)
    await add_gpu(client)
    run = await running(client, process)
    waiting = (await told(client, "/api/experiment/submit", **idea()))["experiment_id"]
    await back_up(process.lab, file)

    restored = await restore(other, file)

    experiments = Experiments(other)
    again = await experiments.get(run.experiment_id)
    assert restored.waiting_again == [run.experiment_id]
    assert (again.status, again.attempt, again.fence) == ("queued", run.attempt + 1, 0)
    assert (await experiments.get(waiting)).status == "queued"
    gpu = await Pool(other).get("host:gpu0")
    assert (gpu.holder, gpu.status) == (None, "offline")
    assert int(await other.command("GET", other.keys("fence"))) > run.fence + 100_000
    await other.check()
    assert other.identity != process.lab.identity
    # the earlier life goes on as if nothing had been
    assert (await Experiments(process.lab).get(run.experiment_id)).status == "running"


async def test_a_backup_is_of_one_moment_while_many_write(
    client: httpx.AsyncClient,
    process: Process,
    other: Lab,
    file: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state.backup, "KEYS_AT_ONCE", 2)  # many looks, between which anything might happen
    await open_tag(client)
    stop = asyncio.Event()

    async def agent() -> None:
        value = 1.0
        while not stop.is_set():
            value -= 0.001
            await tried(client, value)

    agents = [asyncio.create_task(agent()) for _ in range(4)]
    await asyncio.sleep(0.2)

    await back_up(process.lab, file)
    stop.set()
    await asyncio.gather(*agents)
    await restore(other, file)

    async with (
        opened("web", settings.model_copy(update={"lab": other.name})) as second,
        http_client(second) as http,
    ):
        audit = await told(http, "/api/lab/audit")
    assert audit["violations"] == []
    assert audit["experiments"] > 0


async def test_a_pause_that_somebody_else_ends_is_noticed(
    process: Process, client: httpx.AsyncClient, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_tag(client)
    read = state.backup._read

    async def interfered(lab: Lab, keys: list[str]) -> Any:
        await lab.command("CLIENT UNPAUSE")
        await lab.command("SET", lab.keys("log", "x"), "written meanwhile")
        return await read(lab, keys)

    monkeypatch.setattr(state.backup, "_read", interfered)

    with pytest.raises(Conflict, match="written to while it was read"):
        await back_up(process.lab, file)

    assert list_of(file) == []


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing in it": lambda whole: b"",
    "no gzip": lambda whole: b"no gzip at all",
    "another gzip": lambda whole: gzip.compress(b'{"format": "else"}\n'),
    "cut in the middle": lambda whole: whole[: len(whole) // 3],
    "cut at its end": lambda whole: whole[:-3],
    "a bit of its checksum": lambda whole: whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
    "more behind it": lambda whole: whole + gzip.compress(b"more"),
}


async def test_a_damaged_file_is_refused_before_anything_is_written(
    client: httpx.AsyncClient, process: Process, other: Lab, file: Path
) -> None:
    await a_night(client, process)
    await back_up(process.lab, file)

    for name, how in DAMAGE.items():
        with pytest.raises(Invalid, match="not a whole backup"):
            await restore(other, damaged(file, how))
        assert await dump(other, without=frozenset()) == {}, name


MANIFEST = Manifest(FORMAT, LAYOUT, "lab", "2026-01-01T00:00:00.000Z", "8.2.3", 9)


def written(file: Path, entries: Sequence[Entry], **changes: Any) -> None:
    """A whole backup of these keys, with another manifest."""
    with tempfile.TemporaryFile() as body:
        body.writelines(map(packed, entries))
        write(file, replace(MANIFEST, **{"keys": len(entries), **changes}), body)


HEADERS = st.dictionaries(
    st.sampled_from(["format", "layout", "lab", "time", "redis", "keys"]),
    st.none() | st.integers() | st.floats() | st.text(max_size=5),
    max_size=3,
).map(lambda changes: json.dumps({**asdict(MANIFEST), **changes}).encode())


@example(head=b"[" * 9000, body=b"")
@example(head=json.dumps({**asdict(MANIFEST), "layout": str(LAYOUT)}).encode(), body=b"")
@example(head=json.dumps({**asdict(MANIFEST), "keys": "9"}).encode(), body=b"")
@example(head=json.dumps(asdict(MANIFEST)).encode(), body=b"\0\0\0\1" + b"\xff" * 12 + b"t")
@given(head=HEADERS | st.binary(max_size=60), body=st.binary(max_size=60))
def test_no_bytes_in_a_backup_s_place_are_anything_but_refused(head: bytes, body: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "backup"
        file.write_bytes(gzip.compress(head + b"\n" + body, compresslevel=1))
        begin = time.process_time()

        with pytest.raises(Invalid) as refusal:
            list(entries(file))
        with suppress(Invalid):
            found = read_manifest(file)
            assert (type(found.layout), type(found.keys), type(found.lab)) == (int, int, str)

        assert refusal.value.hint
        assert time.process_time() - begin < 5


@pytest.mark.parametrize("changes", [{"format": "nightjar backup 4"}, {"layout": 99}])
async def test_another_format_or_layout_names_the_remedy(
    other: Lab, file: Path, changes: dict[str, Any]
) -> None:
    written(file, [("layout", b"x", 0)], **changes)
    with pytest.raises(Invalid, match="another version of Nightjar wrote") as refusal:
        await restore(other, file)
    assert "version of Nightjar that wrote it" in str(refusal.value.hint)


async def test_a_small_file_of_many_gigabytes_is_refused_in_little_memory(other: Lab, file: Path) -> None:
    head = json.dumps(asdict(MANIFEST)).encode() + b"\n" + struct.pack(">IIQ", 6, 2**31 - 1, 0) + b"layout"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(head)
        for _ in range(400):
            stream.write(bytes(1024 * 1024))
    assert os.stat(file).st_size < 4 * 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(Invalid, match="larger than any key of a lab"):
            await restore(other, file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 32 * 1024 * 1024


async def test_a_restore_that_broke_off_is_recognised_and_repeated(
    client: httpx.AsyncClient,
    process: Process,
    other: Lab,
    file: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await a_night(client, process)
    await back_up(process.lab, file)
    monkeypatch.setattr(state.backup, "KEYS_AT_ONCE", 5)
    monkeypatch.setattr(state.backup, "SILENT_S", 0.5)

    def broken(done: int) -> None:
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await restore(other, file, tell=broken)
    await other.command("SET", other.keys("log", "stray"), "left by the first try")
    with pytest.raises(Unavailable, match="half restored") as refusal:
        await other.check()
    await restore(other, file)

    assert "nightjar restore" in str(refusal.value.hint)
    assert await renamed(other) == await renamed(process.lab)
    await other.check()


async def test_restores_at_once_do_not_mix_and_a_lab_that_exists_is_never_overwritten(
    client: httpx.AsyncClient, process: Process, other: Lab, file: Path
) -> None:
    await a_night(client, process)
    await back_up(process.lab, file)
    before = await renamed(process.lab)
    results = await asyncio.gather(*(restore(other, file) for _ in range(3)), return_exceptions=True)
    assert [type(r) for r in results].count(Conflict) == 2, results
    assert await renamed(other) == before

    with pytest.raises(Conflict, match="exists already"):
        await restore(process.lab, file)
    assert await renamed(process.lab) == before


async def test_a_key_that_expired_since_is_not_restored_and_the_others_keep_their_time(
    process: Process, other: Lab, file: Path
) -> None:
    await process.lab.command("SET", process.lab.keys("answers", "short"), "x", "PX", 300)
    await process.lab.command("SET", process.lab.keys("answers", "long"), "x", "EX", 1000)
    await back_up(process.lab, file)
    until = await process.lab.command("PEXPIRETIME", process.lab.keys("answers", "long"))
    await asyncio.sleep(0.4)

    await restore(other, file)

    assert {name for name, _, _ in entries(file)} >= {"answers:short", "answers:long"}
    assert await other.command("EXISTS", other.keys("answers", "short")) == 0
    assert await other.command("PEXPIRETIME", other.keys("answers", "long")) == until
