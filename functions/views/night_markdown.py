"""A night's results as Markdown, fit for a pull request.

Words of agents and errors stand in code spans and fences: there they are no links, no mentions and no HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from functions.rules.search.suggestions import short
from functions.views.nights import NightView, StepView, figure

MOST_POINTS = 40
"""Keeps in the chart."""
OF_AGENTS = "and is against what the experiment was made from, on the same seeds."
OF_SWARM = (
    "and is against the best before it. No run was made from another: each is its worker's unchanged train.py with a"
    " config of its own."
)
"""What a gain is against."""


def markdown(night: NightView, picture: str | None) -> str:
    """The whole report. `picture` names the file of the plot; without it the keeps are drawn as a chart."""
    return "\n".join(_lines(night, picture))


def _lines(night: NightView, picture: str | None) -> Iterator[str]:
    yield f"# {night.tag}: {_first_words(night)}"
    yield f"\n{_headline(night)}\n"
    if picture is not None:
        yield f"![{night.metric} of every experiment, and the best so far]({picture})\n"
    else:
        yield from _chart(night)
    yield from _chain(night)
    yield from _changes(night.chain)
    yield from _failed(night)
    yield from _untried(night)
    yield from _limits(night)


def _first_words(night: NightView) -> str:
    if night.best is None:
        return "nothing was kept yet"
    if night.chain[-1:] and night.chain[-1].baseline:
        return "nothing beat the baseline yet"
    if night.first is None or night.last is None:
        return f"{night.metric} {figure(night.best)}"
    return f"{night.metric} {figure(night.first)} -> {figure(night.last)}"


def _headline(night: NightView) -> str:
    """The headline; its last words come from an agent and are shown as code."""
    told, biggest, words = night.headline.partition(" Biggest: ")
    return f"{told}{biggest}{code(words.removesuffix('.'))}." if biggest else told


def _chart(night: NightView) -> Iterator[str]:
    """The values of the chain, as GitHub and GitLab draw them (Mermaid)."""
    drawn = [step for step in night.chain if step.val_bpb is not None][-MOST_POINTS:]
    if len(drawn) < 2:
        return
    names = ", ".join(f'"{step.experiment_id}"' for step in drawn)
    values = ", ".join(f"{step.val_bpb:.6g}" for step in drawn)
    yield "```mermaid\nxychart-beta"
    yield f'    title "{night.metric} of each keep"'
    yield f"    x-axis [{names}]"
    yield f"    line [{values}]\n```\n"


def _chain(night: NightView) -> Iterator[str]:
    if not night.chain:
        return
    yield "## What was kept\n"
    above = "better than" if night.by_delta else "made from"
    yield f"| experiment | {above} | {night.metric} | gain | how sure | what |"
    yield "|---|---|---|---|---|---|"
    for step in night.chain:
        value = "" if step.val_bpb is None else figure(step.val_bpb)
        gain = "" if step.gain is None else f"{step.gain:+.6f}"
        sure = "baseline" if step.baseline else step.trust or ""
        sure = ", ".join(filter(None, (sure, "hung" if step.hung else "")))
        above = step.above or ("its baseline" if night.by_delta else "base commit")
        yield f"| {step.experiment_id} | {above} | {value} | {gain} | {sure} | {code(step.description)} |"
    yield f"\nA gain above zero is better, {OF_SWARM if night.by_delta else OF_AGENTS}\n"


def _changes(chain: Sequence[StepView]) -> Iterator[str]:
    changed = [step for step in chain if step.change]
    if changed:
        yield "## What each changed\n"
    for step in changed:
        assert step.change is not None
        fence = "`" * max(3, 1 + _longest_run(step.change))
        yield f"**{step.experiment_id}** on {step.above or 'the base commit'}\n"
        yield f"{fence}diff\n{step.change}\n{fence}\n"


def _failed(night: NightView) -> Iterator[str]:
    if night.failures:
        yield "## What failed\n\n| kind | runs | the newest | why |\n|---|---|---|---|"
        for failure in night.failures:
            yield (
                f"| {failure.kind} | {failure.count} | {failure.experiment_id} {code(failure.description)}"
                f" | {code(failure.error)} |"
            )
        yield ""
    if night.near_misses:
        yield "## What came close\n\n| experiment | value | what |\n|---|---|---|"
        for e in night.near_misses:
            yield f"| {e['experiment_id']} | {figure(e.get('delta_bpb', e['val_bpb']))} | {code(e['description'])} |"
        yield ""


def _untried(night: NightView) -> Iterator[str]:
    if night.categories:
        tried = sorted(night.categories.items(), key=lambda each: -each[1]["total"])
        yield f"## What was tried{', and what never' if night.never_tried else ''}\n"
        yield ", ".join(f"{code(name)} {n['total']} ({n['kept']} kept)" for name, n in tried) + "."
    if night.never_tried:
        yield f"Never: {', '.join(night.never_tried)}."


def _limits(night: NightView) -> Iterator[str]:
    if night.limits:
        yield "\n## Usage limits\n\n| agent | times | the last from | started again at | it printed |"
        yield "|---|---|---|---|---|"
        for limit in night.limits:
            yield f"| {limit.agent} | {limit.times} | {limit.since} | {limit.until} | {code(limit.said)} |"


def code(text: str) -> str:
    """One line of untrusted text as a code span, safe in a table."""
    apart = re.sub(r"\\(?=\|)", r"\\ ", short(text, 200))  # a backslash before a bar would end the cell
    line = apart.replace("|", "\\|")
    if not line:
        return ""
    fence = "`" * (1 + _longest_run(line))
    edge = " " if len(fence) > 1 else ""
    return f"{fence}{edge}{line}{edge}{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
