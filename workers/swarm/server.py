"""The routes of a swarm, as a worker calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from state.errors import NightjarError, Unavailable
from state.ids import Id
from state.policy import TickSource
from workers.lab_client import RemoteLab

CALLED = ("swarm::register", "swarm::result", "run::tick", "dimension::list")
TICK_TIMEOUT = httpx.Timeout(3.0)


class _SwarmAnswer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


Answer = TypeVar("Answer", bound=_SwarmAnswer)


class SwarmRegistered(_SwarmAnswer):
    message: str
    worker_token: SecretStr | None = None
    current_program_md: str = ""


class SwarmAssignment(_SwarmAnswer):
    """What to run next."""

    exp_id: Id
    config_delta: dict[str, Any]
    """Constants of train.py to set: JSON's own types, as the server has sent them."""
    budget_seconds: float
    note: str = ""
    tick_source: TickSource = "report"
    """Where its ticks come from."""


class TickAnswer(_SwarmAnswer):
    action: str | None = None
    reason: str = ""
    budget: float | None = None


class ResultAnswer(_SwarmAnswer):
    total_experiments: int


class VariedConstant(_SwarmAnswer):
    """A constant that the swarm varies."""

    name: str
    frozen: bool = False
    is_canary: bool = False
    default_value: Any = None

    @property
    def on_trial(self) -> bool:
        """Whether it is a canary. Most configs leave it out, and a script without the constant can run those."""
        return self.is_canary and not self.frozen and self.default_value is not None


class SwarmSync(_SwarmAnswer):
    program_md: str = ""
    dimensions: Sequence[VariedConstant] = ()
    budget_seconds: float | None = None
    """Seconds of a run that is not extended. None: the server does not say."""


class DraftStatus(_SwarmAnswer):
    spec_state: str | None = None
    spec_id: str | None = None
    deploy_allowed: bool = False
    last_flush_token: str | None = None


class PreloadedDraft(_SwarmAnswer):
    """The text of a draft of the swarm's next program."""

    spec_id: str
    program_md: str


class SwarmServer:
    """One swarm, for one worker.

    Each call raises a NightjarError if the server refuses it, and Unavailable if there is no answer or we should
    retry.
    """

    def __init__(self, lab: RemoteLab) -> None:
        self.lab = lab
        self._worker_id = lab.remote.name
        self._known: tuple[str | None, SwarmSync] = (None, SwarmSync())
        """ETag and content of the last answer to `sync`."""

    async def health(self) -> None:
        """Check that a swarm answers here."""
        await self._get("/health")

    async def register(self, request: Mapping[str, Any]) -> SwarmRegistered:
        """Enter the swarm, or update the baseline."""
        sent = {"worker_id": self._worker_id, **request}
        return self._read(SwarmRegistered, await self.lab.call("swarm::register", sent))

    async def next_config(self) -> SwarmAssignment:
        """The next assignment; the present one again if its result was not handed in."""
        return self._read(SwarmAssignment, await self._get(f"/next_config/{self._worker_id}"))

    async def tick(self, request: Mapping[str, Any]) -> TickAnswer:
        return self._read(TickAnswer, await self.lab.call("run::tick", request, timeout=TICK_TIMEOUT))

    async def result(self, function: str, request: Mapping[str, Any]) -> ResultAnswer:
        """Hand in a result. A repetition gets the same answer."""
        return self._read(ResultAnswer, await self.lab.call(function, request))

    async def sync(self) -> SwarmSync:
        """The swarm's program, dimensions and budget, from memory if they have not changed."""
        etag, synced = self._known
        headers = {} if etag is None else {"If-None-Match": etag}
        answer = await self.lab.sent("GET", f"/sync/{self._worker_id}", headers=headers)
        if answer.status_code != httpx.codes.NOT_MODIFIED:
            synced = self._read(SwarmSync, self.lab.told(answer))
            self._known = answer.headers.get("etag"), synced
        return synced

    async def pipeline(self, tag: str | None) -> DraftStatus:
        """How the draft of a swarm's next program stands."""
        return self._read(DraftStatus, await self._get(f"/pipeline/status{_about(tag)}"))

    async def preload(self, tag: str | None) -> PreloadedDraft | None:
        """The draft; None while none is ready."""
        answer = await self.lab.sent("GET", f"/pipeline/spec_payload{_about(tag)}")
        if answer.status_code == httpx.codes.NO_CONTENT:
            return None
        return self._read(PreloadedDraft, self.lab.told(answer))

    async def peek(self, tag: str) -> SwarmSync:
        """Its budget and its dimensions before the worker has joined, as far as it may read them."""
        seen = SwarmSync()
        with suppress(NightjarError, KeyError):
            budget_s = (await self._get(f"/health{_about(tag)}"))["budget_seconds"]
            seen = self._read(SwarmSync, {"budget_seconds": budget_s})
        with suppress(NightjarError, KeyError):
            varied = (await self.lab.call("dimension::list", {"tag": tag}))["dimensions"]
            seen = self._read(SwarmSync, {"budget_seconds": seen.budget_seconds, "dimensions": varied})
        return seen

    async def _get(self, path: str) -> dict[str, Any]:
        return self.lab.told(await self.lab.sent("GET", path))

    def _read(self, kind: type[Answer], answer: Mapping[str, Any]) -> Answer:
        try:
            return kind.model_validate(answer)
        except ValidationError as problem:
            raise Unavailable(
                f"{self.lab.remote.url} gave no answer of a swarm ({kind.__name__}): {problem.errors()[0]['msg']}",
                hint="is --url right, and the server's version?",
                retry_after=1.0,
            ) from problem


def _about(tag: str | None) -> str:
    """The query string that names a swarm."""
    return "" if tag is None else f"?tag={tag}"
