"""`nightjar replay` judges recorded runs again under a keep rule and shows which keeps may be noise."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from functions.formats.results_log import Remark, read_log
from functions.rules.keeps.keeping import KEEP_RULES
from functions.rules.keeps.noise import Noise
from functions.rules.keeps.replaying import MANY, SURE, USUAL, Judged, Replay, Run, Verdict, noise_of, replay
from functions.rules.keeps.verdict import Key, compare
from state.errors import Invalid, NotFound, Unavailable
from state.ids import TAG_PATTERN
from state.records import Direction
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import data_option, lab_option, settings_from
from triggers.cli.output import for_people, print_json, printable

PAGE = 1000
NO_VALUE = "it has no value"
MOST_NOTES = 20
VERDICTS: dict[Verdict, str] = {
    "keep": "keeps at once",
    "retest": "keeps provisionally and runs again",
    "confirmed": "confirms by the recorded repeats",
    "demoted": "demotes by the recorded repeats",
    "discard": "discards",
}
View = dict[str, Any]


@dataclass
class Recorded:
    """Recorded runs, those that were skipped, and remarks."""

    metric: str
    direction: Direction
    runs: list[Run] = field(default_factory=list)
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    """Run, reason, and its text; `notes` too."""
    notes: list[tuple[str, str, str]] = field(default_factory=list)


def _finite(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("it must be a finite number", context, parameter)
    return value


@click.command()
@data_option
@lab_option
@click.option("--keep-rule", type=click.Choice(list(KEEP_RULES)), default="confirmed", show_default=True)
@click.option(
    "--sigma",
    type=click.FloatRange(min=0),
    callback=_finite,
    help="run-to-run standard deviation of the metric [default: measured from repeats of the same code]",
)
@click.option("--metric", help="the file's column of values [default: val_bpb, or a similar name]")
@click.option("--maximize", is_flag=True, help="in a file, higher is better (a tag knows its direction)")
@click.option("--json", "as_json", is_flag=True)
@click.argument("what", metavar="FILE-OR-TAG")
def command(
    data: Path | None,
    lab: str | None,
    keep_rule: str,
    sigma: float | None,
    metric: str | None,
    maximize: bool,
    as_json: bool,
    what: str,
) -> None:
    """Judge the runs of a results.tsv, or of a tag of the running lab, again under a keep rule.

    Prints the keeps that lie within noise, the gain that the record claims, and the runs that the rule would have
    kept at once, run again or discarded. Keeps are taken from the record. Changes nothing.
    """
    file = Path(what)
    if os.path.isfile(what):  # Path.is_file raises if the name is not a possible file name
        recorded = _from_file(file, metric, "maximize" if maximize else "minimize")
    elif re.fullmatch(TAG_PATTERN, what) and file.suffix != ".tsv":
        recorded = _from_lab(LabHttp(settings_from(data=data, lab=lab)), what)
    else:
        raise click.UsageError(f"there is no file {what!r}, and no tag can have that name")
    noise, source = _noise(recorded, sigma)
    found = replay(recorded.runs, KEEP_RULES[keep_rule], noise, recorded.direction)
    if as_json:
        print_json(_document(what, keep_rule, recorded, noise, source, found))
    else:
        _show(what, keep_rule, recorded, noise, source, found)


def _from_file(file: Path, metric: str | None, direction: Direction) -> Recorded:
    try:
        raw = file.read_bytes()
    except OSError as problem:
        raise Unavailable(
            f"{str(file)!r} cannot be read: {problem.strerror}", hint="name a file that you may read"
        ) from problem
    log = read_log(raw, metric)
    recorded = Recorded(log.metric, direction)

    def told(remark: Remark) -> tuple[str, str, str]:
        return f"line {remark.line}", remark.reason, remark.text

    recorded.skipped += [told(remark) for remark in log.skipped]
    recorded.notes += [told(remark) for remark in log.notes]
    for row in log.rows:
        name, kept = f"line {row.line}", row.outcome == "keep"
        if row.outcome == "crash":
            recorded.skipped.append((name, f"its status is {row.said!r}", row.description))
        elif row.value is None:
            recorded.skipped.append((name, NO_VALUE, row.description))
        else:
            # agents also write one commit twice by mistake; only with the same text it is the same code
            code = (row.commit, row.description) if row.commit else None
            recorded.runs.append(Run(name, row.description, row.value, kept, code))
    return recorded


def _from_lab(http: LabHttp, tag: str) -> Recorded:
    shown = _tag(http, tag)
    recorded = Recorded(shown["metric"], shown["direction"])
    experiments = sorted(_history(http, tag), key=lambda e: (e["finished_at"] or "", e["number"]))
    main = Key()
    for e in experiments:
        name, text = e["experiment_id"], e["description"]
        if e["status"] not in ("keep", "discard"):
            recorded.skipped.append((name, f"its status is {e['status']!r}", text))
            continue
        whole, agrees = compare(main, Key(e["gpu_class"], e["evaluator_hash"], e["budget_seconds"]))
        if e["val_bpb"] is None:
            recorded.skipped.append((name, NO_VALUE, text))
        elif not agrees:
            reason = "its GPU class, evaluator or budget differs from the tag's first run"
            recorded.skipped.append((name, reason, text))
        else:
            main = whole
            code = (e["commit_sha"], json.dumps(e["config_delta"], sort_keys=True))
            recorded.runs.append(Run(name, text, e["val_bpb"], e["status"] == "keep", code))
    return recorded


def _tag(http: LabHttp, tag: str) -> View:
    offset = 0
    while True:
        page = http.ask("GET", f"/api/report/tags?limit={PAGE}&offset={offset}")
        for shown in page["tags"]:
            if shown["name"] == tag:
                found: View = shown
                return found
        offset += PAGE
        if offset >= page["total"]:
            hint = "./nightjar status shows the lab's tags"
            raise NotFound(f"there is no file {tag!r} and no such tag in the lab", hint=hint)


def _history(http: LabHttp, tag: str) -> list[View]:
    found: list[View] = []
    cursor: int | None = None
    while True:
        body = {"tag": tag, "order": "oldest", "limit": PAGE, "cursor": cursor}
        page = http.ask("POST", "/api/experiment/history", body)
        found += page["experiments"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def _noise(recorded: Recorded, sigma: float | None) -> tuple[Noise, str]:
    """The noise to judge by, and its source."""
    if sigma is not None:
        return Noise(sigma, MANY), "given"
    if measured := noise_of(recorded.runs):
        return measured, f"measured by repeats, {measured.df} degrees of freedom"
    if recorded.metric == "val_bpb":
        return USUAL, "usual for val_bpb, since nothing was repeated; --sigma sets another"
    raise Invalid(
        f"the noise of {recorded.metric} is unknown: no code was run twice",
        hint="give its standard deviation with --sigma",
    )


def _show(what: str, rule: str, recorded: Recorded, noise: Noise, source: str, found: Replay) -> None:
    console = for_people()
    kept = sum(run.kept for run in recorded.runs)
    console.print(
        f"{printable(what)}: {len(recorded.runs)} runs with a value, {kept} kept; "
        f"sigma of {printable(recorded.metric)} {noise.sigma:.6g} ({source})"
    )
    table = Table(
        "run", recorded.metric, "better by", "in sigmas", "P(better)", "record", rule, "description"
    )
    for judged in found.judged:
        if judged.run.kept or judged.differs:
            table.add_row(*_row(judged, noise))
    console.print(table)
    for line in _summary(rule, found):
        console.print(line)
    for name, reason, text in recorded.notes[:MOST_NOTES]:
        console.print(f"{name}: {reason}: {printable(text)[:80]}")
    if len(recorded.notes) > MOST_NOTES:
        console.print(f"and {len(recorded.notes) - MOST_NOTES} more like these: --json shows all")
    for reason, count in Counter(reason for _, reason, _ in recorded.skipped).items():
        names = [name for name, why, _ in recorded.skipped if why == reason]
        more = f" and {count - 5} more" if count > 5 else ""
        console.print(f"not judged, because {reason}: {', '.join(names[:5])}{more}")


def _row(judged: Judged, noise: Noise) -> tuple[str, ...]:
    run, margin = judged.run, judged.margin
    sigmas = "" if margin is None or not noise.sigma else f"{margin / noise.sigma:.1f}"
    sure = "" if judged.p_better is None else f"{judged.p_better:.2f}"
    verdict = {"retest": "run again"}.get(judged.verdict, judged.verdict)
    return (
        *(run.name, f"{run.value:.6f}", "" if margin is None else f"{margin:+.6f}", sigmas),
        f"{sure} within noise" if judged.within_noise else sure,
        *("keep" if run.kept else "discard", verdict, printable(run.text)[:60]),
    )


def _summary(rule: str, found: Replay) -> list[str]:
    keeps = found.keeps
    if not keeps:
        return ["Nothing was kept after the first run."]
    noisy = sum(j.within_noise for j in keeps)
    lines = [
        f"Keeps after the first: {len(keeps)}. Within noise (P(better) under {SURE:.0%}): {noisy}. "
        f"Estimated to be false (not better than the best before): at least {found.false_share:.0%}.",
        f"The record claims {found.claimed:+.6f}. Of its keeps, {rule}",
    ]
    for verdict, text in VERDICTS.items():
        if those := found.of(verdict):
            lines.append(f"  {text}: {len(those)}, which claim {_claim(those):+.6f}")
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
        "sigma": noise.sigma,
        "sigma_from": source,
        "sigma_df": None if noise.df == MANY else noise.df,
        "runs": len(recorded.runs),
        "keeps": len(keeps),
        "within_noise": sum(j.within_noise for j in keeps),
        "false_share": found.false_share,
        "claimed": found.claimed,
        "verdicts": {
            verdict: {"keeps": len(those), "claimed": _claim(those)}
            for verdict in VERDICTS
            for those in [found.of(verdict)]
        },
        "judged": [
            {
                **{name: value for name, value in asdict(j.run).items() if name != "code"},
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
