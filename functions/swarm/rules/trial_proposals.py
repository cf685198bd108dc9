"""Proposed dimensions, and the stalls of a search in which one is tried."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal

from pydantic import ValidationError

from functions.experiments.rules.verdict import TOLERANCE
from functions.formats.parsing import parsed
from functions.swarm.rules.dimensions import MOST, DeclaredDimension, checked, ends_of, same, short
from functions.swarm.rules.rooms import own_value
from functions.swarm.rules.scanning import scanned, untouched
from functions.swarm.rules.shapes import CANARY_SHARE
from state.errors import Conflict, Invalid
from state.records import Dimension, ProposedDimension, Value, score
from state.swarm_facts import RESULTS, KeptRun, TrialFacts

# -- Stall cycles of a search, and when a language model is asked for dimensions. Time is counted in results.

LEAST_RESULTS = 25
"""Results before which no search stalls."""
WINDOW = 50
"""Number of newest results in which the best has to improve."""
LEAST_GAIN = 0.0005
"""Improvement below which the search stalls."""
CYCLE = 25
"""Length of a stall cycle in results."""
MOST_TRIALS = 1
"""Dimensions on trial at once. With several, a gain could not be attributed to one of them."""


@dataclass(frozen=True)
class Cycle:
    """A stall cycle: several proposals of one dimension in it count once."""

    number: int
    at: int
    """Results that the tag had when it began."""


def improvement(facts: TrialFacts) -> float | None:
    """Improvement of the best by the newest 50 results; None if unknown.

    With fewer results the unchanged train.py is the baseline. Crashes are not results. The value is negative where a
    retest made the best worse.
    """
    opened_at = _window_opened_at(facts)
    before = [k for k in facts.keeps if (k.finished_at or 0.0) < opened_at]
    then = _score(before[0], facts) if before else _unchanged(facts)
    if then is None:
        return None
    return then - _score(facts.keeps[0], facts) if facts.keeps else 0.0


def is_stalled(facts: TrialFacts) -> bool:
    """Whether 25 results are in, and the newest 50 improved the best by less than 0.0005."""
    gain = improvement(facts) if facts.tag.results >= LEAST_RESULTS else None
    return gain is not None and gain < LEAST_GAIN - TOLERANCE


def cycle_of(facts: TrialFacts) -> Cycle | None:
    """The current stall cycle; None: no stall. A stall that begins again within 25 results is the same cycle."""
    if not is_stalled(facts):
        return None
    if facts.cycle and facts.tag.results - facts.cycle_at < CYCLE:
        return Cycle(facts.cycle, facts.cycle_at)
    return Cycle(facts.cycle + 1, facts.tag.results)


def newest_cycle(facts: TrialFacts) -> Cycle:
    """The current stall cycle, else the last one; number 0 before the first."""
    return cycle_of(facts) or Cycle(facts.cycle, facts.cycle_at)


def is_asked_for(facts: TrialFacts) -> Literal["start", "stall"] | None:
    """Why a language model is asked for dimensions now; None if it is not.

    It is asked once at the start and once in each stall cycle. It is not asked while a trial runs, or if the policy
    adopts no dimensions.
    """
    if facts.policy.canaries == "off" or not facts.dimensions:
        return None
    if sum(p.state == "on_trial" for p in facts.proposals) >= MOST_TRIALS:
        return None
    cycle = cycle_of(facts)
    if cycle is not None and (facts.asked is None or facts.asked < cycle.number):
        return "stall"
    return "start" if facts.asked is None and facts.tag.results < LEAST_RESULTS else None


def _window_opened_at(facts: TrialFacts) -> float:
    """End of the oldest of the newest 50 results; 0 with fewer results."""
    ends = sorted((e.finished_at or 0.0 for e in facts.ended if e.status in RESULTS), reverse=True)
    return ends[WINDOW - 1] if len(ends) >= WINDOW else 0.0


def _unchanged(facts: TrialFacts) -> float | None:
    """Score of the unchanged train.py: a delta of 0, or the best baseline of a worker."""
    if facts.policy.compare_by == "delta":
        return 0.0
    direction = facts.tag.direction
    known = [score(e.baseline_bpb, direction) for e in facts.ended if e.baseline_bpb is not None]
    return min(known, default=None)


def _score(kept: KeptRun, facts: TrialFacts) -> float:
    return score(kept.judged or 0.0, facts.tag.direction)


# -- Proposed dimensions: how one enters the list of its tag, what is wrong with it, and how its trial begins.

LARGEST_INT_SPAN = 1024
LARGEST_RATIO = 1e4
"""Largest max / min of a float_log."""
LARGEST_SPAN = 1e6
"""Largest max - min of other floats."""
CATEGORIES = (2, 8)
"""Fewest and most categories."""
IMPORTANCE = 0.08
"""Importance of a dimension on trial, until it is measured."""
ID_DIGITS = 8
MOST_LISTED = 100
"""Proposals of a tag."""
MOST_OF_ONE = 10
"""Proposals that one agent may add within 25 results (a stall cycle)."""
MOST_SUGGESTED: Final = 3
BY: Final = "templates"
"""Author of the dimensions that a train.py suggests."""


def id_of(proposal: ProposedDimension) -> str:
    """`dim_` and 8 hexadecimal digits: equal for proposals with the same name, dtype and range.

    Names are compared without case, spaces and underscores. Floats are compared in 3 significant digits, categories
    in any order. 1 equals 1.0.
    """
    said = [spelling(proposal.name), proposal.dtype, *map(_number, (proposal.min, proposal.max))]
    said += sorted(map(_number, proposal.categories or []))
    return f"dim_{sha256(json.dumps(said).encode()).hexdigest()[:ID_DIGITS]}"


def spelling(name: str) -> str:
    return name.replace(" ", "").replace("_", "").casefold()


def problems(proposal: ProposedDimension, dimensions: Sequence[Dimension]) -> Iterator[str]:
    """Reasons why a proposal cannot become a dimension of its tag."""
    try:
        dimension = checked(_declared(proposal))
    except (Invalid, ValidationError) as problem:
        yield problem.detail if isinstance(problem, Invalid) else "its fields contradict each other"
        return
    known = next((d.name for d in dimensions if spelling(d.name) == spelling(proposal.name)), None)
    if known is not None:
        yield f"the tag has {known} already"
    if len(dimensions) >= MOST:
        yield f"the tag has {MOST} dimensions already"
    yield from _unbounded(dimension)
    values = [proposal.default_value, *(proposal.categories or [])]
    if reason := next((r for value in values if (r := untouched(proposal.name, value))), None):
        yield f"it is not tried: {reason}"
    default = own_value(dimension, proposal.default_value)
    if default is None:
        yield f"its default {proposal.default_value!r:.60} is none of its values"
    elif proposal.train_py_line is not None and not _sets(proposal.train_py_line, proposal.name, default):
        yield f"train_py_line does not set {proposal.name} to its default {default!r:.60}"


def line_of(proposal: ProposedDimension) -> str:
    """The line that a train.py needs if it lacks the constant."""
    return proposal.train_py_line or f"{proposal.name} = {proposal.default_value!r}"


def on_trial(proposal: ProposedDimension) -> Dimension:
    dimension = checked(_declared(proposal))
    return dimension.model_copy(
        update={
            "is_canary": True,
            "canary_prob": CANARY_SHARE,
            "importance": IMPORTANCE,
            "default_value": own_value(dimension, proposal.default_value),
        }
    )


def _declared(proposal: ProposedDimension) -> DeclaredDimension:
    fields = {name: getattr(proposal, name) for name in ("name", "dtype", "min", "max", "categories")}
    return DeclaredDimension.model_validate(fields)


def _unbounded(dimension: Dimension) -> Iterator[str]:
    """Reasons why a range is too large, or categories are too few or too many."""
    if dimension.categories is not None:
        fewest, most = CATEGORIES
        if not fewest <= len(dimension.categories) <= most:
            yield f"it has {len(dimension.categories)} categories: {fewest} to {most} may be tried"
        return
    low, high = ends_of(dimension)
    if dimension.dtype == "int" and high - low > LARGEST_INT_SPAN:
        yield f"its range spans {high - low}: at most {LARGEST_INT_SPAN} may be tried"
    if dimension.dtype == "float_log" and high / low > LARGEST_RATIO:
        yield f"max is {high / low:.3g} times min: at most {LARGEST_RATIO:g} times may be tried"
    if dimension.dtype != "int" and high - low > LARGEST_SPAN:
        yield f"its range spans {high - low:.3g}: at most {LARGEST_SPAN:g} may be tried"


def _sets(line: str, name: str, default: Value) -> bool:
    """Whether this is one line, and it only sets the name to the default."""
    try:
        body = parsed(line.strip()).body
    except Invalid:
        return False
    match body:
        case [
            ast.Assign(targets=[ast.Name(id=bound)], value=value)
            | ast.AnnAssign(target=ast.Name(id=bound), value=ast.expr() as value)
        ]:
            return bound == name and "\n" not in line.strip() and _is(value, default)
    return False


def _is(value: ast.expr, default: Value) -> bool:
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError):
        return False
    return same(found, default) or (
        isinstance(found, int | float) and not isinstance(found, bool) and same(short(float(found)), default)
    )


def _number(value: Value | None) -> str:
    """A value as text: whole numbers exactly, others in 3 significant digits."""
    if value is None or isinstance(value, bool | str):
        return json.dumps(value)
    return json.dumps(float(value) if value == int(value) else short(float(value)))


def check_share(facts: TrialFacts, entering: ProposedDimension) -> None:
    """Refuse an agent that has reached its quota of proposals. Raises Conflict, saying when to come back."""
    if entering.source != "agent" or any(p.proposal_id == entering.proposal_id for p in facts.proposals):
        return
    since = facts.tag.results - CYCLE
    own = [p for p in facts.proposals if p.proposed_by == entering.proposed_by and p.source == "agent"]
    newest = [
        p.proposed_results for p in own if p.proposed_results is not None and p.proposed_results > since
    ]
    if len(newest) >= MOST_OF_ONE:
        raise Conflict(
            f"{entering.proposed_by!r} has proposed {len(newest)} dimensions of {facts.tag.name!r} within"
            f" {CYCLE} results: {MOST_OF_ONE} is the most",
            hint=f"propose others after {min(newest) + CYCLE - facts.tag.results} more results; those that are"
            " listed may be proposed again at any time",
        )


def displaced(facts: TrialFacts, entering: ProposedDimension) -> ProposedDimension | None:
    """The proposal that a new one replaces in a full list; None if none has to leave.

    It is the oldest one that is neither on trial nor promoted, and was not proposed in the newest stall cycle.

    Raises:
        Conflict: the list is full, and no proposal may leave.
    """
    is_listed = any(p.proposal_id == entering.proposal_id for p in facts.proposals)
    if is_listed or len(facts.proposals) < MOST_LISTED:
        return None
    newest = newest_cycle(facts).number
    for proposal in facts.proposals:
        if proposal.state not in ("on_trial", "promoted") and newest not in proposal.cycles:
            return proposal
    raise Conflict(
        f"{facts.tag.name!r} has {MOST_LISTED} proposed dimensions,"
        " and all are tried, promoted or new in this stall cycle",
        hint="propose it in the next stall cycle; DELETE /dimension_proposals drops those that are not on trial",
    )


def entered(facts: TrialFacts, given: ProposedDimension) -> ProposedDimension:
    """A proposal as it enters the list of its tag, or the listed one with the same id, counted once more.

    It counts for the current stall cycle, if the search stalls. A listed proposal takes the new wording, unless only
    the new wording has a problem. After the begin of its trial only the count changes.
    """
    known = next((p for p in facts.proposals if p.proposal_id == id_of(given)), None)
    cycle = cycle_of(facts)
    before = [] if known is None else known.cycles
    counted = sorted({*before, *([] if cycle is None else [cycle.number])})
    if known is None:
        new = {"proposal_id": id_of(given), "cycles": counted, "proposed_results": facts.tag.results}
        return given.model_copy(update=new)
    if known.state != "listed":
        return known.model_copy(update={"times": known.times + 1})
    if [*problems(given, facts.dimensions)] and not [*problems(known, facts.dimensions)]:
        return known.model_copy(update={"times": known.times + 1, "cycles": counted})
    wording = ("name", "default_value", "rationale", "train_py_line", "source", "proposed_by")
    said = {name: getattr(given, name) for name in wording}
    return known.model_copy(update={**said, "times": known.times + 1, "cycles": counted})


def suggested(
    constants: Mapping[str, object],
    dimensions: Sequence[Dimension],
    proposals: Sequence[ProposedDimension] = (),
) -> list[dict[str, Any]]:
    """Up to 3 constants of a script that may be tried, each with a range around its value.

    Ints and categories come first: they are mostly sizes and choices of the architecture. Constants that are
    dimensions, had a trial, or have a problem are left out.
    """
    known = {spelling(d.name) for d in dimensions}
    known |= {spelling(p.name) for p in proposals if p.state != "listed"}
    found = [(d, value) for d, value in scanned(constants).found if spelling(d.name) not in known]
    found.sort(key=lambda each: each[0].dtype not in ("int", "categorical"))
    fields = [_fields(d, value) for d, value in found]
    return [each for each in fields if not any(problems(_proposed(each), dimensions))][:MOST_SUGGESTED]


def _fields(d: DeclaredDimension, value: object) -> dict[str, Any]:
    return {
        **d.model_dump(include={"name", "dtype", "min", "max", "categories"}),
        "default_value": value,
        "rationale": "train.py has it as a constant, and nothing varies it yet",
        "train_py_line": f"{d.name} = {value!r}",
    }


def _proposed(fields: Mapping[str, Any]) -> ProposedDimension:
    who = {"proposal_id": "", "source": "default", "proposed_by": BY, "proposed_at": 0.0}
    return ProposedDimension.model_validate({**fields, **who})
