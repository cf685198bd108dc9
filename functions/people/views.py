"""A night's results, and the same as Markdown, fit for a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from functions.experiments.rules.gains import ChainStep, Gain, gain_over, unbiased
from functions.experiments.views.runs import sketch_view
from functions.formats.digits import decimals, figure
from functions.formats.markdown import code, longest_fence, table, text_of
from functions.formats.metrics_block import deciding_line
from functions.kernel.contract import CATEGORIES
from functions.search.rules.suggestions import short
from functions.trust.rules.discoveries import RATE, discoveries
from functions.trust.rules.retests import own_noise
from state.facts import Noise, Runs
from state.records import (
    Certificate,
    Distillation,
    Experiment,
    FailureRecord,
    KeepRecord,
    OneRun,
    Result,
    Sketch,
    Tag,
    Transfer,
    stamp,
    view_of,
)
from state.reports import NightFacts

# -- A night's results: progress, chain of keeps, failures and untried categories.

CAUSE = 160
"""Longest cause of a failure, in characters."""


class StepView(BaseModel):
    """A keep on the way to the best."""

    experiment_id: str
    above: str | None
    """The keep whose code it changed; None: the tag's base commit. For a swarm's run: the best before it; None: its
    worker's baseline."""
    val_bpb: float | None
    gain: float | None
    """Gain over that one, on the same seeds; above zero is better."""
    baseline: bool
    trust: str | None
    """Evidence for the keep, such as first or confirmed."""
    hung: bool
    """It hung after it had printed its result, and its worker ended it."""
    agent: str | None
    description: str
    change: str | None
    """Lines that it added (+) and removed (-); None: not known, or not asked for."""


class FailureView(BaseModel):
    """Runs with the same failure."""

    kind: str
    """`oom`, `patch`, `timeout`, ...; else the status."""
    count: int
    experiment_id: str
    """The newest of them."""
    description: str
    error: str
    """The last line of its error."""


class LimitView(BaseModel):
    """The newest usage limit that an agent of `nightjar agent` has met."""

    agent: str
    times: int
    """How many limits it has met."""
    since: str
    until: str
    """Time of its restart."""
    said: str
    """The line that it printed."""


class NightView(BaseModel):
    """A tag's results for people in the morning."""

    tag: str
    metric: str
    """Name of the values; `delta_bpb` if the best is a delta from its worker's baseline."""
    direction: str
    by_delta: bool
    """Whether its runs are a swarm's, judged by their delta from their worker's baseline."""
    base_commit: str | None
    """The tag's base commit, which every patch is against."""
    headline: str
    """Summary in a few sentences."""
    first: float | None
    """The baseline on the seeds of `gain`, else the first keep in the chain; 0 for a swarm."""
    last: float | None
    """The best on the same seeds."""
    best: float | None
    """The best's unbiased value: the mean of its further runs, else its value."""
    first_seen: float | None
    """The best's value in the run for which it was kept."""
    further_runs: int
    """Number of runs in the mean `best`; 0: the first run alone."""
    gain: float | None
    """Gain from `first` to `last`, above zero is better; None: they share no seed."""
    gain_runs: int | None
    """Number of further runs in the means `first` and `last`; 0: one run of each."""
    sigma: float | None
    """Run-to-run standard deviation on the tag's main class of GPU; None while no code ran twice there."""
    best_experiment_id: str | None
    commit_sha: str | None
    ideas: int
    """Finished experiments, the baseline aside."""
    kept: int
    demoted: int
    """Lucky wins among the newest 1,000 discards: kept at first, then worse in a further run."""
    contended: int
    """Runs, retests too, of which another program slowed an attempt down; they ran again."""
    gpu_hours: float
    runs_an_hour: float | None
    """Rate of the last 30 finished runs; None until they span a minute."""
    last_keep_at: str | None
    """When the newest keep except the baseline finished."""
    chain: list[StepView]
    """From the first keep to the best."""
    holds: list[str] | None
    """Keeps of the chain that hold at a false discovery rate of 10 %, whenever one looks. Each is better than the one
    before it, and the first than `baseline`, else than the first keep. None: a swarm, or the noise is not known."""
    holds_said: str
    """The same as a sentence; empty where there is nothing to say."""
    failures: list[FailureView]
    """Among the newest 50 of each status, the most frequent first."""
    near_misses: list[dict[str, Any]]
    categories: dict[str, dict[str, int]]
    never_tried: list[str]
    """Categories without a finished experiment; empty for a swarm, which varies only constants."""
    limits: list[LimitView]
    """The newest limit of each agent, by name."""
    certificates: list[Certificate]
    """The newest certificate of each candidate, oldest first."""
    distilled: Distillation | None
    """The newest distillation: which changes of a chain of keeps still matter."""
    transfers: list[Transfer]
    """Whether gains of keeps hold at longer budgets, oldest first."""


def night_view(
    facts: NightFacts,
    near: Sequence[Sketch],
    steps: Sequence[ChainStep],
    runs: Mapping[str, Runs[OneRun]],
    changes: Mapping[str, str | None],
) -> NightView:
    """The night; `runs` are those of the baseline and of the keeps in the chain, `changes` the keeps' own, by id."""
    tag, best = facts.tag, facts.best
    value, further = unbiased(best)
    noise = facts.noise.noise
    by_delta = any(e.by_delta for e in facts.recent) if best is None else best.experiment.by_delta

    def gain(before: str | None, after: str) -> Gain | None:
        if after not in runs or (before not in runs if before else not by_delta):
            return None
        return gain_over(runs[before] if before else None, runs[after], tag.direction)

    begin = None if by_delta else _begin(tag, steps, runs)
    whole = gain(begin, best.experiment.experiment_id) if best else None
    gains = [
        gain(step.above.experiment_id if step.above else None, step.keep.experiment_id) for step in steps
    ]
    chain = [
        _step(step, its, changes.get(step.keep.experiment_id)) for step, its in zip(steps, gains, strict=True)
    ]
    sure = own_noise(noise, facts.seeds)
    later = [step.keep for step in steps if not step.keep.baseline and step.keep.experiment_id != begin]
    holds = _holds(begin, later, facts.tested, gain, sure) if begin and sure else None
    return view_of(
        NightView,
        tag,
        tag=tag.name,
        metric="delta_bpb" if by_delta else tag.metric,
        by_delta=by_delta,
        headline=headline(
            tag, whole, value, further, best, facts.demoted, chain, noise.sigma if noise else None
        ),
        first=whole.before if whole else None,
        last=whole.after if whole else None,
        best=value,
        first_seen=best.experiment.own_value if best else None,
        further_runs=further,
        gain=whole.by if whole else None,
        gain_runs=whole.runs if whole else None,
        sigma=noise.sigma if noise else None,
        best_experiment_id=best.experiment.experiment_id if best else None,
        commit_sha=best.experiment.commit_sha if best else None,
        ideas=tag.total - tag.baselines,
        demoted=facts.demoted,
        gpu_hours=tag.spent_gpu_seconds / 3600,
        runs_an_hour=_pace(facts.recent),
        last_keep_at=_last_keep(facts.keeps),
        chain=chain,
        holds=holds,
        holds_said=_holds_said(holds, begin, later) if begin and holds is not None else "",
        failures=_failures(facts.failures),
        near_misses=[sketch_view(e) for e in near],
        categories={name: {"total": total, "kept": kept} for name, (total, kept) in facts.categories.items()},
        never_tried=[
            name for name in CATEGORIES if name != "other" and name not in facts.categories and not by_delta
        ],
        limits=[
            view_of(LimitView, limit, since=stamp(limit.since), until=stamp(limit.until))
            for limit in sorted(facts.limits, key=lambda limit: limit.agent)
        ],
        certificates=sorted(facts.certificates, key=lambda one: one.begun_at),
        distilled=max(facts.distillations, key=lambda one: one.begun_at, default=None),
        transfers=sorted(facts.transfers, key=lambda one: one.begun_at),
    )


def headline(
    tag: Tag,
    gain: Gain | None,
    value: float | None,
    further: int,
    best: Runs[Experiment] | None,
    demoted: int,
    chain: Sequence[StepView],
    sigma: float | None,
) -> str:
    """Summary in a few sentences."""
    if value is None or best is None:
        return f"Nothing was kept yet. {_counts(tag, demoted)}."
    seen = (
        "" if best.experiment.own_value is None else f"first seen {figure(best.experiment.own_value, sigma)}"
    )
    runs = "run on another seed" if further == 1 else "runs on other seeds"
    sure = f" (claimed: mean of {further} more {runs}; {seen})" if further else " (one run)"
    if best.experiment.baseline:
        return f"Nothing beat the baseline yet, {figure(value, sigma)}{sure}. {_counts(tag, demoted)}."
    told = f"{figure(value, sigma)}{sure}, on no seed of the baseline"
    if gain is not None:
        more = "1 more run" if gain.runs == 1 else f"{gain.runs} more runs"
        each = "" if best.experiment.by_delta else " of each"
        how = f"mean of {more}{each}; {seen}" if gain.runs else "one run"
        claimed = f"; {figure(value, sigma)}{sure}" if further and not gain.runs else ""
        told = f"{figure(gain.before, sigma)} -> {figure(gain.after, sigma)} ({how}){claimed}"
    told = f"{told}. {_counts(tag, demoted)}."
    gains = [step for step in chain if step.gain is not None]
    if gains:
        biggest = max(gains, key=lambda step: step.gain or 0.0)
        told += f" Biggest: {short(biggest.description, 80)}."
    return told


def _begin(tag: Tag, steps: Sequence[ChainStep], runs: Mapping[str, Runs[OneRun]]) -> str | None:
    """The baseline; where it has no value, the first keep in the chain."""
    baseline = runs.get(tag.baseline_id or "")
    if baseline is not None and baseline.experiment.status == "keep":
        return tag.baseline_id
    return steps[0].keep.experiment_id if steps else None


def _holds(
    begin: str,
    later: Sequence[KeepRecord],
    tested: Sequence[int],
    gain: Callable[[str, str], Gain | None],
    noise: Noise,
) -> list[str]:
    """The keeps after `begin` that hold. `tested` are the numbers of all that were kept once or ran again."""
    first = int(begin.rpartition("-")[2])
    places = {number: place for place, number in enumerate((n for n in tested if n != first), 1)}
    return discoveries(begin, [(e.experiment_id, places[e.number]) for e in later], gain, noise)


def _holds_said(holds: Sequence[str], begin: str, later: Sequence[KeepRecord]) -> str:
    """A sentence on the keeps that hold, and what shows it for the best; empty without a keep."""
    if not later:
        return ""
    rate, best, newest = f"At a false discovery rate of {100 * RATE:.0f} %", later[-1].experiment_id, begin
    of = f"{len(later)} keep{'s' if len(later) > 1 else ''}"
    told = f"{rate}, {f'none of {of} holds' if len(later) > 1 else 'the only keep does not hold'} yet."
    if holds:
        newest, verb = holds[-1], "hold" if len(holds) > 1 else "holds"
        chain = " Each is better than the one before it" if len(holds) > 1 else " It is better"
        first = f", and {holds[0]} than {begin}." if len(holds) > 1 else f" than {begin}."
        told = f"{rate}, {len(holds)} of {of} {verb}, whenever you look: {', '.join(holds)}.{chain}{first}"
    return told if newest == best else f"{told} Retests of {best} and {newest} can show it for the best."


def _counts(tag: Tag, demoted: int) -> str:
    lucky = f", {demoted} lucky {'win' if demoted == 1 else 'wins'} caught" if demoted else ""
    what = "CPU" if (tag.key_gpu_class or "").startswith("cpu") else "GPU"
    spent = tag.spent_gpu_seconds
    used = f"{spent / 3600:.2f} {what} hours" if spent >= 360 else f"{spent / 60:.1f} {what} minutes"
    tried = tag.total - tag.baselines
    ideas = "1 idea" if tried == 1 else f"{tried} ideas"
    return f"{ideas}, {tag.kept} kept{lucky}, {used}"


def _step(step: ChainStep, gain: Gain | None, change: str | None) -> StepView:
    keep = step.keep
    return view_of(
        StepView,
        keep,
        above=step.above.experiment_id if step.above else None,
        val_bpb=keep.judged,
        gain=gain.by if gain else None,
        description=short(keep.description, 120),
        change=change,
    )


_SHORTEST_S = 60.0
"""Span of finished runs from which a rate is told: seconds make it any number."""


def _pace(recent: Sequence[Result]) -> float | None:
    """Finished runs an hour, from the first to the last of these."""
    times = [e.finished_at for e in recent if e.finished_at is not None]
    spread = max(times) - min(times) if len(times) > 1 else 0.0
    return 3600 * (len(times) - 1) / spread if spread >= _SHORTEST_S else None


def _last_keep(keeps: Sequence[KeepRecord]) -> str | None:
    times = [e.finished_at for e in keeps if e.finished_at is not None and not e.baseline]
    return stamp(max(times)) if times else None


def _failures(failures: Sequence[FailureRecord]) -> list[FailureView]:
    """One for each kind, with its newest run."""
    kinds = [e.error_kind or e.status for e in failures]
    newest = dict(zip(reversed(kinds), reversed(failures), strict=True))
    return [
        FailureView(
            kind=kind,
            count=count,
            experiment_id=newest[kind].experiment_id,
            description=short(newest[kind].description, 120),
            error=short(deciding_line(newest[kind].error or "", kind) or "nothing is known of it", CAUSE),
        )
        for kind, count in Counter(kinds).most_common()
    ]


# -- A night's results as Markdown, fit for a pull request.
#
# Words of agents and errors stand in code spans and fences: there they are no links, no mentions and no HTML.

MOST_POINTS = 40
"""Keeps in the chart."""
OF_AGENTS = "and is against what the experiment was made from, on the same seeds."
OF_SWARM = (
    "and is against the best before it. No run was made from another: each is its worker's unchanged train.py with a"
    " config of its own."
)
"""What a gain is against."""


@text_of
def markdown(night: NightView, picture: str | None) -> Iterator[str]:
    """The whole report. `picture` names the file of the plot; without it the keeps are drawn as a chart."""
    yield f"# {night.tag}: {_first_words(night)}"
    yield f"\n{_headline(night)}\n"
    if picture is not None:
        yield f"![{night.metric} of every experiment, and the best so far]({picture})\n"
    else:
        yield from _chart(night)
    yield from _chain(night)
    yield from _certificates(night)
    yield from _transfers(night)
    yield from _distilled(night)
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
        return f"{night.metric} {figure(night.best, night.sigma)}"
    return f"{night.metric} {figure(night.first, night.sigma)} -> {figure(night.last, night.sigma)}"


def _headline(night: NightView) -> str:
    """The headline; its last words come from an agent and are shown as code."""
    told, biggest, words = night.headline.partition(" Biggest: ")
    return f"{told}{biggest}{code(words.removesuffix('.'))}." if biggest else told


def _chart(night: NightView) -> Iterator[str]:
    """The values of the chain, as GitHub and GitLab draw them (Mermaid)."""
    drawn = [(step.experiment_id, step.val_bpb) for step in night.chain if step.val_bpb is not None][
        -MOST_POINTS:
    ]
    if len(drawn) < 2:
        return
    names = ", ".join(f'"{name}"' for name, _ in drawn)
    values = ", ".join(figure(value, night.sigma) for _, value in drawn)
    yield "```mermaid\nxychart-beta"
    yield f'    title "{night.metric} of each keep"'
    yield f"    x-axis [{names}]"
    yield f"    line [{values}]\n```\n"


def _chain(night: NightView) -> Iterator[str]:
    if not night.chain:
        return
    made_from, no_other = ("better than", "its baseline") if night.by_delta else ("made from", "base commit")
    names = ("experiment", made_from, night.metric, "gain", "how sure", "what")
    yield "## What was kept\n"
    yield from table(names, (_kept(step, night.sigma, no_other) for step in night.chain))
    yield f"\nA gain above zero is better, {OF_SWARM if night.by_delta else OF_AGENTS}\n"
    if night.holds_said:
        yield f"{night.holds_said}\n"


def _kept(step: StepView, sigma: float | None, no_other: str) -> Sequence[str]:
    sure = "baseline" if step.baseline else step.trust or ""
    return (
        *(step.experiment_id, step.above or no_other),
        "" if step.val_bpb is None else figure(step.val_bpb, sigma),
        "" if step.gain is None else f"{step.gain:+.{decimals(sigma)}f}",
        *(", ".join(filter(None, (sure, "hung" if step.hung else ""))), code(step.description)),
    )


def _section(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A table under its title; nothing without rows."""
    if rows:
        yield f"## {title}\n"
        yield from table(names, rows)
        yield ""


def _certificates(night: NightView) -> Iterator[str]:
    names = ("experiment", "against", "verdict", "margin", "alpha", "pairs", "e-value")
    rows = [
        (
            *(one.experiment_id, one.against, one.state, f"{one.min_gain:.6g}", f"{one.alpha:.6g}"),
            *(len(one.counted), f"{one.e_value:.6g}"),
        )
        for one in night.certificates
    ]
    yield from _section("Certificates", names, rows)


def _transfers(night: NightView) -> Iterator[str]:
    names = ("keep", "against", "seconds", "gain", "seconds", "gain", "pairs", "verdict")
    rows = [
        (
            *(one.experiment_id, one.against, f"{one.own_budget_s:g}", f"{one.gain:+.3g}"),
            *(f"{one.budget_s:g}", "" if one.longer_gain is None else f"{one.longer_gain:+.3g}"),
            *(one.pairs, one.state),
        )
        for one in night.transfers
    ]
    yield from _section("At a longer budget", names, rows)


def _distilled(night: NightView) -> Iterator[str]:
    if (one := night.distilled) is None:
        return
    kept = [change for change in one.changes if change.stays]
    yield "## Distilled\n"
    if one.state == "done":
        yield (
            f"{len(kept)} of {len(one.changes)} changes up to {one.best} have its score ({one.loss or 0.0:+.3g},"
            f" above zero is worse): {one.smallest}, {len(one.parts)} independent changes, {one.runs} runs.\n"
        )
    else:
        yield f"{one.state}, {one.runs} of {one.most_runs} runs in {one.into}. {one.reason}\n"
    rows = (
        (
            *(change.experiment_id, code(change.description), change.lines),
            *("" if change.loss is None else f"{change.loss:+.3g}", change.state),
        )
        for change in one.changes
    )
    yield from table(("keep", "change", "lines", "without it", "verdict"), rows)
    yield ""


def _changes(chain: Sequence[StepView]) -> Iterator[str]:
    changed = [step for step in chain if step.change]
    if changed:
        yield "## What each changed\n"
    for step in changed:
        assert step.change is not None
        fence = "`" * max(3, 1 + longest_fence(step.change))
        yield f"**{step.experiment_id}** on {step.above or 'the base commit'}\n"
        yield f"{fence}diff\n{step.change}\n{fence}\n"


def _failed(night: NightView) -> Iterator[str]:
    if night.contended:
        runs = "1 run was" if night.contended == 1 else f"{night.contended} runs were"
        yield f"{runs} slowed down by another program, and ran again.\n"
    failed = [
        (each.kind, each.count, f"{each.experiment_id} {code(each.description)}", code(each.error))
        for each in night.failures
    ]
    yield from _section("What failed", ("kind", "runs", "the newest", "why"), failed)
    close = [
        (e["experiment_id"], figure(e.get("delta_bpb", e["val_bpb"]), night.sigma), code(e["description"]))
        for e in night.near_misses
    ]
    yield from _section("What came close", ("experiment", "value", "what"), close)


def _untried(night: NightView) -> Iterator[str]:
    if night.categories:
        tried = sorted(night.categories.items(), key=lambda each: -each[1]["total"])
        yield f"## What was tried{', and what never' if night.never_tried else ''}\n"
        yield ", ".join(f"{code(name)} {n['total']} ({n['kept']} kept)" for name, n in tried) + "."
    if night.never_tried:
        yield f"Never: {', '.join(night.never_tried)}."


def _limits(night: NightView) -> Iterator[str]:
    if night.limits:
        yield "\n## Usage limits\n"
        names = ("agent", "times", "the last from", "started again at", "it printed")
        yield from table(names, ((n.agent, n.times, n.since, n.until, code(n.said)) for n in night.limits))
