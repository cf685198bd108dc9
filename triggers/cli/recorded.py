"""The runs that `nightjar replay` judges again: those of a log of results, or of a tag of the running lab."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from functions.experiments.rules.directions import direction_of
from functions.experiments.rules.replaying import RecordedRun, by_running_best, noise_of
from functions.formats.results_log import LogRow, Remark, read_log
from state.errors import Invalid, NotFound, Unavailable
from state.facts import Noise
from state.noise import unseeded
from state.records import RETESTED, Direction
from triggers.cli.lab_http import LabHttp
from triggers.cli.runs import pages_of, path_of, tags_of

NO_VALUE = "it has no value"
NOT_COUNTED = "it was over its budget, or is a claim: its value does not count"
OTHER_KEY = "its GPU class, evaluator or budget differs from the tag's first run"
View = dict[str, Any]


@dataclass
class Recorded:
    """Recorded runs, those that were skipped, and remarks."""

    metric: str
    direction: Direction | None
    """None if neither a person nor the metric's name says which way is better."""
    runs: list[RecordedRun] = field(default_factory=list)
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    """Run, reason and its text; `notes` have the same form."""
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    resolution: float = 0.0
    """Rounding step of the values; 0 for a lab, which does not round."""
    noise: Noise | None = None
    """Noise from repeats of the same code; for a tag, the lab's own."""
    false_share: float | None = None
    """As the lab estimates it."""
    no_verdicts: str = ""
    """The statuses of a log that says keep or discard of no run; its keeps are those of the running best."""

    def without_estimates(self) -> Recorded:
        """A copy without the lab's own noise estimates."""
        return replace(self, runs=[replace(run, p_better=None) for run in self.runs], false_share=None)


def from_file(file: Path, metric: str | None, direction: Direction | None) -> Recorded:
    """The runs of a log of results. Raises Unavailable: it cannot be read. Invalid: it is no such log."""
    try:
        raw = file.read_bytes()
    except OSError as problem:
        raise Unavailable(
            f"{str(file)!r} cannot be read: {problem.strerror}", hint="name a file that you may read"
        ) from problem
    log = read_log(raw, metric)
    if direction is None:
        with contextlib.suppress(Invalid):
            direction = direction_of(log.metric)
    recorded = Recorded(log.metric, direction, resolution=log.resolution or 0.0)

    def told(remark: Remark) -> tuple[str, str, str]:
        return f"line {remark.line}", remark.reason, remark.text

    recorded.skipped += [told(remark) for remark in log.skipped]
    recorded.notes += [told(remark) for remark in log.notes]
    for row in log.rows:
        name = f"line {row.line}"
        if row.outcome == "crash":
            recorded.skipped.append((name, f"its status is {row.said!r}", row.description))
        elif row.value is None:
            recorded.skipped.append((name, NO_VALUE, row.description))
        else:
            recorded.runs.append(
                RecordedRun(name, row.description, row.value, row.outcome == "keep", _code(row))
            )
    recorded.noise = noise_of(recorded.runs)
    if not log.has_verdicts:
        recorded.runs = by_running_best(recorded.runs, direction or "minimize")
        said = sorted({row.said for row in log.rows if row.outcome == "none" and row.said})
        recorded.no_verdicts = ", ".join(said[:5]) or "no statuses"
    return recorded


def _code(row: LogRow) -> tuple[str | None, ...] | None:
    """Key of a row's code, equal for rows of the same code; None where the log does not name it."""
    if row.config is not None:
        return (row.commit, row.config)
    # agents also write one commit twice by mistake; only with the same text it is the same code
    return (row.commit, row.description) if row.commit else None


def from_lab(http: LabHttp, tag: str) -> Recorded:
    """The runs of a tag with retests, and the lab's estimate of their noise. Raises NotFound: no such tag."""
    shown = next((found for found in tags_of(http.ask) if found["name"] == tag), None)
    if shown is None:
        hint = "./nightjar status shows the lab's tags"
        raise NotFound(f"there is no file {tag!r} and no such tag in the lab", hint=hint)
    known = http.ask("POST", "/api/report/summary", {"tag": tag})
    recorded = Recorded(shown["metric"], shown["direction"], false_share=known["false_keeps_at_least"])
    if known["noise"] is not None:
        recorded.noise = Noise(known["noise"]["sigma"], known["noise"]["df"])
    if not shown["total_experiments"]:
        raise NotFound(f"the tag {tag!r} has no experiment yet", hint="./nightjar status shows what goes on")
    found = [e for page in pages_of(http.ask, tag) for e in page["experiments"]]
    experiments = sorted(found, key=lambda e: (e["finished_at"] or "", e["number"]))
    for e in experiments:
        name, text = e["experiment_id"], e["description"]
        if e["status"] not in ("keep", "discard"):
            recorded.skipped.append((name, f"its status is {e['status']!r}", text))
            continue
        if e["val_bpb"] is None:
            recorded.skipped.append((name, NO_VALUE, text))
        elif e["over_budget"] or e["guard"] or (e["claimed"] and e["measured_by"] is None):
            recorded.skipped.append((name, NOT_COUNTED, text))
        elif e["best_key"] is not None:
            recorded.skipped.append((name, OTHER_KEY, text))
        else:
            code = (e["commit_sha"], json.dumps(unseeded(e["config_delta"]), sort_keys=True))
            kept = e["status"] == "keep"
            recorded.runs.append(RecordedRun(name, text, e["val_bpb"], kept, code, e["p_better"]))
            recorded.runs += [
                RecordedRun(again, text, value, False, code) for again, value in _retests(http, e)
            ]
    return recorded


def _retests(http: LabHttp, e: View) -> list[tuple[str, float]]:
    """The further runs of an experiment that have a value."""
    if not e["retests"]:
        return []
    shown = http.ask("GET", path_of(e["experiment_id"]))
    return [(r["retest_id"], r["val_bpb"]) for r in shown["retests"] if r["status"] == RETESTED]
