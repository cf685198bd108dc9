"""Experiments, registered: a number, a record with its patch, a retest."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from state.errors import Conflict, Invalid
from state.experiments.reading import Reading
from state.records import Experiment
from state.tags import exhausted, unknown

REQUEST_TTL_S = 24 * 3600


@dataclass(frozen=True)
class RequestKey:
    """What a repeated registration is known by."""

    name: str
    """Of the function and the id that its caller gave; safe in a key."""
    body_digest: str

    def registered(self, stored: str) -> str:
        """The experiment that the first request registered, from `<id> <digest of its body>`.

        Raises:
            Invalid: that was another body.
        """
        experiment_id, _, digest = stored.partition(" ")
        if digest != self.body_digest:
            raise Invalid(
                "this request id or Idempotency-Key was used with another body",
                hint="use a new key for a new request",
            )
        return experiment_id


class Registering(Reading):
    """Part of `Experiments`."""

    async def reserve_number(self, tag: str, run_s: float | None = None) -> int:
        """The next number of a tag; one that is not used leaves a gap.

        Raises:
            NotFound: the tag does not exist. BudgetExhausted: a run of `run_s` seconds is to follow, and there is no
            room for it.
        """
        answer = await self._lab.run("number_experiment", [self._keys.tag(tag)], [run_s])
        match answer[0]:
            case "no_tag":
                raise unknown(tag)
            case "exhausted":
                raise exhausted(tag, answer)
            case _:
                return int(answer[1])

    async def first_answer(self, request: RequestKey) -> str | None:
        """The experiment that this request registered before.

        Raises:
            Invalid: the request of this id had another body.
        """
        found: str | None = await self._lab.command("GET", self._keys("requests", request.name))
        return None if found is None else request.registered(found)

    async def register(
        self,
        experiment: Experiment,
        patch: bytes | None,
        request: RequestKey | None,
        reserve_s: float | None = None,
    ) -> str:
        """Store a new experiment with its patch; answers its id, or the first one's for a repeated request.

        With `reserve_s` one run of so many seconds is set aside for it, as `enqueue` does otherwise.

        Raises:
            NotFound: the tag does not exist. Invalid: the request of this id had another body.
            BudgetExhausted: the tag's budget has no room for the run.
            Conflict: what it is made from is over, was used before, or is of an earlier epoch.
        """
        e, keys = experiment, self._keys
        diff_id = hashlib.sha256(patch).hexdigest() if patch is not None else ""
        fields = e.model_copy(update={"diff_id": diff_id or None}).flat()
        reply = await self._lab.run(
            "register_experiment",
            [
                keys.tag(e.tag),
                keys.experiment(e.experiment_id),
                keys("lineage", e.tag),
                *keys.indexes(e, "registered"),
                keys("category", e.tag, e.category),
                keys("diffs", diff_id or "none"),
                keys("tried", e.tag),
                keys("open"),
                keys("requests", request.name if request else "none"),
                keys("events"),
                keys.selection(e.selection_id) if e.selection_id else keys.experiment(e.experiment_id),
                keys("open_selections", e.tag),
                keys("forest", e.tag),
            ],
            [
                e.experiment_id,
                e.number,
                json.dumps(fields),
                zlib.compress(patch) if patch is not None else "",
                diff_id,
                e.commit_sha,
                REQUEST_TTL_S if request else 0,
                e.tag,
                json.dumps(
                    {
                        "experiment_id": e.experiment_id,
                        "number": e.number,
                        "category": e.category,
                        "hypothesis": e.hypothesis,
                        "agent": e.agent,
                    }
                ),
                e.traceparent,
                e.patience_s,
                request.body_digest if request else "",
                reserve_s,
                e.selection_id,
            ],
        )
        match reply[0]:
            case "no_tag":
                raise unknown(e.tag)
            case "over" | "used" | "stale_epoch":
                raise unselectable(e, reply)
            case "exhausted":
                raise exhausted(e.tag, reply)
            case "repeat" if request is not None:
                return request.registered(str(reply[1]))
            case _:
                return e.experiment_id

    async def touch(self, e: Experiment) -> None:
        """Its agent was heard of."""
        await self._lab.move(
            "touch_experiment",
            keys={"open": self._keys("open")},
            args={"id": e.experiment_id, "patience_s": e.patience_s},
        )


def unselectable(e: Experiment, answer: Sequence[str]) -> Conflict:
    """Nothing can be registered with a selection, as the script says why."""
    again = "POST /api/trace/select makes a new one"
    match answer[0]:
        case "used":
            return Conflict(
                f"{answer[1]} was registered with {e.selection_id}: a selection is for one experiment",
                hint=again,
                fields={"code": "selection_used", "experiment_id": answer[1]},
            )
        case "stale_epoch":
            return stale_epoch(e.selection_id or "", int(answer[1]))
        case _:
            return Conflict(
                f"{e.selection_id} is over: its lease ended before an experiment was registered, or it was released",
                hint=f"{again}; a long search for an idea renews its selection with POST /api/trace/renew",
                fields={"code": "selection_expired"},
            )


def stale_epoch(selection_id: str, epoch: int) -> Conflict:
    """A selection was made before the tag's traces began their present epoch."""
    return Conflict(
        f"{selection_id} is of an earlier epoch: the tag's traces are in epoch {epoch} by now",
        hint="POST /api/trace/select makes a new one",
        fields={"code": "stale_epoch", "epoch": epoch},
    )
