"""The tag that a worker joins: the lab's own swarm begins with its first worker."""

from __future__ import annotations

import asyncio

from functions.profiles import swarm_dimensions
from functions.rules.opening import FIRST, first_policy, swarm_policy, swarm_tag
from functions.rules.swarm.dimensions import checked, defined, definition_events
from state.dimensions import Dimensions, NewTag
from state.errors import Conflict, NotFound
from state.settings import Settings

DEFINE = "an operator defines what may be varied: ./nightjar dims define"


async def open_swarm(tag: str, dimensions: Dimensions, settings: Settings) -> None:
    """See to it that a tag has a swarm: NIGHTJAR_SWARM_TAG is opened with the dimensions of NIGHTJAR_SWARM_PROFILE.

    Raises:
        NotFound: there is no such tag. Conflict: nothing may be varied in it.
    """
    while not (facts := await dimensions.facts(tag)).dimensions:
        if facts.exists:
            raise Conflict(f"{tag!r} has no swarm: nothing may be varied in it", hint=DEFINE)
        if tag != settings.swarm_tag:
            raise NotFound(f"there is no swarm {tag!r}", hint=DEFINE)
        declared = await asyncio.to_thread(swarm_dimensions, settings.swarm_profile)
        given = [checked(d) for d in declared]
        made = defined([], given, replace=False, by="nightjar", at=facts.now)
        policy = swarm_policy(first_policy(settings.near_miss_threshold, settings.max_consecutive_crashes))
        event, froze = definition_events(made, tag, by="nightjar", profile=settings.swarm_profile)
        new = NewTag(swarm_tag(tag), FIRST, policy)
        await dimensions.define(facts, made.dimensions, new, event=event, froze=froze)
