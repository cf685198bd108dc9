"""Code of a tag that runs again in a tag of its own, under the same conditions: for distil and transfer."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from functions.experiments.rules.entering import scripts_of_run
from functions.kernel.clone import WholeCode
from functions.kernel.contract import Call
from state.errors import Conflict, Invalid
from state.experiments import Experiments
from state.noise import unseeded
from state.policy import Policy
from state.records import NO_CHANGE, Experiment, Tag
from state.tags import Tags

log = logging.getLogger(__name__)

POLICY = {
    "keep_rule": "strict",
    "baseline_first": False,
    "baseline_repeats": 0,
    "max_retests": 0,
    "traces.mode": "single",
    "stopping.rule": "none",
    "on_abort": "advise",
}
"""Differences from the policy of the tag: each run has its whole time, and none is repeated by itself."""


async def free_name(tag: str, what: str, taken: Collection[str], tags: Tags) -> str:
    """The name of a new tag beside this one."""
    nth = 1
    while (name := f"{tag[:28]}-{what}{nth}") in taken or await tags.existing(name) is not None:
        nth += 1
    return name


SAME = {"base_commit", "evaluator", "evaluator_files", "evaluator_command", "hidden_split"}
"""Fields of a tag that the one beside it shares."""


async def open_beside(into: str, tag: Tag, policy: Policy, call: Call) -> None:
    """Open the tag of the runs, unless it is open."""
    body = {
        "tag": into,
        "metric": {"name": tag.metric, "direction": tag.direction},
        **tag.model_dump(include=SAME),
        "policy": policy.model_dump(mode="json"),
    }
    try:
        await call.invoke("experiment::setup", body)
    except Conflict:
        log.info("%s is open already", into)


async def codes_of(found: Sequence[Experiment], experiments: Experiments) -> dict[str, WholeCode]:
    """The code of each of these experiments. Raises Invalid: a patch is lost."""
    patches = await experiments.patches_named([e.diff_id for e in found])
    codes = dict[str, WholeCode]()
    for e, patch in zip(found, patches, strict=True):
        if patch is None and (e.diff_id is None or not e.is_unpatched):
            raise Invalid(
                f"the patch of {e.experiment_id} is not in the lab", hint="retract it, or restore it"
            )
        slots = (await experiments.train_facts(e.experiment_id)).slots if e.config_delta else ()
        scripts = next(iter(scripts_of_run(slots, (), e.gpu_id)), ()) if e.config_delta else ()
        codes[e.experiment_id] = WholeCode(
            patch or NO_CHANGE, unseeded(e.config_delta) or {}, scripts or ("train.py",)
        )
    return codes


async def submit_beside(into: str, code: WholeCode, what: str, of: Mapping[str, Any], call: Call) -> str:
    """The experiment of some code, the same however often it is asked for. Each has a seed of its own.

    `of`: fields that its submission has otherwise.
    """
    digest = hashlib.sha1(what.encode() + code.patch, usedforsecurity=False).hexdigest()
    body = {
        "tag": into,
        "hypothesis": "The score stays the same.",
        "category": "ablation",
        "commit_sha": digest,
        "diff_summary": what,
        "diff": code.patch.decode(),
        "config_delta": dict(code.constants) or None,
        "seed": int(digest[:7], 16),
        "agent": "distil",
        "request_id": f"{into}.{digest}",
        **of,
    }
    return str((await call.invoke("experiment::submit", body))["experiment_id"])
