"""A swarm of a tag, with workers that send what a test says."""

from __future__ import annotations

from typing import Any

from tests.journeys.running import RunningLab
from tests.page.pages import Page

DIMENSIONS = [
    {"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1},
    {"name": "OPTIMIZER", "dtype": "categorical", "categories": ["adam", "sgd"]},
]
EACH_RUN_COUNTS = {"keep_rule": "strict", "belief.evidence": "baseline", "stopping.rule": "none"}


class Swarm:
    """The workers of one tag."""

    def __init__(self, lab: RunningLab, tag: str) -> None:
        self.lab = lab
        self.tag = tag
        lab.post("dimension/define", tag=tag, dimensions=DIMENSIONS)
        lab.post("search/set-policy", tag=tag, policy=EACH_RUN_COUNTS)
        lab.until(lambda: len(self.hypotheses()) == len(DIMENSIONS), "each dimension has its hypothesis")

    def join(self, worker_id: str, **more: str) -> str:
        body = {"worker_id": worker_id, "gpu_type": "H100", "baseline_bpb": 1.0, "tag": self.tag, **more}
        self.lab.http.post("/register", json=body).raise_for_status()
        return worker_id

    def begin(self, worker_id: str, *progress: float) -> str:
        """A run that goes on, after a report at each progress."""
        run_id = str(self.lab.http.get(f"/next_config/{worker_id}").raise_for_status().json()["run_id"])
        for share in progress:
            self.lab.http.post("/tick", json={"id": run_id, "p": share, "m": 0.97, "d": -0.03})
        return run_id

    def end(self, worker_id: str, run_id: str, value: float) -> None:
        body = {"worker_id": worker_id, "exp_id": run_id, "val_bpb": value, "delta_bpb": value - 1.0}
        body |= {"config": {}, "config_delta": {}, "duration_seconds": 1.5}
        self.lab.http.post("/result", json=body).raise_for_status()

    def run(self, worker_id: str, *values: float) -> list[str]:
        """Runs of a worker, each with its value."""
        found = []
        for value in values:
            found.append(self.begin(worker_id))
            self.end(worker_id, found[-1], value)
        return found

    def targets(self) -> list[int]:
        found = self.lab.http.get("/populations", params={"tag": self.tag}).json()["populations"]
        return [one["target_workers"] for one in found if one["hypothesis_id"] is not None]

    def hypotheses(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.lab.post("hypothesis/list", tag=self.tag)["hypotheses"]
        return found

    def hypothesis(self, statement: str) -> dict[str, Any]:
        return next(one for one in self.hypotheses() if one["statement"] == statement)

    def tested(self) -> dict[str, Any]:
        """The hypothesis with the most evidence."""
        return max(self.hypotheses(), key=lambda one: one["n_experiments"])


def figure(page: Page, name: str) -> list[str]:
    """A figure's lines: its name, its value and what is under it."""
    found = [text.split("\n") for text in page.texts(".figures > div")]
    return next((lines for lines in found if lines[0] == name), [])


def table(page: Page, label: str) -> list[list[str]]:
    """The cells of a table's rows."""
    rows: list[list[str]] = page.run(
        "const rows = document.querySelectorAll(`table[aria-label='${arguments[0]}'] tbody tr:not(.gap)`);"
        "return [...rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))",
        label,
    )
    return rows


def drawn(page: Page, nth: int) -> list[dict[str, Any]]:
    """The series of the view's nth chart, once all have data."""
    found = page.series(nth)
    return found if all(series["data"] for series in found) else []
