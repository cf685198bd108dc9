"""Webhook messages: the event, one sentence for people, and the signature (Standard Webhooks)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from functions.formats.digits import figure

SECRET_PREFIX = "whsec_"
LONGEST = 1500
"""Characters of a sentence; Discord takes 2,000."""
INVISIBLE = "\u200b"

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


VALUES = ("val_bpb", "judged_val_bpb", "reported", "late_val_bpb")
"""Values of a tag's metric in an event's data."""


class _Facts(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "unknown"


def sentence(envelope: Mapping[str, Any], sigma: float | None = None) -> str:
    """One sentence on an event of a tag with this noise. Texts of agents in it cannot mention, link or format."""
    facts = {**envelope["data"], "tag": envelope["tag"], "subject": envelope["subject"]}
    if "status" in facts:
        facts["outcome"] = ", ".join(str(facts[name]) for name in ("status", "trust") if facts.get(name))
    for name in VALUES:
        if isinstance(facts.get(name), float):
            facts[name] = figure(facts[name], sigma)
    plain = _Facts({name: harmless(value) for name, value in facts.items()})
    pattern = SENTENCES.get(envelope["type"])
    text = pattern.format_map(plain) if pattern else f"{harmless(envelope['type'])}: {plain['subject']}"
    return f"[{harmless(envelope['lab'])}] {text}"[:LONGEST]


def harmless(value: object) -> str:
    """A value as text in which Slack and Discord see no mention, no link and no markup."""
    text = "unknown" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text[:300].split())
    for sign in "@:*`~|[]":
        text = text.replace(sign, sign + INVISIBLE)
    return text.replace("<", "‹").replace(">", "›").replace("&", "＆")


def payload(envelope: Mapping[str, Any], sigma: float | None = None) -> bytes:
    """The body: `type`, `timestamp` and `data` as the standard asks, the rest of the envelope, and the sentence.

    Slack shows `text`, Discord `content`, each as it is; `allowed_mentions` keeps Discord from notifying anyone.
    """
    said = sentence(envelope, sigma)
    rest = {name: envelope[name] for name in ("id", "lab", "tag", "subject", "trace")}
    body = {
        "type": envelope["type"],
        "timestamp": envelope["time"],
        "data": envelope["data"],
        **rest,
        "text": said,
        "content": said,
        "allowed_mentions": {"parse": []},
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def message_id(event_id: str, webhook_id: str) -> str:
    """The same for every delivery of one event to one receiver."""
    return f"msg_{webhook_id}_{event_id}"


def signed(secret: str, message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one delivery attempt, at `timestamp` in seconds since 1970."""
    content = f"{message}.{timestamp}.".encode() + body
    digest = hmac.new(key_of(secret), content, hashlib.sha256).digest()
    return {
        "content-type": "application/json",
        "user-agent": "Nightjar",
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def key_of(secret: str) -> bytes:
    """The key within `whsec_<base64>`. Raises ValueError: not that form, or not 24 to 64 bytes."""
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError("a secret begins with whsec_")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("a secret is whsec_ and base64") from None
    if not 24 <= len(key) <= 64:
        raise ValueError("a secret has 24 to 64 bytes")
    return key
