"""Requests to a provider of a language model, and their possible replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from functions.pi.rules.authoring import Used

MOST_WRITTEN: Final = 16_000
"""Most tokens of one reply, thinking included; a filled-in form has a few thousand."""


@dataclass(frozen=True)
class FormRequest:
    system: str
    """Equal for all requests of one form, so that providers can cache it."""
    prompt: str
    form: str
    about: str
    """Purpose of the form, in a sentence."""
    schema: Mapping[str, Any]
    """JSON Schema without references."""


@dataclass(frozen=True)
class Filled:
    """The form came back. It is not validated yet."""

    fields: object
    """The model's text: an object, or JSON text."""
    used: Used | None


@dataclass(frozen=True)
class Garbled:
    """The reply cannot be read as a form."""

    problem: str
    used: Used | None = None


@dataclass(frozen=True)
class ModelRefused:
    """The model, or the provider's filter, refuses the task."""

    reason: str
    used: Used | None = None


@dataclass(frozen=True)
class ProviderBusy:
    """The provider's rate limit is reached; the request was free."""

    detail: str
    asked_s: float | None
    """Seconds that the provider asks to wait."""


@dataclass(frozen=True)
class ProviderFailed:
    """The provider could not be reached, or could not answer."""

    detail: str
    may_pass: bool
    """Whether it may succeed if it is sent again."""
    is_free: bool
    """Whether the request certainly was free."""
    asked_s: float | None = None
    status: int | None = None
    """Status of the HTTP response, if there was one."""


Reply = Filled | Garbled | ModelRefused | ProviderBusy | ProviderFailed


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def ask(self, request: FormRequest) -> Reply:
        """Send the request once; errors of the provider are replies, not exceptions."""
        ...
