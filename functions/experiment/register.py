"""experiment::register remembers what is about to be tried, before anything runs."""

from __future__ import annotations

from functions.children import Children
from functions.contract import MIB, Call, Response, function
from functions.experiment._ideas import NewIdea, hint_of, with_found_parent
from functions.rules.entering import admitted
from state.experiments import Experiments
from state.settings import Settings


class RegisterExperiment(NewIdea):
    """An idea that its agent trains itself, or has trained later."""


class RegisteredExperiment(Response):
    FOR_AGENTS = ("experiment_id", "status", "duplicate_of", "parent_id", "hint")

    experiment_id: str
    status: str
    number: int
    duplicate_of: str | None = None
    """The first experiment of the tag with the same patch or commit; null where both are new."""
    parent_id: str | None
    """The first of `parent_ids`."""
    parent_ids: list[str]
    """What it is made from. Its commit decides over the parent that was named; without either it is the tip."""
    hint: str | None = None
    """Why it has another parent than it named, and why a run of its tag would not begin now."""


@function("experiment::register", role="agent", writes=True, body_limit=6 * MIB)
async def register(
    request: RegisterExperiment, call: Call, experiments: Experiments, children: Children, settings: Settings
) -> RegisteredExperiment:
    """Register an experiment with its hypothesis and patch; a repeated idea is reported, not refused."""
    idea, patch, asked = request.idea(call), request.patch, call.request_key("experiment::register", request)
    idea, moved = await with_found_parent(idea, settings.clone, children, experiments)
    while True:
        facts = await experiments.entry_facts(idea, asked)
        new = facts.first or await experiments.register(
            admitted(idea, facts, call.caller, follows_tip=moved is None),
            patch,
            asked,
        )
        if new is not None:
            return RegisteredExperiment(
                experiment_id=new.experiment_id,
                status="registered",
                number=new.number,
                duplicate_of=new.duplicate_of,
                parent_id=next(iter(new.parent_ids), None),
                parent_ids=[*new.parent_ids],
                hint=hint_of(moved, facts.tag),
            )
