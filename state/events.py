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
SENTENCES: Mapping[str, str] = {
    "agent.limited": "{subject} has met a usage limit on {tag}; it is started again at {until}: {said}",
    "experiment.registered": "{subject} was registered: {hypothesis}",
    "experiment.queued": "{subject} waits for a GPU.",
    "experiment.leased": "{subject} got {gpu_id}.",
    "experiment.started": "{subject} has begun to train.",
    "experiment.finished": "{subject} finished: {outcome}, value {val_bpb} ({description})",
    "experiment.lost": "{subject} was lost: {reason}",
    "experiment.contended": "{subject} was disturbed on {gpu_id}: {reason}",
    "experiment.confirmed": "{subject} was run again and is confirmed as the best to build on: {base_commit_sha}",
    "experiment.revalued": "further runs contradict the first of {subject}: it is worth {judged_val_bpb} now",
    "experiment.demoted": "further runs did not bear {subject} out: it is a discard, build on {base_commit_sha}",
    "experiment.promoted": "{subject} was run again and is kept after all: build on {base_commit_sha}",
    "experiment.refuted": "{subject} measured {val_bpb}, not {reported} as its agent said: it stays a discard.",
    "experiment.retracted": "{subject} was retracted ({reason}); the best is {best_experiment_id} now.",
    "certificate.begun": "{subject} is run beside {against}, in pairs, for a certificate.",
    "certificate.decided": "{subject} against {against}, after {pairs} pairs: {state}. {reason}",
    "distil.begun": "{tag} is distilled: {changes} changes, in at most {most_runs} runs of {subject}.",
    "distil.decided": "{tag} is distilled ({state}): {kept} of {changes} changes matter, after {runs} runs. {reason}",
    "transfer.begun": "{subject} and {against} are run at {budget_s} s each, in {into}.",
    "transfer.decided": "{subject} at {budget_s} s, after {pairs} pairs: {state}. {reason}",
    "run.ticked": "{subject} has {metric} at {bucket} of its run.",
    "run.stopping": "{subject} is stopped early, at {bucket} of its run: its rank is {rank} of 100.",
    "run.extended": "{subject} uses the {extra_s} s that it was given: it has {metric} at {progress} of its budget.",
    "run.reported_late": "{subject} was stopped, and has sent {late_val_bpb} since: that is judged by nothing.",
    "worker.joined": "{worker_id} ({gpu_type}) serves the swarm of {tag}.",
    "best.changed": "New best of {tag}: {subject} with {val_bpb}.",
    "strategy.changed": "{tag} now searches in mode {mode}: {reason}",
    "dimension.defined": "{tag} may be varied in {count} dimensions now.",
    "dimension.wanted": "{tag} could use more dimensions ({why}), after {results} results.",
    "dimension.proposed": "{subject} was proposed as a dimension of {tag}, in {signal_count} stall cycles by now.",
    "dimension.adopted": "{subject} of {tag} is on trial: a train.py needs {train_py_line}",
    "dimension.promoted": "{subject} is a dimension of {tag} from now on: {reason}",
    "dimension.reverted": "{subject} is no dimension of {tag} any more: {reason}",
    "dimension.measured": "how much the dimensions of {tag} matter is measured on {results} results",
    "dimension.frozen": "{subject} of {tag} is frozen at {value} by {by}: {reason}",
    "dimension.unfrozen": "{subject} of {tag} may vary again, says {by}: {reason}",
    "proposals.few": "{left} configs wait for {subject} of {tag}.",
    "hypothesis.proposed": "{subject} of {tag} is to be tested: {statement}",
    "hypothesis.believed": "{subject} of {tag} is {status} now, P = {posterior}: {statement}",
    "hypothesis.settled": "{subject} of {tag} is settled as {settled}: {statement}",
    "program.asked": "Version {number} of the program of {tag} is to be written: {reason}.",
    "program.rebased": "The lab has another charter, {digest}.",
    "program.written": "Version {number} of the program of {tag} was written by {author}: {reason}.",
    "graph.told": "{author} has told the hypotheses of {tag} in prose.",
    "journal.due": "{results} results of {tag} were learned from.",
    "journal.written": (
        "Checkpoint {number} of {tag}, at {results} results: {eliminated} hypotheses eliminated, {proposed} new."
    ),
    "pipeline.due": "{results} results of {tag} were learned from: a batch is over.",
    "pipeline.drafting": "{subject} is drafted for batch {batch_id} of {tag}, with confidence {confidence}.",
    "pipeline.ready": "{subject} is ready, before batch {batch_id} of {tag} is over.",
    "pipeline.confirmed": "{subject} holds: batch {batch_id} of {tag} decided what it predicts.",
    "pipeline.flushed": "{subject} was dropped ({reason}); the trust in the drafts of {tag} is {bank} now.",
    "gpu.registered": "{subject} joined the pool.",
    "gpu.idle": "{subject} is idle.",
    "gpu.leased": "{subject} was lent to {experiment_id}.",
    "gpu.draining": "{subject} takes no more runs: {reason}",
    "gpu.offline": "{subject} is offline: {reason}",
    "gpu.unhealthy": "{subject} is unhealthy: {reason}",
    "lab.audit_failed": "The audit found {count} violations.",
    "tag.created": "{tag} was opened.",
    "tag.paused": "{tag} is paused: {reason}",
    "tag.resumed": "{tag} was resumed.",
    "tag.budget_changed": (
        "{tag} may use {gpu_seconds} GPU seconds, {runs} runs and {patch_bytes} bytes of patches (None: no limit)."
    ),
    "tag.budget_warning": "{tag} has used most of its {resource}: {spent} spent, {reserved} reserved of {limit}.",
    "tag.patches_archived": "{patches} old patches of {tag} moved to the archive ({bytes} bytes).",
    "cron.paused": "The clock no longer fires {subject}: {reason}",
    "cron.resumed": "The clock fires {subject} again.",
    "webhook.added": "The webhook {subject} was added.",
    "webhook.removed": "The webhook {subject} was removed.",
    "webhook.disabled": "The webhook {subject} was disabled: {reason}",
    "webhook.test": "This is a test of the webhook {subject}.",
}
"""Sentences for people; a type without one is shown by its name."""

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
        told = {name: getattr(self, name) for name in ("type", "time", "lab", "tag", "subject")}
        return {"id": self.origin or self.id, **told, "data": dict(self.data), "trace": self.trace}

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
