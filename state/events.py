"""The lab's events: their catalogue, their envelope, and the stream they stand in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator

CATALOGUE = frozenset(
    {
        "experiment.confirmed",
        "experiment.demoted",
        "experiment.promoted",
        "experiment.registered",
        "experiment.queued",
        "experiment.leased",
        "experiment.started",
        "experiment.finished",
        "experiment.lost",
        "experiment.retesting",
        "experiment.retested",
        "experiment.unconfirmed",
        "best.changed",
        "cron.paused",
        "cron.resumed",
        "selection.opened",
        "selection.committed",
        "selection.released",
        "selection.expired",
        "strategy.changed",
        "trace.opened",
        "trace.ended",
        "trace.reopened",
        "gpu.registered",
        "gpu.idle",
        "gpu.leased",
        "gpu.draining",
        "gpu.offline",
        "gpu.unhealthy",
        "lab.audit_failed",
        "tag.budget_changed",
        "tag.budget_warning",
        "tag.created",
        "tag.paused",
        "tag.resumed",
        "token.issued",
        "token.revoked",
        "token.rotated",
        "webhook.added",
        "webhook.removed",
        "webhook.disabled",
    }
)
"""Every event type that a script of `state/lua` emits; a test keeps the two equal."""


UNREADABLE = "event.unreadable"


def _known(name: str) -> str:
    if name not in CATALOGUE:
        raise ValueError(f"there are no events of this type; the types are {', '.join(sorted(CATALOGUE))}")
    return name


EventType = Annotated[str, AfterValidator(_known)]
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
    """Of a redriven event: its id in the lab's stream."""

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
            data = json.loads(fields["data"])
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
        """What a function fired by this event may take into its request, by field name."""
        return {"tag": self.tag, **self.data}
