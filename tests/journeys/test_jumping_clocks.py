"""Hosts whose clocks are wrong, and jump: leases, sweeps, firings, tokens and waits go by Redis' clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from state.embedded import EmbeddedRedis
from state.settings import Settings
from tests.journeys.running import RunningLab

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib64/faketime/libfaketimeMT.so.1")
AHEAD, BEHIND = "+3600", "-3600"
IDEA = {"hypothesis": "h", "category": "other", "diff_summary": "d"}
KINDS = ("web", "events", "clock", "worker")
TRAINING_S = 10.0
"""Long enough to be in the middle of it once the clocks have jumped, on a slow machine, too."""


class SkewedLab(RunningLab):
    """A lab each of whose processes has a wall clock of its own; Redis alone has the machine's."""

    def __init__(self, folder: Path, library: Path, redis_url: str) -> None:
        super().__init__(folder)
        self._library, self._redis_url = library, redis_url
        self._folder = folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def set(self, **seconds: str) -> None:
        """Let the clocks of these kinds of processes be wrong by so much from now on."""
        for kind, wrong in seconds.items():
            draft = self._folder / f".{kind}.clock"
            draft.write_text(wrong)
            draft.replace(self._folder / f"{kind}.clock")

    def begin(self, *kinds: str) -> None:
        """Start processes, and wait until the lab knows them."""
        for kind in kinds:
            self._started[kind] = self._start(kind)
        self.until(lambda: self.get("pool/list")["idle"] == 1, "the slot is idle")
        self.until(
            lambda: {"web", "events", "clock"} <= {p["kind"] for p in self.get("lab/status")["processes"]},
            "every process is there",
        )

    def close(self) -> None:
        """Kill all that is alive."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for started in self._started.values():
            started.wait()
        super().close()

    def end(self, kind: str) -> None:
        """Kill the processes of a kind."""
        for process in self.processes("workers.") if kind == "worker" else ():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._started[kind].kill()
        self._started[kind].wait()

    def _start(self, kind: str) -> subprocess.Popen[bytes]:
        module = ("workers.supervisor", "--repo", str(self.repo), "--gpu", "none", "--cpu", "1")
        command = module if kind == "worker" else (f"triggers.{kind}",)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")}
        environment |= self.settings
        environment |= {
            "NIGHTJAR_SILENT_S": "60",  # no run is taken for one that was never begun
            "NIGHTJAR_DATA": str(self.data),
            "NIGHTJAR_PORT": str(self.port),
            "NIGHTJAR_REDIS_URL": self._redis_url,
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / f"{kind}.clock"),
            "FAKETIME_CACHE_DURATION": "1",
            "NO_FAKE_STAT": "1",
        }
        if kind != "worker":  # where it does not fake the monotonic clock, too, nothing of Python's can sleep
            environment["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.data,
            )


@pytest.fixture
def library() -> Path:
    """libfaketime: a skip on a laptop without it, a failure in CI."""
    found = [path for pattern in LIBRARIES for path in Path("/").glob(pattern.removeprefix("/"))]
    if not found:
        assert not os.environ.get("CI"), "libfaketime is missing, and with it what this test is about"
        pytest.skip("libfaketime is missing")
    return found[0]


@pytest.fixture
def lab(tmp_path: Path, library: Path) -> Iterator[SkewedLab]:
    (tmp_path / "data").mkdir()
    with EmbeddedRedis.start(Settings.model_validate({"data": tmp_path / "redis"})) as redis:
        found = SkewedLab(tmp_path, library, redis.url)
        with closing(found):
            yield found


def fired(lab: RunningLab) -> Mapping[str, int]:
    return {row["function"]: row["fired"] for row in lab.get("cron/list")["functions"]}


def reports(lab: RunningLab, experiment_id: str) -> bool:
    return lab.get(f"experiment/{experiment_id}")["experiment"]["last_progress"] is not None


def opens(lab: RunningLab, token: str) -> bool:
    headers = {"authorization": f"Bearer {token}"}
    return lab.http.get("/api/token/whoami", headers=headers).status_code == 200


def goes_on(lab: SkewedLab, lasting: str, browser: httpx.Client) -> None:
    """The clock fires, waits last as long as they should, and who was let in still is, for as long as was said."""
    before = fired(lab)
    lab.until(lambda: fired(lab)["pool::sweep"] >= before["pool::sweep"] + 3, "the clock fires")
    held = lab.post("experiment/register", tag="t", **IDEA, commit_sha=lab.base)["experiment_id"]
    begin = time.monotonic()
    waited = lab.get(f"experiment/{held}/wait?timeout=0.5&until=finished")
    assert waited["status"] == "registered"
    assert 0.4 < time.monotonic() - begin < 60
    lab.post("experiment/stop", experiment_id=held)
    brief = lab.post("token/issue", name="brief", role="viewer", lasts_s=1.0)["token"]
    lab.until(lambda: not opens(lab, brief), "a token has ended that was to last a second")
    assert opens(lab, lasting)
    assert browser.get("/api/token/whoami").json()["name"] == "half-an-hour"


@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_lab_whose_hosts_clocks_are_wrong_and_jump_works_on(lab: SkewedLab, dies: bool) -> None:
    """A run whose worker dies runs again on a host with another clock."""
    lab.set(web=AHEAD, events=BEHIND, clock=AHEAD, worker=BEHIND)
    lab.begin(*KINDS)
    root = lab.post("token/issue", name="root", role="operator")
    lab.http.headers["authorization"] = f"Bearer {root['token']}"
    lasting = lab.post("token/issue", name="half-an-hour", role="viewer", lasts_s=1800.0)["token"]
    lab.setup()
    with httpx.Client(base_url=str(lab.http.base_url), timeout=60) as browser:
        assert browser.post("/api/session", json={"token": lasting}).is_success
        experiment = lab.submit(config_delta={"SECONDS": TRAINING_S})
        lab.until(lambda: reports(lab, experiment), "it trains")
        lab.set(web=BEHIND, events=AHEAD, clock=BEHIND)
        if dies:
            lab.end("worker")
            lab.set(web=AHEAD, events=BEHIND, clock=AHEAD, worker=AHEAD)
            lab.begin("worker")
        goes_on(lab, lasting, browser)

    done = lab.until_status(experiment, "keep", "crash", "timeout", "lost")
    assert [a["status"] for a in done["attempts"].values()] == (["lost", "keep"] if dies else ["keep"])
    assert done["experiment"]["training_seconds"] == pytest.approx(TRAINING_S, abs=TRAINING_S / 2)
    lab.until_idle()
    assert lab.post("lab/audit")["violations"] == []
