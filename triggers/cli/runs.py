"""Experiments on the command line: the tag, and texts of values, gains and outcomes."""

from __future__ import annotations

import itertools
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from functions.formats.digits import DECIMALS, decimals
from functions.formats.metrics_block import remedies_in
from state.errors import NotFound
from triggers.cli.lab_http import LabHttp
from triggers.cli.tables import Column, print_table

Run = Mapping[str, Any]

AT_ONCE = 1000
"""Most tags, or experiments, in one answer."""
MOST_NAMED = 20
MOST_REMEDIES = 3
_CHANGES = (
    *("finished", "lost", "retested", "confirmed", "revalued", "demoted", "promoted", "refuted"),
    *("retracted", "unconfirmed"),
)
TELLS_RESULT = frozenset(f"experiment.{change}" for change in _CHANGES)
"""Types of events that end an experiment or change its verdict."""


def path_of(experiment: str, *more: str) -> str:
    """The path of an experiment in the API."""
    return "/".join(("/api/experiment", urllib.parse.quote(experiment, safe=""), *more))


def the_tag(http: LabHttp, tag: str | None, *, among_several: str | None = None) -> str:
    """The named tag, else the lab's only one, else `among_several`.

    Raises:
        NotFound: it has none, or the one that was named is not among them. click.UsageError: it has several.
    """
    names = names_of_tags(http)
    if tag is not None and tag not in names:
        raise NotFound(f"there is no tag {tag!r}", hint=f"the lab has {_listed(names) or 'none yet'}")
    if tag is not None:
        return tag
    match names:
        case []:
            raise NotFound("the lab has no tag yet", hint="open one: ./nightjar setup NAME")
        case [only]:
            return str(only)
        case _ if among_several in names:
            return among_several
        case _:
            raise click.UsageError(f"the lab has several tags, name one: {_listed(names)}")


Ask = Callable[[str, str, Mapping[str, Any] | None], Any]
"""`LabHttp.ask`."""


def names_of_tags(http: LabHttp) -> list[str]:
    """The names of all tags, the newest first."""
    return [tag["name"] for tag in tags_of(http.ask)]


def tags_of(ask: Ask) -> Iterator[dict[str, Any]]:
    """All tags of the lab, the newest first."""
    offset, total = 0, 1
    while offset < total:
        page = ask("GET", f"/api/report/tags?limit={AT_ONCE}&offset={offset}", None)
        yield from page["tags"]
        offset, total = offset + AT_ONCE, page["total"]


def pages_of(ask: Ask, tag: str, fields: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """All experiments of a tag by number, with these fields or all; those that have not ended, too."""
    asked = {"tag": tag, "order": "oldest", "limit": AT_ONCE, "cursor": None, "fields": fields}
    while True:
        page = ask("POST", "/api/experiment/history", asked)
        yield page
        if page["next_cursor"] is None:
            return
        asked["cursor"] = page["next_cursor"]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def outcome(run: Run) -> str:
    """The status, the trust of a keep, and whether it hung. A first run beat nothing: it is not called a keep."""
    return f"{_judged(run)}, hung" if run["hung"] else _judged(run)


def _judged(run: Run) -> str:
    if run["baseline"]:
        return "baseline" if run["status"] == "keep" else f"baseline: {run['status']}"
    if run["trust"] == "first":
        return "first"
    if run["claimed"]:
        return f"{run['status']}, claimed"
    return f"{run['status']}, {run['trust']}" if run["trust"] else str(run["status"])


def is_of_swarm(run: Run) -> bool:
    """Whether a swarm's worker ran it: its config is all that it changed."""
    return run["worker_id"] is not None


def digits_of(http: LabHttp, tag: str) -> int:
    """Decimals of a tag's values and gains."""
    return decimals(http.ask("POST", "/api/report/runs", {"tag": tag, "limit": 1})["sigma"])


def value(run: Run, digits: int = DECIMALS) -> str:
    """The value that it is judged by, or nothing. A difference to its worker's baseline has a sign."""
    own = run["delta_bpb"] if by_delta(run) else run["val_bpb"]
    found = own if run["judged_val_bpb"] is None else run["judged_val_bpb"]
    if found is None:
        return ""
    return f"{found:+.{digits}f}" if by_delta(run) else f"{found:.{digits}f}"


def measured(run: Run, digits: int = DECIMALS) -> str:
    """The printed value of a run that is judged by its difference to a baseline; nothing for others."""
    return f"{run['val_bpb']:.{digits}f}" if by_delta(run) and run["val_bpb"] is not None else ""


def by_delta(run: Run) -> bool:
    """Whether it is judged by its difference to its worker's baseline."""
    return run["delta_bpb"] is not None and not run["by_value"]


def newest_remedies(runs: Sequence[Run]) -> dict[str, Run]:
    """Remedies for runs that failed after the last result, each with its newest run. Runs come oldest first."""
    failed = [*itertools.takewhile(lambda run: run["val_bpb"] is None, reversed(runs))]
    told = {remedy: run for run in reversed(failed) for remedy in remedies_in(run["error"] or "")}
    return dict([*told.items()][-MOST_REMEDIES:])


def signed(gain: float | None, digits: int = DECIMALS) -> str:
    """A gain with its sign, or nothing. Below zero is worse."""
    return "" if gain is None else f"{gain:+.{digits}f}"


def gain_in_words(run: Run, gain: Mapping[str, Any] | None, digits: int = DECIMALS) -> str:
    """The gain of an experiment and the compared runs; empty without a gain."""
    if gain is None:
        return ""
    best = run["compared_with"] or "the baseline"
    runs = "one run of each"
    if gain["runs"]:
        runs = (
            f"by {gain['runs']} further {'run' if gain['runs'] == 1 else 'runs'} of each, on the same seeds"
        )
    return f"{signed(gain['by'], digits)} beside {best} ({runs}; above zero is better)"


def print_runs(runs: Sequence[Run], gains: Mapping[str, float], digits: int = DECIMALS) -> None:
    """Print a line for each; `gains` by id."""
    shows_both = any(map(measured, runs))
    numbers = ("delta_bpb", "val_bpb", "gain") if shows_both else ("value", "gain")
    print_table(
        [
            *map(Column, ("experiment", "outcome")),
            *(Column(name, right=True) for name in numbers),
            Column("what", text=20),
        ],
        [
            (
                *(run["experiment_id"], outcome(run), value(run, digits)),
                *((measured(run, digits),) if shows_both else ()),
                *(signed(gains.get(run["experiment_id"]), digits), run["description"]),
            )
            for run in runs
        ],
    )
