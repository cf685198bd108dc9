"""The lab's events: catalogue, envelope and stream."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

CATALOGUE: dict[str, str] = {
    "agent.limited": "an agent of `nightjar agent` has met a usage limit; data says when it is started again",
    "experiment.registered": "an idea was entered",
    "experiment.queued": "it waits for a GPU, or waits again",
    "experiment.leased": "a worker may begin it",
    "experiment.started": "its script runs",
    "experiment.finished": "it has its final status; data holds the verdict",
    "experiment.lost": "no report came in time, or its last attempt failed",
    "experiment.contended": "another program slowed its run down: that value counts for nothing, and it runs again",
    "experiment.retesting": "its code runs again",
    "experiment.retested": "a retest has ended: evidence for the experiment that it repeats",
    "experiment.confirmed": "retests bore its keep out",
    "experiment.revalued": "it is worth the mean of its further runs, which contradict the first; it is still kept",
    "experiment.demoted": "retests took its keep back",
    "experiment.promoted": "a discard is kept: retests made it the best, or the lab's run bore its agent's claim out",
    "experiment.refuted": "the lab's run of a claim is a discard; data says what was reported and what was measured",
    "experiment.retracted": "its result was taken back; data says what is the best now",
    "experiment.unconfirmed": "its keep stays, without retests that bear it out",
    "run.ticked": "it has reached another fifth of its way; not published, only in the stream",
    "run.stopping": "it was told to stop, because its rank among the runs of its tag is too low",
    "run.extended": "it trains longer than others: its rank was among the best, and it reports beyond its budget",
    "run.reported_late": "its worker sent a value after it was stopped: kept, and judged by nothing",
    "best.changed": "a tag, or a comparability key of it, has another best",
    "certificate.begun": "a candidate and its reference are run in pairs until a sequential test decides",
    "certificate.decided": "its test has decided; data says certified, refused or inconclusive, and why",
    "distil.begun": "a chain of keeps is run without one change at a time; data says in which tag",
    "distil.decided": "the smallest patch with the same score is known, or why there is none",
    "transfer.begun": "a keep and its reference are run in pairs at a longer budget; data says in which tag",
    "transfer.decided": "its gain transfers, is bound to its budget, or was not decided; data says why",
    "cron.paused": "the clock no longer fires a function",
    "cron.resumed": "the clock fires it again",
    "dimension.defined": "a tag has other dimensions; data says which were added, changed and removed",
    "dimension.wanted": "its search has begun, or stalls: more dimensions are welcome; data says why",
    "dimension.proposed": "it was proposed to a tag; data says in how many stall cycles by now",
    "dimension.adopted": "a proposed dimension is on trial; data says what a train.py needs for it",
    "dimension.promoted": "its trial improved the best: every config may vary it",
    "dimension.reverted": "its trial did not, and it was removed; data says why",
    "dimension.measured": "how much each dimension matters was measured; data has the shares",
    "dimension.frozen": "it stands at one value in every config; data says who froze it, where, and why",
    "dimension.unfrozen": "configs vary it again; data says who unfroze it, and why",
    "proposals.few": "half of the configs were handed out that wait for a population of a swarm",
    "hypothesis.proposed": "a claim is to be tested",
    "hypothesis.believed": "its status has changed; data says from what to what, with the figures",
    "hypothesis.settled": "supported, refuted or irrelevant, however often results are looked at",
    "graph.told": "a language model has told the graph of its hypotheses in prose",
    "journal.due": "so many results were learned from that a checkpoint is to be written",
    "journal.written": "it has another checkpoint; data says which, and what it tells of",
    "program.asked": "a language model is to write another version of it",
    "program.rebased": "the lab has another charter: the text around what is written of every tag",
    "program.written": "it has another version; data says by whom, and why",
    "pipeline.due": "a batch of results was learned from; only where programs are drafted ahead",
    "pipeline.drafting": "the next program is drafted; data says what its batch is predicted to decide",
    "pipeline.ready": "the draft is written",
    "pipeline.confirmed": "its batch has decided what the draft predicts",
    "pipeline.flushed": "the draft was dropped; data says why",
    "selection.opened": "an agent was given what to build on",
    "selection.committed": "its experiment became a node of its trace",
    "selection.released": "it was given back, or its experiment is no node",
    "selection.expired": "nothing was made of it in time",
    "strategy.changed": "a tag's search has another mode",
    "trace.opened": "a branch has its first node",
    "trace.ended": "a branch grows no further",
    "trace.reopened": "it may grow again",
    "gpu.registered": "a GPU joined the pool",
    "gpu.idle": "it may be lent",
    "gpu.leased": "an experiment holds it",
    "gpu.draining": "it takes no new run",
    "gpu.offline": "its worker is silent or gone",
    "gpu.unhealthy": "it is sick, or out for its crashes",
    "lab.audit_failed": "the audit found records that contradict each other",
    "tag.budget_changed": "its limits are others",
    "tag.budget_warning": "most of a limit is used",
    "tag.created": "a tag was set up",
    "tag.patches_archived": "old patches of it left Redis for the archive",
    "tag.paused": "none of its experiments begins",
    "tag.resumed": "they begin again, or its crashes in a row were forgiven",
    "worker.joined": "a machine serves a tag's swarm, or brought another baseline or GPU",
    "token.issued": "a new token may call the lab",
    "token.revoked": "a token opens nothing any more",
    "token.rotated": "a token has a new secret",
    "webhook.added": "a receiver gets events from now on",
    "webhook.removed": "it gets none any more",
    "webhook.disabled": "it failed too often, and gets none",
}
"""Meaning of every event type that a move emits. A test compares both lists. `kernel.own.load` adds your own."""

UNREADABLE = "event.unreadable"


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is no number in JSON")
    return value


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
"""Takes no NaN and no infinity: a browser cannot read what is sent of them."""


def _known(name: str) -> str:
    if name not in CATALOGUE:
        raise ValueError(f"there are no events of this type; the types are {', '.join(sorted(CATALOGUE))}")
    return name


def _choices(schema: dict[str, Any]) -> None:
    schema["enum"] = [*CATALOGUE]


EventType = Annotated[str, AfterValidator(_known), Field(json_schema_extra=_choices)]
"""A type of the catalogue, in a request."""


@dataclass(frozen=True)
class Event:
    """One entry of the lab's stream, in CloudEvents' names."""

    id: str
    """The entry's id in the stream that it was read from, `<milliseconds>-<n>`."""
    type: str
    time: str
    """RFC 3339, from Redis' clock."""
    lab: str
    tag: str | None
    subject: str
    data: Mapping[str, Any]
    trace: str | None
    origin: str | None = None
    """Id of a redriven event in the lab's stream."""

    def envelope(self) -> dict[str, Any]:
        """The event as subscribers receive it; `id` is its place in the lab's stream."""
        return {
            "id": self.origin or self.id,
            "type": self.type,
            "time": self.time,
            "lab": self.lab,
            "tag": self.tag,
            "subject": self.subject,
            "data": dict(self.data),
            "trace": self.trace,
        }

    @classmethod
    def parse(cls, lab: str, entry_id: str, fields: Mapping[str, str]) -> Event:
        """An entry as `XREADGROUP` returns it; one that cannot be read becomes `unreadable`."""
        try:
            data = _JSON.decode(fields["data"])
            if not isinstance(data, dict):
                return cls.unreadable(lab, entry_id, fields)
            return cls(
                id=entry_id,
                type=fields["type"],
                time=fields["time"],
                lab=lab,
                tag=fields["tag"] or None,
                subject=fields["subject"],
                data=data,
                trace=fields.get("trace") or None,
                origin=fields.get("origin") or None,
            )
        except (KeyError, ValueError, RecursionError):
            return cls.unreadable(lab, entry_id, fields)

    @classmethod
    def unreadable(cls, lab: str, entry_id: str, fields: Mapping[str, str]) -> Event:
        """An entry that no script of ours wrote: it goes to the dead letters, and stops nothing."""
        return cls(
            id=entry_id, type=UNREADABLE, time="", lab=lab, tag=None, subject="", data=fields, trace=None
        )

    def facts(self) -> dict[str, Any]:
        """Values for the request of a function that this event fires, by field name."""
        return {"tag": self.tag, **self.data}
