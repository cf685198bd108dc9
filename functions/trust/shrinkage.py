"""How much of the visible gains of a tag its hidden split bears out, for operators."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from functions.kernel.contract import OfTag, Response, function
from functions.trust.rules.hidden import Gains, gains_of
from state.experiments import Experiments
from state.noise import code_of
from state.tags import Tags
from state.trust import Certificates, HiddenNumbers

KEEPS_READ = 200
"""Newest keeps that are read."""


@dataclass(frozen=True)
class HiddenStores:
    tags: Tags
    experiments: Experiments
    certificates: Certificates
    numbers: HiddenNumbers


class Shrinkage(Response):
    tag: str
    hidden_split: bool
    keeps: int = Field(description="keeps that were compared with another run on both splits")
    visible_gain: float | None = Field(description="mean gain of these keeps; null: there is none")
    hidden_gain: float | None = Field(description="their mean gain on the hidden split")
    shrinkage: float | None = Field(description="share of the visible gain that the hidden split lacks")
    certificates: int = Field(description="certificates whose two sides were measured on the test split")
    test_gain: float | None = Field(description="mean gain of their candidates on the test split")
    test_reads: int = Field(description="experiments for which the test split was read, once each")


@function("trust::shrinkage", role="operator")
async def shrinkage(request: OfTag, stores: HiddenStores) -> Shrinkage:
    """Compare the gains of a tag's newest keeps with their gains on the hidden split; means alone."""
    tag = await stores.tags.get(request.tag)
    keeps = await stores.experiments.by_number(tag.name, "keep", KEEPS_READ) if tag.hidden_split else []
    others = await stores.experiments.many(sorted({e.compared_with for e in keeps if e.compared_with}))
    certified = await stores.certificates.all(tag.name) if tag.test_split else []
    codes = [code_of(e, e.best_key) for e in (*keeps, *others)]
    known = {
        gpu_class: await stores.numbers.seen(tag.name, gpu_class, codes)
        for gpu_class in {e.gpu_class for e in keeps}
    }
    found: Gains = gains_of(
        keeps, others, known, certified, await stores.numbers.tests(tag.name), tag.direction
    )
    return Shrinkage(tag=tag.name, hidden_split=tag.hidden_split, **vars(found))
