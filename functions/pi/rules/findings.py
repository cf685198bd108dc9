"""Findings: what a tag's results say, when its program is written anew, and programs made from findings alone."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from functions.beliefs.rules.theory import least_decided
from functions.formats.authored import FrozenDimensionProposal, ProgramUpdate
from functions.formats.digits import decimals
from functions.search.rules.suggestions import high_yield, underexplored
from functions.swarm.rules.populations import Population
from state.program_facts import DueFacts, FindingsFacts, ProgramVersion
from state.records import Dimension, Direction, Hypothesis, Sketch, Value, score

# -- When a new version of a tag's program is due, and whether a language model writes it.

EVERY = 50
"""Results between two versions."""
APART = 10
"""Least results between versions for a change of strategy, which may waver."""
ANSWERED_S = 300.0
"""Least seconds before a language model is asked again."""
ATTEMPTS = 2
"""Requests to a language model for one version; then the templates write it."""


def patience_s(timeout_s: float) -> float:
    """Seconds before a language model is asked again, where one text takes up to `timeout_s` and others may wait."""
    return max(ANSWERED_S, 3 * timeout_s)


@dataclass(frozen=True)
class ProgramStep:
    """The next step of a program."""

    what: Literal["nothing", "ask", "wait", "templates"]
    """`wait`: a language model was asked. `templates`: none is there, or it has not answered."""
    reason: str = ""
    """Why a version is due."""
    attempt: int = 0
    """Number of the request to a language model, from 1."""


def next_step(
    facts: DueFacts, *, has_author: bool, on_demand: str | None = None, answered_s: float = ANSWERED_S
) -> ProgramStep:
    """The next step of a program; `on_demand` is an operator's reason for a version that is not due.

    `has_author`: a process of the lane `pi` with a language model is alive. `answered_s`: see `ANSWERED_S`.
    """
    ask = facts.ask if facts.ask is not None and facts.ask.number == facts.number else None
    reason = (ask.reason if ask is not None else on_demand) or reason_due(facts)
    if reason is None:
        return ProgramStep("nothing")
    if not has_author:
        return ProgramStep("templates", reason)
    if ask is None:
        return ProgramStep("ask", reason, 1)
    if facts.now - ask.at < answered_s:
        return ProgramStep("wait", reason, ask.attempt)
    return (
        ProgramStep("templates", reason)
        if ask.attempt >= ATTEMPTS
        else ProgramStep("ask", reason, ask.attempt + 1)
    )


def reason_due(facts: DueFacts) -> str | None:
    """Why a version is due; None: none is."""
    before = facts.current
    since = facts.tag.results - (before.results if before else 0)
    if since >= EVERY:
        return f"{since} results came"
    strategy = strategy_of(facts)
    if before is not None and since >= APART and strategy != before.strategy:
        return f"the strategy was {before.strategy} and is {strategy}"
    return None


def begins_cycle(results: int, before: ProgramVersion | None) -> bool:
    """Whether an adopted draft is the first after EVERY results: only such a version proposes hypotheses."""
    return results // EVERY > (0 if before is None else before.results // EVERY)


def strategy_of(facts: DueFacts) -> str:
    """The strategy of most workers; without populations the mode of the tag's search."""
    return strategy_of_most(facts.populations, otherwise=facts.strategy.mode)


def strategy_of_most(populations: Iterable[str], *, otherwise: str) -> str:
    """The strategy with the most workers in these stored populations; `otherwise` if there are none."""
    workers = Counter[str]()
    for p in map(Population.read, populations):
        workers[p.strategy] += p.target
    return max(sorted(workers), key=workers.__getitem__) if workers else otherwise


# -- Findings: what a tag's results say, computed for its program and for proposals.

PARTS = 4
"""Parts of a range, with equal numbers of runs."""
LEAST_RUNS = 4
"""Least runs of a part."""
CLEAR = 3.0
"""Standard errors between the mean of a part and that of all other runs; dozens of parts are compared."""
MOST_DECISIONS = 10
MOST_REGIONS = 12


@dataclass(frozen=True)
class Region:
    """Part of a dimension's range, and its runs compared with all others."""

    dimension: str
    low: Value
    high: Value
    """Equal to `low` for a single value."""
    runs: int
    mean: float
    """Mean delta, in the metric's unit."""
    error: float
    """Standard error of the mean."""
    apart: float
    """`mean` less the mean of the other runs."""
    is_clear: bool
    """Apart by more than CLEAR standard errors."""


@dataclass(frozen=True)
class Findings:
    tag: str
    metric: str
    """The tag's metric, or delta_bpb where a swarm compares deltas."""
    direction: str
    results: int
    strategy: str
    why: str = ""
    """The rule's reason for the strategy, if it gave one."""
    best_id: str | None = None
    best_value: float | None = None
    sigma: float | None = None
    """Noise of its values; None while no code was run twice."""
    best_config: Mapping[str, Value] = field(default_factory=dict)
    regions: Sequence[Region] = ()
    """The best part of each range, clear ones first."""
    rejected: Sequence[Region] = ()
    """Parts with clearly worse runs, the worst first."""
    interactions: Sequence[tuple[str, str, float]] = ()
    """Pairs of dimensions with the share of the variance that they explain only jointly, largest first."""
    varied: Sequence[str] = ()
    frozen: Sequence[tuple[str, Value, str]] = ()
    """Frozen dimensions with value and reason."""
    canaries: Sequence[str] = ()
    """Dimensions on trial."""
    beliefs: Sequence[Hypothesis] = ()
    """Open hypotheses, the least decided first."""
    settled: Sequence[Hypothesis] = ()
    """Hypotheses with a verdict, the newest first."""
    decisions: Sequence[Sketch] = ()
    """Newest results, newest first."""
    untried: Sequence[str] = ()
    """Categories of ideas with few tries."""
    fruitful: Sequence[str] = ()
    """Categories of ideas with many keeps."""


def findings_of(facts: FindingsFacts, categories: Sequence[str]) -> Findings:
    """The findings of a tag, from all `categories` of ideas; takes tens of milliseconds with a thousand runs."""
    due, beliefs, ground = facts.due, facts.beliefs, facts.ground
    tag, best = due.tag, ground.best
    noise = ground.noise.noise
    dimensions = beliefs.dimensions
    runs = [(json.loads(config), float(delta)) for config, delta in ground.configs]
    best_part, rejected = regions_of(dimensions, runs, tag.direction)
    stays = [h for h in beliefs.open if h.settled is not None]
    return Findings(
        tag=tag.name,
        metric="delta_bpb" if beliefs.policy.compare_by == "delta" else tag.metric,
        direction=tag.direction,
        results=tag.results,
        strategy=strategy_of(due),
        why="" if due.populations else due.strategy.reason,
        best_id=best.experiment_id if best else None,
        best_value=best.val_bpb if best else None,
        sigma=noise.sigma if noise else None,
        best_config=beliefs.best_config,
        regions=best_part,
        rejected=rejected,
        interactions=interactions_of(dimensions),
        varied=[d.name for d in dimensions if not d.frozen],
        frozen=[
            (d.name, d.frozen_value, d.frozen_reason or "it is frozen")
            for d in dimensions
            if d.frozen and d.frozen_value is not None
        ],
        canaries=[d.name for d in dimensions if d.is_canary],
        beliefs=least_decided([h for h in beliefs.open if h.settled is None]),
        settled=sorted([*stays, *beliefs.archived], key=lambda h: -(h.settled_at or 0.0)),
        decisions=ground.results[:MOST_DECISIONS],
        untried=underexplored(ground.categories, categories),
        fruitful=high_yield(ground.categories),
    )


def regions_of(
    dimensions: Iterable[Dimension],
    runs: Sequence[tuple[Mapping[str, Value], float]],
    direction: Direction = "minimize",
) -> tuple[list[Region], list[Region]]:
    """The best part of each range, and all parts that are clearly worse than the rest.

    `runs` are configs with their deltas. A run counts for the dimensions that it varied.
    """
    best, rejected = list[Region](), list[Region]()
    for d in dimensions:
        parts = _parts(d, [(config[d.name], value) for config, value in runs if d.name in config])
        if len(parts) < 2:
            continue
        found = [_region(d.name, part, parts) for part in parts]
        best.append(min(found, key=lambda r: score(r.mean, direction)))
        rejected += [r for r in found if r.is_clear and score(r.apart, direction) > 0]
    best.sort(key=lambda r: (not r.is_clear, score(r.apart, direction)))
    rejected.sort(key=lambda r: -score(r.apart, direction))
    return best[:MOST_REGIONS], rejected[:MOST_REGIONS]


def interactions_of(dimensions: Iterable[Dimension]) -> list[tuple[str, str, float]]:
    """Pairs of interacting dimensions, each once, with the shares that they explain."""
    shares = {
        tuple(sorted((d.name, other))): share for d in dimensions for other, share in d.interacts_with.items()
    }
    return sorted(((a, b, share) for (a, b), share in shares.items()), key=lambda p: (-p[2], p[:2]))


def _parts(d: Dimension, runs: Sequence[tuple[Value, float]]) -> list[list[tuple[Value, float]]]:
    """The runs by category, or by parts of the range with equal numbers of runs; equal values stay together."""
    if d.dtype == "categorical":
        by_value: dict[Value, list[tuple[Value, float]]] = {}
        for run in runs:
            by_value.setdefault(run[0], []).append(run)
        return [part for part in by_value.values() if len(part) >= LEAST_RUNS]
    ordered = sorted((run for run in runs if isinstance(run[0], int | float)), key=lambda run: float(run[0]))
    size = max(LEAST_RUNS, math.ceil(len(ordered) / PARTS))
    parts: list[list[tuple[Value, float]]] = []
    for run in ordered:
        if not parts or (len(parts[-1]) >= size and parts[-1][-1][0] != run[0]):
            parts.append([])
        parts[-1].append(run)
    if len(parts) > 1 and len(parts[-1]) < LEAST_RUNS:
        parts[-2:] = [[*parts[-2], *parts[-1]]]
    return [part for part in parts if len(part) >= LEAST_RUNS]


def _region(
    name: str, part: Sequence[tuple[Value, float]], parts: Sequence[Sequence[tuple[Value, float]]]
) -> Region:
    values = [value for _, value in part]
    others = [value for other in parts if other is not part for _, value in other]
    mean, error = statistics.fmean(values), _error(values)
    apart = mean - statistics.fmean(others)
    is_clear = abs(apart) > CLEAR * math.hypot(error, _error(others))
    return Region(name, part[0][0], part[-1][0], len(values), mean, error, apart, is_clear)


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


# -- Programs and proposals without a language model, made from the findings alone.

TEMPLATES: Final = "templates"
"""Name of the author of such texts."""
MOST_LINES = 6
LEAST_SHARE: Final = 0.05
"""Least share of the variance that a pair of dimensions explains only together, for a hypothesis about it."""
_MODES: Final[dict[str, str]] = {
    "explore": "Explore: change a part of train.py that was not changed yet, boldly, one idea in each experiment.",
    "exploit": "Exploit: refine what was kept last with small changes, one in each experiment.",
    "combine": "Combine: put two near misses of different categories together on the best code.",
    "ablation": "Ablation: take one change out of the best code, and see whether it was worth its lines.",
}


def program_update(findings: Findings) -> ProgramUpdate:
    return ProgramUpdate(
        phase_summary=_within(" ".join(_summary(findings)), 2000),
        frozen=[
            FrozenDimensionProposal(name=n, why=_within(f"fixed at {v!r}: {why}"))
            for n, v, why in findings.frozen
        ],
        active_guidance=[_within(line) for line in _guidance(findings)][:12],
        hypotheses=[_within(line) for line in _claims(findings)][:12],
        instructions=[_within(line) for line in _instructions(findings)][:12],
        warning=None,
    )


def suggested(findings: Findings, opened: Sequence[Hypothesis]) -> Iterator[dict[str, Any]]:
    """Proposals that two dimensions interact, for the gate; one of them should enter.

    There are none while an earlier one is under test, because each claim takes workers from the others. Good parts of
    single ranges are not proposed: the search explores them anyway.
    """
    if any(h.kind == "interaction" and h.source == "default" and h.settled is None for h in opened):
        return
    for a, b, share in findings.interactions:
        if share >= LEAST_SHARE:
            yield {
                "statement": f"the effect of {a} depends on {b}",
                "type": "interaction",
                "importance": round(min(0.3 + share, 0.9), 3),
                "dimensions": [a, b],
                "rationale": f"together they explain {share:.0%} of the variance beyond what each does alone",
            }


def _summary(f: Findings) -> Iterator[str]:
    yield f"{f.tag} has {_count(f.results, 'result', 'results')}; its strategy is {f.strategy}."
    if f.why:
        yield f"Why: {f.why.rstrip('.')}."
    if f.best_id is not None and f.best_value is not None:
        yield f"The best is {f.best_id} with {f.metric} {f.best_value:.{decimals(f.sigma)}f}."
    settled = [h for h in f.settled if (h.settled or h.status) != "active"]
    if f.beliefs or settled:
        yield f"{_count(len(settled), 'claim is', 'claims are')} settled, {len(f.beliefs)} under test."


def _guidance(f: Findings) -> Iterator[str]:
    for region in f.regions[:MOST_LINES]:
        if region.is_clear:
            yield f"{_place(region)} does best: {_figures(region)}."
    for region in f.rejected[:MOST_LINES]:
        yield f"{_place(region)} does worse than the rest: {_figures(region)}."
    for a, b, share in f.interactions[:3]:
        yield f"{a} and {b} matter together: {share:.0%} of the variance is theirs only as a pair."
    if f.fruitful:
        yield f"Ideas that were kept often are of {', '.join(f.fruitful[:3])}."


def _instructions(f: Findings) -> Iterator[str]:
    """At least two."""
    if f.varied:
        clear = [r for r in f.regions if r.is_clear]
        for region in clear[:2]:
            yield f"Where a config is yours to choose, set {_place(region)}."
        yield f"Vary only these constants: {', '.join(f.varied[:20])}; leave every other line as it is."
        yield "Run every config that you are handed as it is, to its end, and report what it measured."
        for name in f.canaries[:2]:
            yield f"{name} is on trial: vary it where your config says so."
        return
    yield _MODES.get(f.strategy, f"Follow the strategy {f.strategy}.")
    if f.best_id is not None:
        yield f"Build on {f.best_id}, the best so far, and name it as parent_id."
    if f.untried:
        yield f"Nearly nothing was tried of: {', '.join(f.untried[:4])}."
    yield "Say in each hypothesis what you expect and why, so that a discard is an answer, too."


def _claims(f: Findings) -> Iterator[str]:
    """Statements of hypotheses. They are words of others, and no other lines hold such."""
    for h in f.beliefs[:MOST_LINES]:
        yield f"{h.statement} (P {h.probability:.2f} after {_count(h.n_experiments, 'run', 'runs')})"
    for h in f.settled[:MOST_LINES]:
        yield f"{h.settled or h.status}: {h.statement}"


def _place(r: Region) -> str:
    return f"{r.dimension} at {r.low!r}" if r.low == r.high else f"{r.dimension} from {r.low!r} to {r.high!r}"


def _figures(r: Region) -> str:
    digits = decimals(r.error)
    mean = f"{r.mean:+.{digits}f} ± {r.error:.{digits}f}"
    return f"mean delta {mean} from {r.runs} runs, {r.apart:+.{digits}f} against the others"


def _count(n: int, one: str, several: str) -> str:
    return f"{n} {one if n == 1 else several}"


def _within(line: str, most: int = 300) -> str:
    """One line of printable characters, cut to `most`."""
    plain = "".join(c if c.isprintable() else " " for c in line)
    words = " ".join(plain.split())
    return words if len(words) <= most else f"{words[: most - 1]}…"
