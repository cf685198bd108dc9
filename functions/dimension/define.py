"""dimension::define says what a swarm may vary in a tag."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.profiles import Profile, dimensions_of
from functions.rules.opening import FIRST, first_policy, swarm_policy, swarm_tag
from functions.rules.swarm.dimensions import MOST, DeclaredDimension, checked, defined, definition_events
from functions.views.dimensions import DimensionView, dimension_view
from state.change import Change
from state.dimensions import Dimensions
from state.errors import Invalid
from state.ids import Tag as TagName
from state.records import Dimension
from state.settings import Settings
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
        return DefinedDimensions(
            tag=request.tag,
            created=created,
            version=facts.version + bool(made.changes),
            added=made.added,
            changed=made.changed,
            removed=made.removed,
            dimensions=[dimension_view(d) for d in made.dimensions],
        )

    return await dimensions.change(decide, in_turn=request.tag)


def _given(request: DefineDimensions) -> list[Dimension]:
    """The dimensions that are asked for.

    Raises:
        Invalid: one is wrong, or it is not said which.
    """
    if (request.dimensions is None) == (request.profile is None):
        raise Invalid("give dimensions or a profile", hint="one of the two, not both")
    declared = request.dimensions or (dimensions_of(request.profile) if request.profile else [])
    return [checked(d) for d in declared]
