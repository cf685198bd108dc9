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
from state.events import SENTENCES

SECRET_PREFIX = "whsec_"
LONGEST = 1500
"""Characters of a sentence; Discord takes 2,000."""
INVISIBLE = "\u200b"

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
