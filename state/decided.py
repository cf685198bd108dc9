"""What was decided of a tag and of its experiments, as `decided:<tag>` keeps it: there no worker can write.

Its field `tag` has what the tag says of every run. `<id>` has an experiment's code, `<id>:constants` what it sets in
train.py, `<id>:limits` how long it may take.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from state.entries import Run
from state.records import Experiment, Tag, flatten
from state.seeds import unseeded

OF_TAG = ("base_commit", "metric", "evaluator", "evaluator_files", "evaluator_command")
"""What a tag says of its runs; none of it ever changes."""
OF_EXPERIMENT = ("commit_sha", "seed", "config_delta", "budget_s", "timeout_s")
"""What was decided of an experiment, beside its patch."""
PARTS = ("", ":constants", ":limits")
"""What follows an experiment's id in the names of its fields."""


def tag_text(tag: Tag) -> str:
    return json.dumps(tag.model_dump(include=set(OF_TAG)))


def code_text(commit_sha: str, diff_id: str | None, seed: int | None) -> str:
    return json.dumps({"commit_sha": commit_sha, "diff_id": diff_id, "seed": seed})


def constants_text(delta: Mapping[str, Any] | None) -> str | None:
    return json.dumps(dict(delta)) if delta else None


def limits_text(run: Run | Experiment | None) -> str | None:
    """None where it is not to be trained yet."""
    if run is None or run.budget_s is None or run.timeout_s is None:
        return None
    return json.dumps({"budget_s": run.budget_s, "timeout_s": run.timeout_s})


def tag_with(stored: Mapping[str, str], decided: str | None) -> dict[str, str]:
    """A tag's hash as it was read, with what was decided in its place."""
    if decided is None:
        return dict(stored)
    others = {name: text for name, text in stored.items() if name not in OF_TAG}
    return others | flatten(json.loads(decided))


class Decided(NamedTuple):
    """What stands of an experiment and its tag."""

    tag: str | None
    code: str | None
    constants: str | None
    limits: str | None

    def values(self) -> dict[str, Any] | None:
        """What a worker is to run, as `state.assignments.Assignment` names it; None where it is to run nothing."""
        if self.tag is None or self.code is None or self.limits is None:
            return None
        code, delta = json.loads(self.code), json.loads(self.constants) if self.constants else None
        if code.pop("is_retest", False) and delta is not None:
            delta = unseeded(delta)  # it has a seed of its own
        return {**json.loads(self.tag), **code, **json.loads(self.limits), "config_delta": delta or None}


def fields_for(experiment_id: str) -> tuple[str, ...]:
    """The names of the fields that `Decided` is made of."""
    return ("tag", *(experiment_id + part for part in PARTS))


def decided_of(stored: Sequence[str | None]) -> list[Decided]:
    """Of several experiments, from the fields of each."""
    each = len(PARTS) + 1
    return [Decided(*stored[begin : begin + each]) for begin in range(0, len(stored), each)]


def experiment_with(stored: Mapping[str, str], decided: Decided) -> dict[str, str]:
    """An experiment's hash as it was read, with what was decided in its place.

    Its patch is shown as a worker has found it: what is run is the one that was sent.
    """
    if decided.code is None:
        return dict(stored)
    code = json.loads(decided.code)
    limits = json.loads(decided.limits) if decided.limits else {}
    own = {name: code[name] for name in ("commit_sha", "seed")} | limits
    others = {name: text for name, text in stored.items() if name not in OF_EXPERIMENT}
    constants = {"config_delta": decided.constants} if decided.constants else {}
    return others | flatten(own) | constants


def tag_differences(tag: Tag, decided: Mapping[str, str]) -> list[str]:
    """What a tag's record says otherwise than was decided."""
    known: dict[str, Any] = json.loads(decided.get("tag", "{}"))
    return [name for name, value in known.items() if getattr(tag, name) != value]


def differences(e: Experiment, decided: Mapping[str, str]) -> list[str] | None:
    """What an experiment's record says otherwise than was decided; None where nothing was, and should have been."""
    code, constants, limits = (decided.get(e.experiment_id + part) for part in PARTS)
    if code is None:
        return None if "tag" in decided else []
    known: dict[str, Any] = json.loads(code) | json.loads(limits or "{}")
    known = {name: known[name] for name in OF_EXPERIMENT if name in known}
    known["config_delta"] = json.loads(constants) if constants else None
    return [name for name, value in known.items() if (getattr(e, name) or None) != (value or None)]
