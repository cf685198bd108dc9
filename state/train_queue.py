"""Queues of work for the workers: one RQ queue for each GPU, and one for the lane `pi`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from state.connection import connection_options, unavailable
from state.redis_urls import client_of


def broker(url: str) -> redis.Redis:
    """RQ's own connection: writes are not retried; RQ sets a timeout that leaves room for its blocking reads."""
    return client_of(
        url, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=None, **connection_options(url)
    )


@contextmanager
def plainly() -> Iterator[None]:
    """Raise Unavailable for Redis' errors in RQ."""
    try:
        yield
    except RedisError as problem:
        raise unavailable(problem) from problem


class Broker:
    """A process's connection to the Redis of RQ's queues, for enqueueing alone."""

    def __init__(self, lab: str, url: str, timeout_s: float = 5.0) -> None:
        self._lab = lab
        self._connection = client_of(
            url, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=timeout_s, **connection_options(url)
        )

    def close(self) -> None:
        self._connection.close()


class TrainQueue(Broker):
    """Rings for the workers of GPUs."""

    async def enqueue(self, gpu_id: str, payload: Mapping[str, Any], timeout_s: float | None) -> bool:
        """Ring for an attempt; False if that bell waits already. Raises Unavailable: no answer."""

        def ring() -> bool:
            # here: RQ takes 0.05 s to import, and only those who dispatch need it
            from state.rq_jobs import enqueue_run

            return enqueue_run(self._connection, self._lab, gpu_id, payload, timeout_s)

        with plainly():
            return await asyncio.to_thread(ring)


class PiQueue(Broker):
    """Hands what a language model is to write to the lane `pi`."""

    async def enqueue(
        self, function: str, tag: str, number: int, *, attempt: int = 1, longest_s: float
    ) -> bool:
        """Have a function of the lane called with a tag and a number; False where that waits already.

        `longest_s`: what the language model may take.

        Raises:
            Unavailable: the broker does not answer.
        """

        def hand_over() -> bool:
            from state.rq_jobs import enqueue_writing  # here, as above

            return enqueue_writing(self._connection, self._lab, function, tag, number, attempt, longest_s)

        with plainly():
            return await asyncio.to_thread(hand_over)
