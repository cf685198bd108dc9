"""The RQ jobs of the lane `pi`: a job can only have something written of one tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis
from rq import Queue
from rq.serializers import JSONSerializer

from state.rq_jobs import CheckedJob, CheckedQueue, enqueue_once, escaped

LONGEST_S = 120.0
"""Most seconds of a job, the language model aside."""


class PiJob(CheckedJob):
    """A job that can call one function of the lane for one tag. Its id names both."""

    ENTRY = "workers.pi.perform"

    def is_ours(self, function: str, payload: Mapping[str, Any]) -> bool:
        """Whether its call matches its id."""
        match payload:
            case {"tag": str(tag), "number": int(n), **others}:
                return not others and self.id.endswith(_of(function, tag, n)) and n > 0
            case _:
                return False


def pi_queue(lab: str, connection: redis.Redis) -> Queue:
    return CheckedQueue(
        f"nightjar-{lab}-pi", connection=connection, job_class=PiJob, serializer=JSONSerializer
    )


def enqueue(
    connection: redis.Redis, lab: str, function: str, tag: str, number: int, attempt: int, longest_s: float
) -> bool:
    """Have a function of the lane called for a tag; False if that waits already."""
    queue = pi_queue(lab, connection)
    name = f"{escaped(lab)}_a{attempt}{_of(function, tag, number)}"
    payload = {"tag": tag, "number": number}
    return enqueue_once(queue, name, function, payload, LONGEST_S + longest_s, PiJob)


def _of(function: str, tag: str, number: int) -> str:
    """The end of a job's id."""
    return f"_p{escaped(function.replace('::', '-'))}-{escaped(tag)}-{number}"
