"""What a draft says while no language model writes it: what its batch is predicted to decide, in a few sentences."""

from __future__ import annotations

from functions.rules.beliefs.posterior import posterior
from state.pipeline_facts import PipelineFacts
from state.records import Draft

ADVICE = {
    "investigate": "compare its values with the reference config, as the configs say",
    "falsify": "look for runs that contradict it",
    "decision_sprint": "repeat the pairs that are to decide it",
    "validate": "complete the cells of its test",
    "exploit": "build on it: find what goes with it",
    "converge": "stay close to the best known config",
    "moonshot": "try the ends of the ranges",
}


def drafted_text(facts: PipelineFacts, draft: Draft) -> str:
    """A whole program, as Markdown, for workers that replace theirs by it."""
    predicted = draft.predicted
    h = next((h for h in facts.beliefs.open if h.hypothesis_id == predicted.hypothesis_id), None)
    statement = "no hypothesis that is open" if h is None else h.statement
    known = "" if h is None else f" P = {posterior(h).posterior_mean:.2f} after {h.n_experiments} runs."
    return (
        f"# Program of {facts.beliefs.tag.name}\n\n"
        f"The swarm is about this claim: {statement}.{known}\n\n"
        f"Strategy: {predicted.strategy}. {ADVICE.get(predicted.strategy, 'go on')}.\n\n"
        "Take the constants that each assignment names, change nothing else of train.py, and report every tick.\n"
    )
