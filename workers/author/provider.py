"""What a provider of a language model is asked, and how that may end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from functions.rules.authoring import Used

MOST_WRITTEN: Final = 16_000
"""Tokens that a model may write in one reply, its thinking included; a filled-in form has at most a few thousand."""


@dataclass(frozen=True)
class FormRequest:
    """A form to be filled in."""

    system: str
    """The same for all requests of one form, so that providers can cache it."""
    prompt: str
    form: str
    """The form's name."""
    about: str
    """What the form is for, in a sentence."""
    schema: Mapping[str, Any]
    """JSON Schema without references."""


@dataclass(frozen=True)
class Filled:
    """The form came back; whether it is filled in well is still to be seen."""

    fields: object
    """What the model has written: an object, or JSON text."""
    used: Used | None
    """None: the provider has not told."""


@dataclass(frozen=True)
class Garbled:
    """A reply came that cannot be read as a form."""

    problem: str
    used: Used | None = None


@dataclass(frozen=True)
class ModelRefused:
    """The model, or the provider's filter, refuses the task."""

    reason: str
    used: Used | None = None


@dataclass(frozen=True)
class ProviderBusy:
    """The provider's rate limit is reached; the request has cost nothing."""

    detail: str
    asked_s: float | None
    """Seconds that the provider asks to wait."""


@dataclass(frozen=True)
class ProviderFailed:
    """The provider could not be reached, or could not answer."""

    detail: str
    may_pass: bool
    """It may succeed if it is sent again."""
    is_free: bool
    """It is certain that the request has cost nothing."""
    asked_s: float | None = None
    status: int | None = None
    """Of the HTTP response, if there was one."""


Reply = Filled | Garbled | ModelRefused | ProviderBusy | ProviderFailed


class Provider(Protocol):
    """One model of one provider."""

    @property
    def name(self) -> str:
        """The provider's name in settings and metrics."""
        ...

    @property
    def model(self) -> str: ...

    async def ask(self, request: FormRequest) -> Reply:
        """Send the request once; raises nothing for what the provider does."""
        ...
