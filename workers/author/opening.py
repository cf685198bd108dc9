"""Opens the author that a lab's settings ask for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from functions.lanes import Author
from functions.process.meters import Meters
from functions.process.redaction import hide
from functions.rules.authoring import RequestBackoff, price_of
from state.author_budget import AuthorBudget, Limits
from state.client import Lab
from state.settings import Settings
from workers.author.choosing import choose
from workers.author.http import bounded_client
from workers.author.writing import AuthorTerms, ModelAuthor

log = logging.getLogger(__name__)


@asynccontextmanager
async def author_for(
    settings: Settings, lab: Lab, meters: Meters, backoff: RequestBackoff | None = None
) -> AsyncIterator[Author | None]:
    """The author; None: the settings name no model, and texts come from templates.

    Raises:
        Invalid: the settings name a provider that cannot be used.
    """
    choice = choose(settings)
    if choice is None:
        log.info("no language model: texts come from templates (NIGHTJAR_LLM_PROVIDER, ANTHROPIC_API_KEY)")
        yield None
        return
    hide(choice.key.get_secret_value())
    price = price_of(choice.model, settings.llm_usd_per_mtok_in, settings.llm_usd_per_mtok_out)
    if price is None:
        log.warning(
            "the price of %s is not known, so only NIGHTJAR_LLM_TOKENS_PER_DAY limits it: set"
            " NIGHTJAR_LLM_USD_PER_MTOK_IN and NIGHTJAR_LLM_USD_PER_MTOK_OUT",
            choice.model,
        )
    limits = Limits(settings.llm_tokens_per_day, round(settings.llm_usd_per_day * 1e6))
    terms = AuthorTerms(settings.llm_timeout_s, limits, price, backoff or RequestBackoff())
    async with bounded_client(settings.llm_timeout_s) as http:
        provider = await asyncio.to_thread(choice.build, http)  # its imports take a second
        author = ModelAuthor(provider, AuthorBudget(lab), terms, meters)
        log.info("%s writes", author.name)
        yield author
