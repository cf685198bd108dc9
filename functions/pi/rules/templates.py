"""Programs and proposals without a language model, made from the findings alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from functions.formats.authored import FrozenDimensionProposal, ProgramUpdate
from functions.formats.digits import decimals
from functions.pi.rules.findings import Findings, Region
from state.records import Hypothesis

NAME: Final = "templates"
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
    return f"mean {mean} from {r.runs} runs, {r.apart:+.{digits}f} against the others"


def _count(n: int, one: str, several: str) -> str:
    return f"{n} {one if n == 1 else several}"


def _within(line: str, most: int = 300) -> str:
    """One line of printable characters, cut to `most`."""
    plain = "".join(c if c.isprintable() else " " for c in line)
    words = " ".join(plain.split())
    return words if len(words) <= most else f"{words[: most - 1]}…"
