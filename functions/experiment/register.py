"""experiment::register remembers what is about to be tried, before anything runs."""

from __future__ import annotations

from functions.children import Children
from functions.contract import MIB, Call, function
from functions.experiment._ideas import NewIdea, RegisteredExperiment, answered, hint_of, with_found_parent
from functions.rules.entering import admitted
from state.change import Change
from state.entries import Entered
from state.experiments import Experiments
from state.patches import packed
from state.records import Experiment, Tag
from state.settings import Settings


class RegisterExperiment(NewIdea):
    """An idea that its agent trains itself, or has trained later."""


@function("experiment::register", role="agent", writes=True, body_limit=6 * MIB)
async def register(
    request: RegisterExperiment, call: Call, experiments: Experiments, children: Children, settings: Settings
) -> RegisteredExperiment:
    """Register an experiment with its hypothesis and patch; a repeated idea is reported, not refused."""
    idea, asked = request.idea(call), call.request_key("experiment::register", request)
    idea, moved = await with_found_parent(idea, settings.clone, children, experiments)
    _, patch = await packed(request.patch)

    async def decide(change: Change) -> tuple[Entered | Experiment, Tag]:
        facts = await experiments.entry_facts(change, idea, asked)
        if facts.first is not None:
            return facts.first, facts.tag
        entry = admitted(idea, facts, call.caller, follows_tip=moved is None)
        return await experiments.register(change, entry, facts, patch, asked), facts.tag

    new, tag = await experiments.change(decide)
    return RegisteredExperiment(**answered(new, "registered", hint_of(moved, tag)))
