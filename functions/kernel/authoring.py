"""The lane `pi`: the keys of language models, whether the lab needs the lane, and how to ask it for a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from pydantic import SecretStr

from state.errors import Invalid
from state.presence import Presence
from state.settings import Settings
from state.train_queue import PiQueue

ProviderName = Literal["anthropic", "openai", "gemini"]
PROVIDERS: Final[tuple[ProviderName, ...]] = get_args(ProviderName)


def key_of(settings: Settings, name: ProviderName) -> SecretStr | None:
    """The key of a provider's API; None: there is none."""
    keys = {
        "anthropic": settings.anthropic_api_key,
        "openai": settings.openai_api_key,
        "gemini": settings.gemini_api_key,
    }
    return keys[name]


def named_key(settings: Settings, name: ProviderName) -> SecretStr:
    """The key of the provider that the settings name. Raises Invalid: there is none."""
    key = key_of(settings, name)
    if key is None:
        raise Invalid(
            f"NIGHTJAR_LLM_PROVIDER is {name}, but there is no key of it",
            hint=f"set {name.upper()}_API_KEY, or NIGHTJAR_LLM_PROVIDER=none to do without a language model",
        )
    return key


def may_write(settings: Settings) -> bool:
    """Whether the lab runs the lane `pi`: a language model is set up. Raises Invalid: it has no key."""
    match settings.llm_provider:
        case "none":
            return False
        case "auto":
            return any(key_of(settings, name) is not None for name in PROVIDERS)
        case name:
            return bool(named_key(settings, name))


@dataclass(frozen=True)
class PiLane:
    """The lane `pi`, for callers who want a text."""

    presence: Presence
    queue: PiQueue
    settings: Settings

    async def asked(self, function: str, tag: str, number: int) -> bool:
        """Queue a call in the lane; False: no process has a language model. Raises Unavailable: the broker."""
        if await self.presence.author(self.settings.stale_s) is None:
            return False
        await self.queue.enqueue(function, tag, number, longest_s=self.settings.llm_timeout_s)
        return True
