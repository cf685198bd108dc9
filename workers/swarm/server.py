"""The routes of a swarm, as a worker calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from functions.process.joined import Joined
from state.errors import NightjarError, Unavailable
from state.ids import Id
from state.policy import TickSource
from workers.remote.client import TIMEOUT, bearing, silent, told

TICK_TIMEOUT = httpx.Timeout(3.0)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


Answer = TypeVar("Answer", bound=_Answer)


class Registered(_Answer):
    message: str
    worker_token: SecretStr | None = None
    current_program_md: str = ""


class Assignment(_Answer):
    """What to run next."""

    exp_id: Id
    config_delta: dict[str, Any]
    """Constants of train.py to set: JSON's own types, as the server has sent them."""
    budget_seconds: float
    note: str = ""
    tick_source: TickSource = "report"
    """Where its ticks come from."""


class Told(_Answer):
    """What a tick is answered."""

    action: str | None = None
    reason: str = ""
    budget: float | None = None


class Handed(_Answer):
    total_experiments: int


class Varied(_Answer):
    """A constant that the swarm varies."""

    name: str
    frozen: bool = False
    is_canary: bool = False
    default_value: Any = None

    @property
    def on_trial(self) -> bool:
        """Most configs leave it out: a script without it runs those."""
        return self.is_canary and not self.frozen and self.default_value is not None


class Synced(_Answer):
    program_md: str = ""
    dimensions: Sequence[Varied] = ()
    budget_seconds: float | None = None
    """Of a run that is not extended; None where the server does not say."""


class PipelineStatus(_Answer):
    """How the draft of the swarm's next program stands."""

    spec_state: str | None = None
    spec_id: str | None = None
    deploy_allowed: bool = False
    last_flush_token: str | None = None


class Preload(_Answer):
    """A draft of the swarm's next program, whole."""

    spec_id: str
    program_md: str


class Peek(_Answer):
    """What can be seen of a swarm before one is in it; None where it is not shown."""

    base_s: float | None = None
    varied: list[Varied] | None = None


class Server:
    """One swarm, for one worker.

    Each call raises a NightjarError for what the server refuses, and Unavailable where it does not answer, or asks us
    to come later.
    """

    def __init__(self, joined: Joined, http: httpx.AsyncClient) -> None:
        self.url = joined.url
        self._worker_id = joined.name
        self._http = http
        self._headers = bearing(joined.token)
        self._known: tuple[str | None, Synced] = (None, Synced())
        """What it last said to `sync`, and the name of that."""

    def bear(self, token: SecretStr | None) -> None:
        """Speak as the bearer of this token from now on."""
        self._headers = bearing(token)

    async def health(self) -> None:
        """See that a swarm answers here."""
        await self._ask("GET", "/health")

    async def register(self, request: Mapping[str, Any]) -> Registered:
        """Enter the swarm, or say again with which baseline."""
        sent = {"worker_id": self._worker_id, **request}
        return self._read(Registered, await self._ask("POST", "/register", sent))

    async def next_config(self) -> Assignment:
        """The next assignment; the present one once more, where its result was not handed in."""
        return self._read(Assignment, await self._ask("GET", f"/next_config/{self._worker_id}"))

    async def tick(self, request: Mapping[str, Any]) -> Told:
        """Report how far a run is."""
        return self._read(Told, await self._ask("POST", "/tick", request, timeout=TICK_TIMEOUT))

    async def result(self, request: Mapping[str, Any]) -> Handed:
        """Hand a result in; the same one twice is answered the same."""
        return self._read(Handed, await self._ask("POST", "/result", request))

    async def sync(self) -> Synced:
        """What the swarm knows; read once more only where it has changed."""
        etag, synced = self._known
        headers = {} if etag is None else {"If-None-Match": etag}
        answer = await self._sent("GET", f"/sync/{self._worker_id}", None, headers, TIMEOUT)
        if answer.status_code != httpx.codes.NOT_MODIFIED:
            synced = self._read(Synced, told(self.url, answer))
            self._known = answer.headers.get("etag"), synced
        return synced

    async def pipeline(self, tag: str | None) -> PipelineStatus:
        """How the draft of a swarm's next program stands."""
        return self._read(PipelineStatus, await self._ask("GET", f"/pipeline/status{_about(tag)}"))

    async def preload(self, tag: str | None) -> Preload | None:
        """The draft; None while none is ready."""
        answer = await self._sent("GET", f"/pipeline/spec_payload{_about(tag)}", None, {}, TIMEOUT)
        if answer.status_code == httpx.codes.NO_CONTENT:
            return None
        return self._read(Preload, told(self.url, answer))

    async def peek(self, tag: str) -> Peek:
        """Its base budget and its dimensions, where this caller may read them."""
        base_s: float | None = None
        varied: list[Varied] | None = None
        with suppress(NightjarError, KeyError, TypeError, ValueError):
            base_s = float((await self._ask("GET", f"/health{_about(tag)}"))["budget_seconds"])
        with suppress(NightjarError, KeyError, TypeError, ValidationError):
            found = await self._ask("POST", "/api/dimension/list", {"tag": tag})
            varied = [Varied.model_validate(dimension) for dimension in found["dimensions"]]
        return Peek(base_s=base_s, varied=varied)

    async def _ask(
        self,
        method: str,
        path: str,
        request: Mapping[str, Any] | None = None,
        *,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> dict[str, Any]:
        return told(self.url, await self._sent(method, path, request, {}, timeout))

    async def _sent(
        self,
        method: str,
        path: str,
        request: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        timeout: httpx.Timeout,
    ) -> httpx.Response:
        try:
            return await self._http.request(
                method, path, json=request, headers={**self._headers, **headers}, timeout=timeout
            )
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise silent(self.url, problem) from problem

    def _read(self, kind: type[Answer], answer: Mapping[str, Any]) -> Answer:
        try:
            return kind.model_validate(answer)
        except ValidationError as problem:
            raise Unavailable(
                f"{self.url} gave no answer of a swarm ({kind.__name__}): {problem.errors()[0]['msg']}",
                hint="is --url right, and the server's version?",
                retry_after=1.0,
            ) from problem


def _about(tag: str | None) -> str:
    """The query of a route that is about one swarm."""
    return "" if tag is None else f"?tag={tag}"
