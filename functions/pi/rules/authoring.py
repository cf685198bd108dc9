"""Requests to language models: what one costs, and when one that failed is sent again.

Prices are in US dollars per million tokens. The list prices are those of the providers' pages of November 2026, for
standard requests with short prompts (platform.claude.com/docs/en/about-claude/pricing,
developers.openai.com/api/docs/pricing, ai.google.dev/gemini-api/docs/pricing). A price that will rise is
the later one, which overdraws no budget.

The SDKs' own retries are off. They wait for however long a provider asks, or ignore what it asks, and do not know how
much time is left.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

MOST_COUNTED: Final = 1_000_000_000
"""Most tokens of one request; a reply that reports more is not believed."""


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    read: float
    written: float
    cached: float
    """For tokens read from the provider's cache."""
    cache_written: float
    """For tokens read and put into the cache."""


@dataclass(frozen=True)
class UsedTokens:
    """Tokens of one request; each counts in one field."""

    read: int
    written: int
    cached: int = 0
    cache_written: int = 0

    @property
    def tokens(self) -> int:
        return self.read + self.written + self.cached + self.cache_written


def _anthropic(read: float, written: float, cached: float) -> Price:
    return Price(read, written, cached, 1.25 * read)


LIST_PRICES: Final = {
    "claude-fable-5-1": _anthropic(10.0, 50.0, 0.25),
    "claude-opus-5-5": _anthropic(4.0, 20.0, 0.20),
    "claude-opus-5": _anthropic(5.0, 25.0, 0.50),
    "claude-opus-4-8": _anthropic(5.0, 25.0, 0.50),
    "claude-sonnet-5-5": _anthropic(2.0, 10.0, 0.20),
    "claude-sonnet-5": _anthropic(2.0, 10.0, 0.20),
    "claude-sonnet-4-6": _anthropic(3.0, 15.0, 0.30),
    "claude-haiku-5-5": _anthropic(0.10, 0.50, 0.01),
    "claude-haiku-4-5": _anthropic(1.0, 5.0, 0.10),
    "gpt-6-astra": Price(10.0, 50.0, 1.0, 12.5),
    "gpt-6.1-sol": Price(2.0, 10.0, 0.10, 2.5),
    "gpt-6.1-terra": Price(1.0, 5.0, 0.05, 1.25),
    "gpt-6-luna": Price(0.10, 0.50, 0.01, 0.125),
    "gemini-3.8-flash": Price(1.5, 7.5, 0.15, 1.5),
    "gemini-3.5-flash": Price(1.5, 9.0, 0.15, 1.5),
    "gemini-3.5-flash-lite": Price(0.3, 2.5, 0.03, 0.3),
}
"""By the model's name, without a date."""
_DATE = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")


def price_of(model: str, usd_per_mtok: str | None) -> Price | None:
    """The given price, such as `3/15`, else the model's list price; None: neither is known."""
    if usd_per_mtok is not None:
        read, written = map(float, usd_per_mtok.split("/"))
        return Price(read, written, read, 1.25 * read)
    return LIST_PRICES.get(_DATE.sub("", model.removeprefix("models/")))


def micro_usd(used: UsedTokens, price: Price | None) -> int:
    """Millionths of a US dollar, rounded up; 0 where the price is not known."""
    if price is None:
        return 0
    return math.ceil(
        used.read * price.read
        + used.written * price.written
        + used.cached * price.cached
        + used.cache_written * price.cache_written
    )


def most_used(sent: str, most_written: int) -> UsedTokens:
    """Upper limit for a request with this text.

    A token has at least one byte, and providers add a few tokens. Caching all of it costs more than reading alone.
    """
    return UsedTokens(read=0, cache_written=len(sent.encode(errors="replace")) + 2000, written=most_written)


def counted(number: object) -> int | None:
    """The number of tokens that a reply reports; None if it is not a valid number."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_COUNTED:
        return None
    return number


# -- retries

MOST_TRIES = 5


@dataclass(frozen=True)
class RequestBackoff:
    """Pauses between tries: the first, doubled each time up to the longest."""

    first_s: float = 1.0
    longest_s: float = 30.0


def pause_s(
    tries: int, asked_s: float | None, left_s: float, drawn: float, backoff: RequestBackoff
) -> float | None:
    """Seconds until the next of MOST_TRIES tries; None: there is none, or no time for it.

    `asked_s` is the pause that the provider asks for. `drawn`, from [0, 1), spreads the retries of many labs.
    """
    if tries >= MOST_TRIES:
        return None
    if asked_s is None:
        pause = min(backoff.first_s * 2 ** (tries - 1), backoff.longest_s) * (0.5 + drawn / 2)
    else:
        pause = asked_s + backoff.first_s * drawn / 2
    return pause if pause < left_s else None
