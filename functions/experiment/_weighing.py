"""How much a value says: beside the noise of its tag, and by the keep rule of its experiment."""

from __future__ import annotations

import asyncio
import json
from dataclasses import astuple, dataclass

from functions.rules.keeps.keeping import (
    KEEP_RULES,
    SURE_SIGMAS,
    Discard,
    Keep,
    KeepProvisionally,
    Trial,
)
from functions.rules.keeps.noise import (
    Mean,
    Noise,
    cautious,
    is_outlier,
    noise_of,
    p_better,
    parsed,
    repeated,
)
from functions.rules.keeps.verdict import Key, score
from state.decisions import Repeat
from state.experiments import Experiments
from state.noise import Noises, code_of
from state.policy import Policy
from state.records import Best, Experiment, Tag, Trust


@dataclass(frozen=True)
class Weighed:
    """A value beside the noise of its tag and GPU class."""

    repeat: Repeat
    noise: Noise | None
    p_better: float | None


async def weigh(
    value: float,
    e: Experiment,
    other_key: str | None,
    tag: Tag,
    key: Key,
    best: Best | None,
    experiments: Experiments,
    noises: Noises,
) -> Weighed:
    """What the run adds to the noise of its tag and GPU class, and how probably it truly beats the best."""
    code = code_of(e, other_key)
    spread = await noises.spread(tag.name, key.gpu_class, code)
    before = parsed(spread.runs[0])
    runs = repeated(before, value)
    learned = noise_of(spread.squares, spread.df)
    added = runs.squares - before.squares if before else None
    # in a thread: its first call imports scipy
    if before is not None and learned is not None:
        went_wrong = await asyncio.to_thread(is_outlier, before, value, learned)
        added = None if went_wrong else added
    repeat = Repeat(
        noises.key(tag.name, key.gpu_class), code, spread.runs[0], json.dumps(astuple(runs)), added
    )
    noise = noise_of(spread.squares + (added or 0.0), spread.df + (added is not None))
    if best is None or noise is None:
        return Weighed(repeat, noise, None)
    theirs = code_of(await experiments.get(best.experiment_id), other_key)
    others = (
        runs if theirs == code else parsed((await noises.spread(tag.name, key.gpu_class, theirs)).runs[0])
    )
    incumbent = Mean(others.mean, others.runs) if others else Mean(best.val_bpb)
    # in a thread: its first call imports scipy
    chance = await asyncio.to_thread(p_better, Mean(runs.mean, runs.runs), incumbent, noise, tag.direction)
    return Weighed(repeat, noise, chance)


async def trust_in(
    value: float, e: Experiment, tag: Tag, best: Best | None, noise: Noise | None, policy: Policy
) -> Trust | None:
    """What the experiment's keep rule says of a keep; None for a discard, and where the rule asks for no trust."""
    if e.keep_rule == "strict":
        return None
    # in a thread: its first call imports scipy
    sigma = await asyncio.to_thread(cautious, noise, SURE_SIGMAS) if noise else None
    incumbent = Trial(best.experiment_id, score(best.val_bpb, tag.direction)) if best else None
    candidate = Trial(e.experiment_id, score(value, tag.direction))
    match KEEP_RULES[e.keep_rule].decide(candidate, incumbent, sigma):
        case Discard():
            return None
        case Keep():
            return "confirmed"
        case KeepProvisionally():
            return "provisional" if e.attempt > 0 and policy.max_retests > 0 else "unconfirmed"
