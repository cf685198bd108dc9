"""The author that a lab's settings ask for: the language model they name, or the first provider with a key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

import httpx2
from pydantic import SecretStr

from functions.kernel.lanes import Author
from functions.kernel.process.author_keys import ProviderName, key_of, named_key
from functions.kernel.process.meters import Meters
from functions.kernel.process.redaction import hide
from functions.pi.rules.authoring import RequestBackoff, price_of
from state.author_budget import AuthorBudget, Cost
from state.client import Lab
from state.errors import Invalid
from state.settings import Settings
from workers.author.provider import Provider, bounded_client
from workers.author.writing import AuthorTerms, ModelAuthor

log = logging.getLogger(__name__)

MODELS: Final[dict[ProviderName, str]] = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-6.1-terra",
    "gemini": "gemini-3.8-flash",
}
"""Default model of each provider, in the order in which `auto` tries them."""
_PACKAGES: Final[dict[ProviderName, str]] = {
    "anthropic": "anthropic",
    "openai": "openai",
    "gemini": "google.genai",
}


@dataclass(frozen=True)
class ModelChoice:
    provider: ProviderName
    model: str
    key: SecretStr

    def build(self, http: httpx2.AsyncClient) -> Provider:
        """The provider; imports its SDK, which takes up to two seconds."""
        key = self.key.get_secret_value()
        match self.provider:
            case "anthropic":
                from workers.author.anthropic import Anthropic

                return Anthropic(key, self.model, http)
            case "openai":
                from workers.author.openai import OpenAI

                return OpenAI(key, self.model, http)
            case "gemini":
                from workers.author.gemini import Gemini

                return Gemini(key, self.model, http)


def choose(settings: Settings) -> ModelChoice | None:
    """The model that writes; None: texts come from templates. Raises Invalid: its provider has no key or SDK."""
    match settings.llm_provider:
        case "none":
            return None
        case "auto":
            return next(filter(None, (_offered(settings, name) for name in MODELS)), None)
        case name:
            return _named(settings, name)


def _offered(settings: Settings, name: ProviderName) -> ModelChoice | None:
    key = key_of(settings, name)
    if key is None:
        return None
    if not _installed(name):
        log.warning("there is a key of %s, but no SDK: %s", name, _remedy(name))
        return None
    return ModelChoice(name, settings.llm_model or MODELS[name], key)


def _named(settings: Settings, name: ProviderName) -> ModelChoice:
    key = named_key(settings, name)
    if not _installed(name):
        raise Invalid(f"NIGHTJAR_LLM_PROVIDER is {name}, but its SDK is not installed", hint=_remedy(name))
    return ModelChoice(name, settings.llm_model or MODELS[name], key)


def _installed(name: ProviderName) -> bool:
    try:
        return find_spec(_PACKAGES[name]) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _remedy(name: ProviderName) -> str:
    if name == "anthropic":
        return "install Nightjar anew: the package anthropic belongs to it"
    package = "google-genai" if name == "gemini" else name
    return f"pip install {package} where Nightjar is installed, or install 'nightjar[{name}]'"


@asynccontextmanager
async def author_for(
    settings: Settings, lab: Lab, meters: Meters, backoff: RequestBackoff | None = None
) -> AsyncIterator[Author | None]:
    """The author; None: no model is named. Raises Invalid: its provider cannot be used."""
    choice = choose(settings)
    if choice is None:
        log.info("no language model: texts come from templates (NIGHTJAR_LLM_PROVIDER, ANTHROPIC_API_KEY)")
        yield None
        return
    hide(choice.key.get_secret_value())
    price = price_of(choice.model, settings.llm_usd_per_mtok)
    if price is None:
        log.warning(
            "the price of %s is not known, so only NIGHTJAR_LLM_TOKENS_PER_DAY limits it:"
            " set NIGHTJAR_LLM_USD_PER_MTOK",
            choice.model,
        )
    limits = Cost(settings.llm_tokens_per_day, round(settings.llm_usd_per_day * 1e6))
    terms = AuthorTerms(settings.llm_timeout_s, limits, price, backoff or RequestBackoff())
    async with bounded_client(settings.llm_timeout_s) as http:
        provider = await asyncio.to_thread(choice.build, http)  # its imports take a second
        author = ModelAuthor(provider, AuthorBudget(lab), terms, meters)
        log.info("%s writes", author.name)
        yield author
