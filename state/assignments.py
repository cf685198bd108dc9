"""Assignments: what a worker is to train under one lease, signed by the process that hands it out.

Workers can write most keys of a lab, and a worker's machine may be a stranger's: what others run is not taken from
these. From its registration on, what was decided of an experiment stands in `decided:<tag>`, which no worker can
write or read. The process that dispatches it makes an assignment of that, and signs it with a key of its own, which
stays in its memory. The public half of the key stands in `signing_keys:<id>`, which workers can read and not write.
"""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from state.client import Lab
from state.decided import Decided, fields_for
from state.errors import NightjarError
from state.ids import named_by
from state.records import Experiment
from state.signing import Signer, is_signed

KEY_TTL_S = 24 * 3600
"""A key is published every hour in which it signs: no assignment waits for its worker longer than its lease lasts."""


class Forged(NightjarError):
    """The lab has not assigned this."""

    title = "Forged assignment"


class Assignment(BaseModel):
    """Everything that decides what a worker runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lab: str
    """Its identity: an assignment of the lab that a restored one was made from is void."""
    gpu_id: str
    experiment_id: str
    attempt: int
    fence: int
    commit_sha: str
    diff_id: str | None
    """SHA-256 of the patch that was registered."""
    config_delta: dict[str, Any] | None
    seed: int | None
    base_commit: str | None
    metric: str
    evaluator: str
    evaluator_files: list[str]
    evaluator_command: str | None
    budget_s: float
    timeout_s: float


class Assignments:
    """Makes, signs and checks them."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys
        self._signer = Signer()
        self._publish_at = 0.0
        """By this process's own clock."""

    async def decided(self, experiment_id: str) -> Decided:
        """What was decided of an experiment and its tag."""
        _, tag = named_by(experiment_id)
        fields = fields_for(experiment_id)
        return Decided(*await self._lab.command("HMGET", self._keys("decided", tag), *fields))

    def of(self, decided: Decided, e: Experiment, gpu_id: str, fence: int) -> Assignment | None:
        """What a worker is to train under a lease; None where the lab has registered no such run."""
        values = decided.values()
        if values is None:
            return None
        return Assignment(
            lab=self._lab.identity,
            gpu_id=gpu_id,
            experiment_id=e.experiment_id,
            attempt=e.attempt,
            fence=fence,
            **values,
        )

    async def signed(self, assignment: Assignment, *, again: bool = False) -> str:
        """The assignment as it is handed to its worker, who can find the key that it is signed with.

        `again`: it was handed over before, and not begun. Redis may have lost the key, which is published once more.
        """
        signer, text, now = self._signer, assignment.model_dump_json(), time.monotonic()
        if again or now >= self._publish_at:
            await self._lab.command("SET", self._key(signer.key_id), signer.public, "EX", KEY_TTL_S)
            self._publish_at = now + KEY_TTL_S / 24
        return f"{signer.key_id} {signer.sign(text)} {text}"

    async def checked(self, signed: str | None, **expected: str | int | None) -> Assignment:
        """The assignment that was handed over.

        Raises:
            Forged: the lab has not signed it, or it is for another lab, GPU or lease than `expected`.
        """
        if signed is None:
            raise Forged("it carries no assignment")
        key_id, _, rest = signed.partition(" ")
        signature, _, text = rest.partition(" ")
        public = await self._lab.command("GET", self._key(key_id)) if key_id.isalnum() else None
        if public is None:
            raise Forged("its assignment is signed with a key that is none of the lab's")
        if not is_signed(text, signature, public):
            raise Forged("its assignment is not what was signed")
        try:
            assignment = Assignment.model_validate_json(text)
        except ValidationError:
            raise Forged("its assignment is of another version of Nightjar") from None
        for name, value in {"lab": self._lab.identity, **expected}.items():
            if getattr(assignment, name) != value:
                raise Forged(f"its assignment is for another {name}")
        return assignment

    async def check_access(self) -> None:
        """Look whether a worker can check what it is handed.

        Raises:
            Unavailable: its Redis user may not read the keys that it is signed with.
        """
        await self._lab.command("EXISTS", self._key(""))

    def _key(self, key_id: str) -> str:
        return self._keys("signing_keys", key_id)
