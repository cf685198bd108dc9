"""`nightjar replay` judges recorded runs again under a keep rule and shows which keeps may be noise."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from functions.experiments.rules.keeping import KEEP_RULES
from functions.experiments.rules.replaying import (
    MANY,
    SURE,
    USUAL,
    Judged,
    RecordedRun,
    Replay,
    ReplayVerdict,
    by_running_best,
    noise_of,
    replaying,
)
from functions.formats.digits import decimals, figure
from functions.formats.metrics_block import direction_of
from functions.formats.results_log import BITS_PER_BYTE, LogRow, Remark, read_log
from functions.trust.rules.noise import rounded
from state.errors import Invalid, NotFound, Unavailable
from state.facts import Noise
from state.ids import TAG_PATTERN
from state.noise import unseeded
from state.records import RETESTED, Direction
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import FiniteNumber, data_option, json_option, lab_option, settings_from
from triggers.cli.output import print_json, show
from triggers.cli.runs import pages_of, path_of, tags_of
from triggers.cli.tables import Column, counting, print_table

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


MOST_NOTES = 20
DIRECTIONS = "a higher {} is better (--maximize) or a lower one (--minimize)"
VERDICTS: dict[ReplayVerdict, str] = {
    "keep": "keeps at once",
    "retest": "keeps provisionally and runs again",
    "confirmed": "confirms by the recorded repeats",
    "demoted": "demotes by the recorded repeats",
    "discard": "discards",
}


@click.command()
@data_option
@lab_option
@click.option(
    "--keep-rule",
    type=click.Choice(list(KEEP_RULES)),
    default="confirmed",
    show_default=True,
    help="the rule",
)
@click.option(
    "--sigma",
    type=FiniteNumber(min=0),
    help="run-to-run standard deviation of the metric [default: measured from repeats of the same code]",
)
@click.option("--metric", help="the file's column of values [default: the one that its name tells]")
@click.option(
    "direction",
    "--maximize",
    flag_value="maximize",
    help="in a file, higher is better (a tag knows its direction)",
)
@click.option(
    "direction",
    "--minimize",
    flag_value="minimize",
    help="in a file, lower is better [default, if the metric's name tells]",
)
@json_option
@click.argument("what", metavar="FILE-OR-TAG")
def command(
    data: Path | None,
    lab: str | None,
    keep_rule: str,
    sigma: float | None,
    metric: str | None,
    direction: Direction | None,
    as_json: bool,
    what: str,
) -> None:
    """Judge the runs of a log, or of a tag of the running lab, again under a keep rule.

    A log is a table (TSV, CSV, Markdown) or JSON, one object a line.

    Prints the keeps that lie within noise, the gain that the record claims, and the runs that the rule would have
    kept at once, run again or discarded. Keeps are taken from the record; in a log without verdicts, new code that
    beat all before it counts as kept. Of a tag it says what the lab knows, unless --sigma is given. Changes nothing.
    """
    file = Path(what)
    with counting("reading the runs", "runs read"):
        if os.path.isfile(what):  # Path.is_file raises if the name is not a possible file name
            recorded = from_file(file, metric, direction)
        elif re.fullmatch(TAG_PATTERN, what) and file.suffix != ".tsv":
            recorded = from_lab(LabHttp(settings_from(data=data, lab=lab)), what)
        else:
            raise click.UsageError(f"there is no file {what!r}, and no tag can have that name")
    if sigma is not None:
        recorded = recorded.without_estimates()
    noise, source = _noise(recorded, sigma)
    if recorded.direction is None:
        raise Invalid(
            f"it is not said whether {DIRECTIONS.format(recorded.metric)}",
            hint="say --maximize or --minimize",
        )
    found = Replay([])
    with counting("judging the runs", "runs judged", len(recorded.runs)) as tell:
        for judged in replaying(recorded.runs, KEEP_RULES[keep_rule], noise, recorded.direction):
            found.judged.append(judged)
            tell(len(found.judged))
    if as_json:
        print_json(_document(what, keep_rule, recorded, noise, source, found))
    else:
        _show(what, keep_rule, recorded, noise, source, found)


def _noise(recorded: Recorded, sigma: float | None) -> tuple[Noise, str]:
    """The noise to judge by, and its source."""
    if sigma is not None:
        return Noise(sigma, MANY), "given"
    if recorded.noise is not None:
        found = recorded.noise
        source = f"measured by repeats, {found.df} degree{'s' if found.df > 1 else ''} of freedom"
    elif recorded.metric in BITS_PER_BYTE:
        source = (
            f"usual for {recorded.metric}, taken as known since nothing was repeated; --sigma sets another"
        )
        found = USUAL
    else:
        unsaid = (
            f", nor is it said whether {DIRECTIONS.format(recorded.metric)}"
            if recorded.direction is None
            else ""
        )
        raise Invalid(
            f"the noise of {recorded.metric} is unknown: no code was run twice{unsaid}",
            hint="give its standard deviation with --sigma",
        )
    floored = rounded(found, recorded.resolution)
    if floored.sigma > found.sigma:
        source += f"; raised to what values printed in steps of {recorded.resolution:g} hide"
    return floored, source


def _show(what: str, rule: str, recorded: Recorded, noise: Noise, source: str, found: Replay) -> None:
    kept = sum(run.kept for run in recorded.runs)
    show(
        f"{what}: {len(recorded.runs)} runs with a value, {kept} kept; "
        f"sigma of {recorded.metric} {figure(noise.sigma, noise.sigma)} ({source})"
    )
    better = "lower" if recorded.direction == "minimize" else "higher"
    show(f"Judged by {recorded.metric}: a {better} value is better.")
    if recorded.no_verdicts:
        show(
            f"It has no verdicts ({recorded.no_verdicts[:100]}): "
            "new code that beat all before it counts as kept"
        )
    record = "running best" if recorded.no_verdicts else "record"
    print_table(
        [
            Column("run"),
            *(Column(recorded.metric, right=True), Column("better by", right=True)),
            *(Column("in sigmas", right=True, spare=2), Column("P(better)", spare=1)),
            *(Column(record), Column(rule)),
            Column("description", text=20),
        ],
        [_row(judged, noise) for judged in found.judged if judged.run.kept or judged.differs],
    )
    for line in _summary(rule, found, _false_share(recorded, found), decimals(noise.sigma)):
        show(line)
    for name, reason, text in recorded.notes[:MOST_NOTES]:
        show(f"{name}: {reason}: {text[:80]}")
    if len(recorded.notes) > MOST_NOTES:
        show(f"and {len(recorded.notes) - MOST_NOTES} more like these: --json shows all")
    for reason, count in Counter(reason for _, reason, _ in recorded.skipped).items():
        names = [name for name, why, _ in recorded.skipped if why == reason]
        more = f" and {count - 5} more" if count > 5 else ""
        show(f"not judged, because {reason}: {', '.join(names[:5])}{more}")


def _row(judged: Judged, noise: Noise) -> tuple[str, ...]:
    run, margin = judged.run, judged.margin
    sigmas = "" if margin is None or not noise.sigma else f"{margin / noise.sigma:.1f}"
    digits = decimals(noise.sigma)
    sure = "" if judged.p_better is None else f"{judged.p_better:.2f}"
    verdict = {"retest": "run again"}.get(judged.verdict, judged.verdict)
    return (
        *(run.name, f"{run.value:.{digits}f}", "" if margin is None else f"{margin:+.{digits}f}", sigmas),
        f"{sure} within noise" if judged.within_noise else sure,
        *("keep" if run.kept else "discard", verdict, run.text),
    )


def _false_share(recorded: Recorded, found: Replay) -> float | None:
    return found.false_share if recorded.false_share is None else recorded.false_share


def _summary(rule: str, found: Replay, false_share: float | None, digits: int) -> list[str]:
    keeps = found.keeps
    if not keeps:
        return ["Nothing was kept after the first run."]
    noisy = sum(j.within_noise for j in keeps)
    lines = [
        f"Keeps after the first: {len(keeps)}. Within noise (P(better) under {SURE:.0%}): {noisy}. "
        f"Estimated to be false (not better than the best before): at least {false_share:.0%}.",
        f"The record claims {found.claimed:+.{digits}f}. Of its keeps, {rule}",
    ]
    for verdict, text in VERDICTS.items():
        if those := found.of(verdict):
            lines.append(f"  {text}: {len(those)}, which claim {_claim(those):+.{digits}f}")
    others = [j for j in found.judged if not j.run.kept and j.differs]
    if others:
        lines.append(f"  would have kept or run again {len(others)} of the discards")
    return lines


def _claim(those: list[Judged]) -> float:
    return math.fsum(j.margin or 0.0 for j in those)


def _document(
    what: str, rule: str, recorded: Recorded, noise: Noise, source: str, found: Replay
) -> dict[str, Any]:
    keeps = found.keeps
    return {
        "source": what,
        "keep_rule": rule,
        "metric": recorded.metric,
        "direction": recorded.direction,
        "keeps_from": "running best" if recorded.no_verdicts else "record",
        "sigma": noise.sigma,
        "sigma_from": source,
        "sigma_df": None if noise.df == MANY else noise.df,
        "runs": len(recorded.runs),
        "keeps": len(keeps),
        "within_noise": sum(j.within_noise for j in keeps),
        "false_share": _false_share(recorded, found),
        "claimed": found.claimed,
        "verdicts": {
            verdict: {"keeps": len(those), "claimed": _claim(those)}
            for verdict in VERDICTS
            for those in [found.of(verdict)]
        },
        "judged": [
            {
                **{name: value for name, value in asdict(j.run).items() if name not in ("code", "p_better")},
                "best": j.best,
                "margin": j.margin,
                "p_better": j.p_better,
                "within_noise": j.within_noise,
                "verdict": j.verdict,
                "differs": j.differs,
            }
            for j in found.judged
        ],
        "notes": [{"name": n, "reason": r, "text": t} for n, r, t in recorded.notes],
        "skipped": [{"name": n, "reason": r, "text": t} for n, r, t in recorded.skipped],
    }
