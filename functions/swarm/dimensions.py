"""Dimensions of a swarm: declared, listed, frozen and measured. Nightjar brings some of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from functions.beliefs.rules.declaring import irrelevant_dimension
from functions.experiments.rules.opening import FIRST, first_policy, swarm_policy, swarm_tag
from functions.formats.dimensions import LONGEST_FILE, read_dimensions
from functions.kernel.contract import Call, Command, Every, Line, OfTag, On, Response, function
from functions.swarm.rules.dimensions import (
    MOST,
    DeclaredDimension,
    checked,
    defined,
    definition_events,
    frozen,
    named,
    unfrozen,
    with_one,
)
from functions.swarm.rules.refilling import observations_of
from functions.swarm.views import DimensionView, dimension_view
from state.change import Change
from state.dimensions import Dimensions
from state.errors import Invalid
from state.hypotheses import Hypotheses
from state.ids import Id
from state.ids import Tag as TagName
from state.records import Dimension, Value, view_of
from state.settings import Settings
from state.swarm_facts import RefillFacts
from state.swarms import Swarms
from state.tags import begin


class DefineDimensions(Command):
    tag: TagName
    dimensions: list[DeclaredDimension] | None = Field(
        None,
        min_length=1,
        max_length=MOST,
        description="what may vary: this, or a profile",
        examples=[[{"name": "LR", "dtype": "float_log", "min": 0.0001, "max": 0.1}]],
    )
    profile: Profile | None = Field(
        None, description="dimensions that come with Nightjar, by their project", examples=["mnist"]
    )
    replace: bool = Field(False, description="remove the tag's dimensions that are not among them")


class DefinedDimensions(Response):
    tag: str
    created: bool
    """The tag was missing, and is there now."""
    version: int
    """Counts the changes of the tag's dimensions."""
    added: list[str]
    changed: list[str]
    removed: list[str]
    dimensions: list[DimensionView]
    """All that the tag has."""


@function("dimension::define", role="operator", writes=True)
async def define(
    request: DefineDimensions, call: Call, dimensions: Dimensions, settings: Settings
) -> DefinedDimensions:
    """Add dimensions to a tag, which is created where it is missing; those of a known name take its place.

    What was measured of a dimension stays while its dtype does, and a freeze stands until dimension::unfreeze.
    """
    given = _given(request)
    policy = swarm_policy(first_policy(settings.near_miss_threshold, settings.max_consecutive_crashes))

    async def decide(change: Change) -> DefinedDimensions:
        facts = await dimensions.facts(request.tag, change)
        made = defined(facts.dimensions, given, replace=request.replace, by=call.caller.name, at=facts.now)
        created = not facts.exists and await begin(change, swarm_tag(request.tag), FIRST, policy)
        if made.changes:
            event, froze = definition_events(made, request.tag, by=call.caller.name, profile=request.profile)
            dimensions.define(change, request.tag, made.dimensions, event, froze)
        return view_of(
            DefinedDimensions,
            made,
            tag=request.tag,
            created=created,
            version=facts.version + bool(made.changes),
            dimensions=[dimension_view(d) for d in made.dimensions],
        )

    return await dimensions.change(decide, in_turn=request.tag)


def _given(request: DefineDimensions) -> list[Dimension]:
    """The dimensions that are asked for. Raises Invalid: one is wrong, or it is not said which."""
    if (request.dimensions is None) == (request.profile is None):
        raise Invalid("give dimensions or a profile", hint="one of the two, not both")
    declared = request.dimensions or (dimensions_of(request.profile) if request.profile else [])
    return [checked(d) for d in declared]


class ListedDimensions(Response):
    tag: str
    version: int
    """Counts the changes of the tag's dimensions; 0: none was defined."""
    dimensions: list[DimensionView]
    """In the order in which they were defined."""


@function("dimension::list", role="viewer")
async def list_dimensions(request: OfTag, dimensions: Dimensions) -> ListedDimensions:
    """Every dimension of a tag with its range, what it is frozen at, and how much it matters."""
    facts = await dimensions.of(request.tag)
    return ListedDimensions(
        tag=request.tag, version=facts.version, dimensions=[dimension_view(d) for d in facts.dimensions]
    )


class UnfreezeDimension(Command):
    tag: TagName
    name: str = Field(max_length=64, description="the dimension", examples=["LEARNING_RATE"])
    reason: Line = Field(description="why: the evidence", examples=["48 runs: no value differs from another"])


class FreezeDimension(UnfreezeDimension):
    value: Value = Field(description="what it is in every config from now on", examples=[0.003])


class ChangedDimension(Response):
    tag: str
    changed: bool
    """False where it was so before: then who froze it, and why, stay as they were."""
    version: int
    dimension: DimensionView


@function("dimension::freeze", role="operator", writes=True)
async def freeze(request: FreezeDimension, call: Call, dimensions: Dimensions) -> ChangedDimension:
    """Hold a dimension at one value in every config from now on; who, when and why are kept with it."""
    by = call.caller.name

    def after(d: Dimension, at: float) -> Dimension | None:
        return frozen(d, request.value, by=by, at=at, reason=request.reason)

    return await changed(request, by, after, dimensions)


async def changed(
    request: UnfreezeDimension,
    by: str,
    decided: Callable[[Dimension, float], Dimension | None],
    dimensions: Dimensions,
) -> ChangedDimension:
    """Freeze or unfreeze a dimension; `decided` takes it with the time, and returns None if nothing changes."""

    async def decide(change: Change) -> ChangedDimension:
        facts = await dimensions.of(request.tag, change)
        before = named(facts.dimensions, request.name, request.tag)
        after = decided(before, facts.now)
        if after is not None:
            event: dict[str, object] = {"name": after.name, "reason": request.reason, "by": by}
            rest = with_one(facts.dimensions, after)
            if after.frozen:
                event |= {"value": after.frozen_value, "before": before.frozen_value}
                dimensions.replace(change, request.tag, rest, "dimension.frozen", after.name, event)
            else:
                event |= {"value": before.frozen_value}
                dimensions.replace(change, request.tag, rest, "dimension.unfrozen", after.name, event)
        return ChangedDimension(
            tag=request.tag,
            changed=after is not None,
            version=facts.version + (after is not None),
            dimension=dimension_view(after or before),
        )

    return await dimensions.change(decide, in_turn=request.tag)


BY = "nightjar"


class FreezeIrrelevant(Command):
    tag: TagName
    hypothesis_id: Id = Field(description="the claim that was settled", examples=["hyp_0a1b2c"])


class FrozeIrrelevant(Response):
    dimension: str | None
    """Frozen now; null: the claim is not irrelevant, or says nothing of one whole dimension, or it was frozen."""


@function("dimension::freeze_irrelevant", On("hypothesis.settled"), role="operator", writes=True)
async def freeze_irrelevant(
    request: FreezeIrrelevant, dimensions: Dimensions, hypotheses: Hypotheses
) -> FrozeIrrelevant:
    """Freeze the dimension of an irrelevant claim where its reference runs had it; an operator may unfreeze it."""
    h = await hypotheses.get(request.tag, request.hypothesis_id)
    name = irrelevant_dimension(h)
    if name is None:
        return FrozeIrrelevant(dimension=None)
    reason = f"{h.hypothesis_id} is irrelevant: it changes less than the margin anywhere in its range"

    async def decide(change: Change) -> str | None:
        facts = await dimensions.of(request.tag, change)
        before = next((d for d in facts.dimensions if d.name == name and not d.frozen), None)
        if before is None:
            return None
        after = frozen(before, h.reference_config[name], by=BY, at=facts.now, reason=reason)
        if after is None:
            return None
        event = {"name": name, "value": after.frozen_value, "reason": reason, "by": BY, "before": None}
        rest = with_one(facts.dimensions, after)
        dimensions.replace(change, request.tag, rest, "dimension.frozen", name, event)
        return name

    return FrozeIrrelevant(dimension=await dimensions.change(decide, in_turn=request.tag))


@function("dimension::unfreeze", role="operator", writes=True)
async def unfreeze(request: UnfreezeDimension, call: Call, dimensions: Dimensions) -> ChangedDimension:
    """Let a frozen dimension vary again in its whole range."""
    return await changed(request, call.caller.name, lambda d, _: unfrozen(d), dimensions)


MEASURE_S = 60
NEWS = 0.1
"""Share of the results that must be new since the last measurement."""
LEAST_NEWS = 10


class MeasureDimensions(Command):
    tag: TagName | None = Field(
        None, description="only this tag; else every tag that has a swarm", examples=["swarm"]
    )


class MeasuredDimensions(Response):
    results: dict[str, int]
    """Results that the measurement used, by tag; only tags that were measured now."""


@function("dimension::measure", Every(MEASURE_S), role="operator", writes=True)
async def measure(request: MeasureDimensions, swarms: Swarms, dimensions: Dimensions) -> MeasuredDimensions:
    """Measure how much each dimension matters, by itself and with others, once enough results are new."""
    tags = [request.tag] if request.tag is not None else await swarms.tags()
    found = {tag: await _measure(tag, swarms, dimensions) for tag in tags}
    return MeasuredDimensions(results={tag: results for tag, results in found.items() if results})


async def _measure(tag: str, swarms: Swarms, dimensions: Dimensions) -> int:
    """Number of results that were measured by; 0 where nothing was measured."""

    async def decide(change: Change) -> int:
        facts = await swarms.refill_facts(tag, [], change)
        if not _is_due(facts):
            return 0
        # in a thread: the model is asked ten thousand times
        after = await asyncio.to_thread(_measured, facts)
        results = max((d.n_samples for d in after), default=0)
        if results:
            event = {"results": results, "importance": {d.name: d.importance for d in after}}
            dimensions.replace(change, tag, after, "dimension.measured", tag, event)
        return results

    return await dimensions.change(decide)


def _is_due(facts: RefillFacts) -> bool:
    """Whether enough results are new, or a dimension was never measured."""
    results = facts.tag.results
    before = min((d.n_samples for d in facts.dimensions), default=results)
    return results - before >= max(LEAST_NEWS, NEWS * results)


def _measured(facts: RefillFacts) -> list[Dimension]:
    """The dimensions with new shares; unchanged after too few runs. A dimension on trial keeps its shares."""
    # numpy and scipy take most of a second to import, and few processes measure
    from functions.swarm.rules.gaussian_search import importances

    found = importances([d for d in facts.dimensions if not d.on_trial], observations_of(facts))
    if not found:
        return [*facts.dimensions]
    after = list[Dimension]()
    for d in facts.dimensions:
        shares = {} if d.on_trial else vars(found[d.name])
        after.append(d.model_copy(update={**shares, "n_samples": facts.tag.results}))
    return after


# -- The dimensions that come with Nightjar, by the project that they are of.

Profile = Literal["mnist", "nanochat"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

_FOLDER = Path(__file__).parents[1] / "formats" / "profiles"


def swarm_dimensions(profile: str) -> list[DeclaredDimension]:
    """The dimensions of a profile, or of the dimensions.toml at a path. Raises Invalid: it is neither."""
    if profile in PROFILES:
        return dimensions_of(profile)
    try:
        with Path(profile).expanduser().open(encoding="utf-8") as file:
            text = file.read(LONGEST_FILE + 1)
    except (OSError, ValueError, RuntimeError) as problem:
        raise Invalid(
            f"NIGHTJAR_SWARM_PROFILE is {profile[:200]!r}: neither {' nor '.join(PROFILES)}, nor a file that can be"
            f" read ({problem})",
            hint="name one of the two, or a dimensions.toml such as ./nightjar dims scan train.py writes",
        ) from problem
    try:
        return read_dimensions(text).dimensions
    except Invalid as problem:
        raise Invalid(
            f"NIGHTJAR_SWARM_PROFILE, {profile[:200]}: {problem.detail}", hint=problem.hint
        ) from problem


@cache
def dimensions_of(profile: Profile) -> list[DeclaredDimension]:
    return read_dimensions((_FOLDER / f"{profile}.toml").read_text()).dimensions
