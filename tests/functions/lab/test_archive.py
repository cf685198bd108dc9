"""Old patches leave Redis for the archive, a folder or a bucket, and can be read for ever."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.archive import Archive, PatchArchiving
from state.backup import back_up, restore
from state.client import Lab
from state.errors import Unavailable
from state.experiments import Experiments
from state.ids import patch_id
from state.settings import Settings
from tests.conftest import http_client
from tests.journeys.running import reserved_port
from tests.labs import add_gpu, asked, begun, curl, events_of, idea, open_tag, told, tried

AT_ONCE = {"baseline_first": False, "patches.archive_after_days": 0}
WORSE, BETTER, WAITS = "+ worse\n", "+ better\n", "+ waits\n"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of a server of S3 with a bucket."""
    reserved = reserved_port()
    address = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-p", address.rpartition(":")[2]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        give_up = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{address}/lab", method="PUT")).close()
                break
            except OSError:
                assert time.monotonic() < give_up
                time.sleep(0.1)
        yield address
        server.kill()
    reserved.close()


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return str(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("bucket"))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return f"s3://lab/{tmp_path.name}"


@pytest.fixture
async def process(settings: Settings, place: str) -> AsyncIterator[Process]:
    async with opened("web", settings.model_copy(update={"archive": place})) as process:
        yield process


@pytest.fixture
async def client(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """A lab whose patches leave as soon as their runs have ended."""
    async with http_client(process) as http:
        await open_tag(http, policy=AT_ONCE)
        yield http


async def a_night(client: httpx.AsyncClient) -> None:
    """A keep, a discard, a crash of the discard's code, and a run that waits."""
    await tried(client, 1.0, diff=BETTER)
    await tried(client, 1.1, diff=WORSE)
    await tried(client, 1.2, diff=WORSE)
    await told(client, "/api/experiment/submit", **idea(diff=WAITS))


async def at_hand(lab: Lab) -> set[str]:
    """The patches in Redis, by digest."""
    return {key.rpartition(":")[2] async for key in lab.scan("diffs:*")}


def ids(*patches: str) -> set[str]:
    return {str(patch_id(patch.encode())) for patch in patches}


async def test_patches_of_discards_are_read_elsewhere(client: httpx.AsyncClient, process: Process) -> None:
    await a_night(client)

    moved = await told(client, "/api/lab/archive")
    again = await told(client, "/api/lab/archive")

    assert moved == {"moved": 1, "more": False, "without_archive": []}
    assert again["moved"] == 0
    assert await at_hand(process.lab) == ids(BETTER, WAITS)
    assert (await asked(client, "/api/experiment/mar11-2"))["diff"] == WORSE
    difference = await told(client, "/api/report/diff", experiment_a="mar11-1", experiment_b="mar11-2")
    assert (difference["patch_a"], difference["patch_b"]) == (BETTER, WORSE)
    [event] = await events_of(process, "tag.patches_archived")
    assert (event["tag"], event["patches"]) == ("mar11", 1)
    assert (await told(client, "/api/lab/audit"))["violations"] == []


async def test_a_patch_that_is_tried_again_is_back(client: httpx.AsyncClient, process: Process) -> None:
    for patch, value, gpu in ((BETTER, 1.0, "host:gpu0"), (WORSE, 1.1, "host:gpu1")):
        await add_gpu(client, gpu)
        name = (await told(client, "/api/experiment/submit", **idea(diff=patch)))["experiment_id"]
        await told(client, "/api/pool/dispatch")
        run = await begun(process, name)
        await told(client, "/api/experiment/complete", experiment_id=name, val_bpb=value, fence=run.fence)
    assert (await told(client, "/api/lab/archive"))["moved"] == 1

    retest = await told(client, "/api/experiment/retest", experiment_id="mar11-2")

    assert await at_hand(process.lab) == ids(BETTER, WORSE)
    assert (await told(client, "/api/lab/archive"))["moved"] == 0
    of_worker = Lab(process.lab.name, process.lab.url)
    try:
        experiments = Experiments(of_worker)
        assert await experiments.patch(await experiments.get(retest["retest_id"])) == WORSE.encode()
    finally:
        await of_worker.close()


async def test_a_patch_that_is_used_while_moved_stays(client: httpx.AsyncClient, process: Process) -> None:
    await a_night(client)
    patches = PatchArchiving(process.lab)
    used = await patches.used("mar11", ["mar11"])
    [digest] = ids(WORSE)
    await patches.copy([digest])

    await told(client, "/api/experiment/submit", **idea(diff=WORSE))

    assert not await patches.remove("mar11", [digest], used.uses)
    assert digest in await at_hand(process.lab)
    assert (await told(client, "/api/lab/archive"))["moved"] == 0


async def test_a_restored_lab_reads_its_old_patches_from_the_same_archive(
    client: httpx.AsyncClient, process: Process, tmp_path: Path
) -> None:
    await a_night(client)
    await told(client, "/api/lab/archive")
    file = tmp_path / "lab.nightjar"

    await back_up(process.lab, file)
    other = Lab(f"{process.lab.name}b", process.lab.url, archive=process.lab.archive)
    try:
        await restore(other, file)

        assert await at_hand(other) == ids(BETTER, WAITS)
        assert await Experiments(other).patch(await Experiments(other).get("mar11-2")) == WORSE.encode()
    finally:
        await other.close()


@pytest.mark.parametrize("policy", [{"baseline_first": False}, AT_ONCE | {"patches.archive_after_days": 30}])
async def test_nothing_moves_unless_a_policy_says_so_and_before_its_days_are_over(
    process: Process, policy: dict[str, object]
) -> None:
    async with http_client(process) as http:
        await open_tag(http, policy=policy)
        await a_night(http)
        assert (await told(http, "/api/lab/archive"))["moved"] == 0
    assert await at_hand(process.lab) == ids(BETTER, WORSE, WAITS)


class TestFaults:
    """Of the archive; nothing leaves Redis then."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "gone")

    async def test_a_folder_that_is_not_there(self, client: httpx.AsyncClient, process: Process) -> None:
        await a_night(client)
        refusal = await curl(client, "/api/lab/archive", {})
        assert refusal.status_code == 503
        assert "doctor" in refusal.json()["hint"]
        assert ids(WORSE) < await at_hand(process.lab)

    def test_a_file_that_is_another_or_cut(self, tmp_path: Path) -> None:
        archive = Archive(str(tmp_path))
        archive.put(WORSE.encode())
        [digest] = ids(WORSE)
        [file] = tmp_path.glob(f"*/{digest}.patch.gz")

        for content in (gzip.compress(b"another"), file.read_bytes()[:-9], b"", b"\x1f\x8b\x08" + bytes(40)):
            file.write_bytes(content)
            with pytest.raises(Unavailable, match=digest):
                archive.get(digest)

    def test_a_server_that_does_not_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{gone.getsockname()[1]}")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")

        with pytest.raises(Unavailable, match="s3://lab/x does not take"):
            Archive("s3://lab/x").check()

    async def test_a_patch_that_was_rewritten_in_redis(
        self, client: httpx.AsyncClient, process: Process, tmp_path: Path
    ) -> None:
        (tmp_path / "gone").mkdir()
        await a_night(client)
        [digest] = ids(WORSE)
        await process.lab.command("SET", process.lab.keys("diffs", digest), "another")
        assert (await told(client, "/api/lab/archive"))["moved"] == 0
        assert digest in await at_hand(process.lab)
