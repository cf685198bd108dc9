"""`nightjar replay` judges recorded runs again under a keep rule and shows which keeps may be noise."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from functions.experiments.rules.keeping import KEEP_RULES
from functions.experiments.rules.replaying import MANY, SURE, USUAL, Judged, Replay, ReplayVerdict, replaying
from functions.formats.digits import decimals, figure
from functions.formats.results_log import BITS_PER_BYTE
from functions.trust.rules.noise import rounded
from state.errors import Invalid
from state.facts import Noise
from state.ids import TAG_PATTERN
from state.records import Direction
from triggers.cli.counting import counting
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import Number, data_option, json_option, lab_option, settings_from
from triggers.cli.output import print_json, show
from triggers.cli.recorded import Recorded, from_file, from_lab
from triggers.cli.tables import Column, print_table

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
    type=Number(min=0),
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
