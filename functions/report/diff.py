"""report::diff compares two experiments: their numbers, their patches, and the code between the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from functions.children import Children
from functions.contract import Request, Response, function
from functions.formats.patches import text_of
from functions.report._git_diff import Between, between
from functions.views.experiments import score_of
from state.experiments import Experiments
from state.ids import ExperimentId
from state.records import Experiment


class CompareExperiments(Request):
    experiment_a: ExperimentId = Field(description="the one to compare with")
    experiment_b: ExperimentId = Field(description="the one that is compared", examples=["mar11-52"])


class Difference(Response):
    a: dict[str, Any]
    b: dict[str, Any]
    delta_bpb: float | None
    """b's value minus a's; for two runs of swarms, b's delta from its baseline minus a's."""
    delta_params_m: float | None
    delta_vram_mb: float | None
    patch_a: str | None
    patch_b: str | None
    """Each one's whole patch against the tag's base commit; null where none was sent."""
    diff: str | None
    """The change from a to b, file by file. For two runs of swarms: the constants in which their configs differ.
    Null: a patch is missing, or `diff_cut` says why."""
    diff_cut: str | None
    """Why `diff` is missing although both patches are there, or where it ends early; null: it is whole."""
    constants: str | None
    """In words, the constants that each side set over its code. Null: neither set any, both are the same in code and
    constants, or `diff` shows them."""


@function("report::diff", role="viewer", costly=True)
async def diff(request: CompareExperiments, experiments: Experiments, children: Children) -> Difference:
    """Both sides, b minus a, and the code; a discarded experiment's patch can be read for ever."""
    one, other = await experiments.compared(request.experiment_a, request.experiment_b)
    a, b = one.experiment, other.experiment
    beside = _of_swarm(a, b)
    made = Between()
    if one.patch is not None and other.patch is not None:
        async with children.one():
            made = await between(one.patch, other.patch, a.experiment_id, b.experiment_id)
    elif beside is not None:
        made = Between(beside)
    return Difference(
        a=_side(a),
        b=_side(b),
        delta_bpb=_minus(b.val_bpb, a.val_bpb) if beside is None else _minus(b.delta_bpb, a.delta_bpb),
        delta_params_m=_minus(b.num_params_m, a.num_params_m),
        delta_vram_mb=_minus(b.peak_vram_mb, a.peak_vram_mb),
        patch_a=text_of(one.patch),
        patch_b=text_of(other.patch),
        diff=made.diff,
        diff_cut=made.cut,
        constants=None if beside is not None else _constants(a, b, is_same_code=made.diff == ""),
    )


def _of_swarm(a: Experiment, b: Experiment) -> str | None:
    """The difference of the configs of two runs of swarms; None for other runs."""
    if a.worker_id is None or b.worker_id is None:
        return None
    return between_configs(a.config_delta or {}, b.config_delta or {}, a.experiment_id, b.experiment_id)


def _constants(a: Experiment, b: Experiment, *, is_same_code: bool) -> str | None:
    """The constants that two runs set, in words. None if there is nothing to say."""
    sets = [", ".join(_lines(e.config_delta or {})) for e in (a, b)]
    if not any(sets) or (is_same_code and sets[0] == sets[1]):
        return None
    words = [f"{e.experiment_id} sets {own or 'no constants'}" for e, own in zip((a, b), sets, strict=True)]
    return f"{'; '.join(words)}. A constant that is set holds, whatever the code says."


def _side(e: Experiment) -> dict[str, Any]:
    return {
        "id": e.experiment_id,
        "val_bpb": e.val_bpb,
        "delta_bpb": e.delta_bpb,
        "config_delta": e.config_delta,
        "score": score_of(e),
        "reported": e.reported,
        "claimed": e.is_claim,
        "description": e.description,
        "category": e.category,
        "num_params_m": e.num_params_m,
        "peak_vram_mb": e.peak_vram_mb,
        "status": e.status,
        "commit_sha": e.commit_sha,
    }


def _minus(b: float | None, a: float | None) -> float | None:
    return None if a is None or b is None else b - a


def between_configs(a: Mapping[str, object], b: Mapping[str, object], name_a: str, name_b: str) -> str:
    """The constants in which b differs from a; one that only one of them sets is left to train.py by the other.

    Empty where they are equal. 1 and 1.0, which train.py tells apart, differ.
    """
    lines = [
        line
        for name in {**a, **b}
        if (before := _line(a, name)) != (after := _line(b, name))
        for line in (*(f"-{text}" for text in before), *(f"+{text}" for text in after))
    ]
    return "\n".join((f"--- {name_a}", f"+++ {name_b}", *lines, "")) if lines else ""


def _line(config: Mapping[str, object], name: str) -> list[str]:
    return [f"{name} = {config[name]!r}"] if name in config else []


def _lines(config: Mapping[str, object]) -> list[str]:
    return [line for name in sorted(config) for line in _line(config, name)]
