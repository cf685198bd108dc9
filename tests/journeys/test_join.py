"""Owners lend their machines to a swarm: real workers, a real train.py, a real server, and what may die of them."""

from __future__ import annotations

import re
import shlex
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.journeys.running import RunningLab, running_lab
from tests.workers.swarm.joined import TRAIN, joined_worker

OF_TRAIN: Mapping[str, Mapping[str, Any]] = {
    "LR": {"dtype": "float_log", "min": 1e-4, "max": 1e-1},
    "LAYERS": {"dtype": "int", "min": 1, "max": 8},
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path / "lab") as found:
        found.start()
        yield found


def opened(lab: RunningLab, **policy: Any) -> None:
    """Open a swarm."""
    declared = [{"name": name, **shape} for name, shape in OF_TRAIN.items()]
    lab.post("dimension/define", tag="swarm", dimensions=declared)
    lab.post("search/set-policy", tag="swarm", policy=policy)


def runs_of(lab: RunningLab) -> list[dict[str, Any]]:
    """The runs of the swarm, in their order."""
    found = lab.post("experiment/history", tag="swarm", limit=200)["experiments"]
    return sorted(found, key=lambda run: int(run["number"]))


def values_of(lab: RunningLab) -> list[dict[str, Any]]:
    """The runs of the swarm that ended with a value."""
    return [run for run in runs_of(lab) if run["val_bpb"] is not None]


def test_a_server_that_restarts_in_the_middle_of_a_run_loses_nothing_of_it(
    lab: RunningLab, tmp_path: Path
) -> None:
    opened(lab, **{"budgets.base_s": 4})
    with joined_worker(tmp_path / "w") as worker:
        worker.first_join(f"http://127.0.0.1:{lab.port}", "--tag", "swarm", "--max-runs", "2")
        worker.script()
        [first] = lab.until(lambda: [run for run in runs_of(lab) if run["status"] == "running"], "a run")

        lab.stop()
        kept = worker.data / "results" / f"{first['experiment_id']}.json"
        worker.until(kept.exists, "the result waits")
        lab.start()

        assert worker.ended() == 0
        runs = runs_of(lab)
        assert [run["val_bpb"] for run in runs] == [run["config_delta"]["LR"] for run in runs]
        assert len(runs) == 2
        assert not list((worker.data / "results").glob("*.json"))
        assert worker.train_py.read_text() == TRAIN


PAGE = (ROOT / "docs" / "workers.md").read_text().split("## In a swarm")[1].split("\n## ")[0]


def test_the_commands_of_a_worker_owner_s_page_do_what_they_say(lab: RunningLab, tmp_path: Path) -> None:
    operator = lab.post("token/issue", name="olga", role="operator")["token"]
    lab.http.headers["authorization"] = f"Bearer {operator}"
    invite = lab.post("token/issue", name="friends", role="worker", kind="enroll", uses=1)["token"]
    [block] = re.findall(r"(?s)```bash\n(.*?)```", PAGE)
    export, first = re.findall(r"(?m)^(?:\./nightjar join)? ?(.*)$", block.strip())
    assert export == "export NIGHTJAR_ENROLL_TOKEN=nj_..."
    assert "`./nightjar join` is enough" in PAGE
    opened(lab, keep_rule="strict", **{"budgets.base_s": 1})
    with joined_worker(tmp_path / "owner", TRAIN.replace("= 300", "= 1")) as worker:
        home = worker.home.rename(worker.home.with_name("my-project")).parent
        worker.home, worker.train_py = home, home / "my-project" / "train.py"
        worker.data = home / ".local/state/nightjar/swarm" / f"127.0.0.1-{lab.port}" / "ann-4090"
        own = {"HOME": str(home), "XDG_STATE_HOME": "", "NIGHTJAR_DATA": ""}
        words = first.replace("https://swarm.example.org", f"http://127.0.0.1:{lab.port}")

        def leaves_after(count: int) -> None:
            """So many runs have values; the first Ctrl-C ends it."""
            lab.until(lambda: len(values_of(lab)) >= count, f"{count} runs")
            worker.signal(signal.SIGINT)
            assert worker.ended() == 0, worker.said

        worker.join(
            *(word.replace("~", str(home)) for word in shlex.split(words)),
            **own,
            NIGHTJAR_ENROLL_TOKEN=invite,
        )
        leaves_after(1)
        before = len(values_of(lab))
        worker.join(**own)
        leaves_after(before + 1)

        assert "(3 runs of 1 s)" in worker.said
        assert stat.S_IMODE((worker.data / "joined.json").stat().st_mode) == 0o600
    [ann] = lab.get("swarm/workers")["workers"]
    assert (ann["worker_id"], ann["contact"], ann["active"]) == ("ann-4090", "ann@example.org", 0)
    assert all(run["val_bpb"] == run["config_delta"]["LR"] for run in values_of(lab))
