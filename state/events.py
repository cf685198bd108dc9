"""The lab's events: their catalogue, their envelope, and the stream they stand in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CATALOGUE = frozenset(
    {
        "experiment.registered",
        "experiment.queued",
        "experiment.leased",
        "experiment.started",
        "experiment.finished",
        "experiment.lost",
        "best.changed",
        "cron.paused",
        "cron.resumed",
        "strategy.changed",
        "gpu.registered",
        "gpu.idle",
        "gpu.leased",
        "gpu.draining",
        "gpu.offline",
        "gpu.unhealthy",
        "lab.audit_failed",
        "tag.created",
        "tag.resumed",
    }
)
"""Every event type that a script of `state/lua` emits; a test keeps the two equal."""


UNREADABLE = "event.unreadable"


@dataclass(frozen=True)
class Event:
    """One entry of the lab's stream, in CloudEvents' names."""

    id: str
    """Stream id, `<milliseconds>-<n>`."""
    type: str
    time: str
    """RFC 3339, from Redis' clock."""
    lab: str
    tag: str | None
    subject: str
    data: Mapping[str, Any]
    trace: str | None

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
