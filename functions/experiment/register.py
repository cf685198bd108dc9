"""experiment::register remembers what is about to be tried, before anything runs."""

from __future__ import annotations

from functions.children import Children
from functions.contract import MIB, Call, function
from functions.experiment._ideas import NewIdea, RegisteredExperiment, answered, hint_of, with_found_parent
from functions.rules.entering import admitted
from state.experiments import Experiments
from state.settings import Settings


class RegisterExperiment(NewIdea):
    """An idea that its agent trains itself, or has trained later."""


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
            admitted(idea, facts, call.caller, follows_tip=moved is None), patch, asked
        )
        if new is not None:
            return RegisteredExperiment(**answered(new, "registered", hint_of(moved, facts.tag)))
