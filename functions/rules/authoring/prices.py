"""What a request to a language model costs.

A price is in US dollars per million tokens, which is millionths of a dollar per token. The list prices are those of
the providers' pages (platform.claude.com/docs/en/about-claude/pricing, developers.openai.com/api/docs/pricing,
ai.google.dev/gemini-api/docs/pricing) of November 2026, of standard requests with short prompts. Where a price is
known to rise, it is the later one: a budget must not be overdrawn.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

MOST_COUNTED: Final = 1_000_000_000
"""Tokens of one request; what a reply claims beyond it is not believed."""


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    read: float
    written: float
    cached: float
    """Tokens that are read from the provider's cache."""
    cache_written: float
    """Tokens that are read, and put there."""


@dataclass(frozen=True)
class Used:
    """Tokens of one request, each in one of these."""

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


def price_of(model: str, usd_per_mtok_in: float | None, usd_per_mtok_out: float | None) -> Price | None:
    """The given price, else the model's list price; None: neither is known."""
    if usd_per_mtok_in is not None and usd_per_mtok_out is not None:
        return Price(usd_per_mtok_in, usd_per_mtok_out, usd_per_mtok_in, 1.25 * usd_per_mtok_in)
    return LIST_PRICES.get(_DATE.sub("", model.removeprefix("models/")))


def micro_usd(used: Used, price: Price | None) -> int:
    """Millionths of a US dollar, rounded up; 0 where the price is not known."""
    if price is None:
        return 0
    return math.ceil(
        used.read * price.read
        + used.written * price.written
        + used.cached * price.cached
        + used.cache_written * price.cache_written
    )


def most_used(sent: str, most_written: int) -> Used:
    """No request with this text uses more: a token is a byte of text at least, and the provider adds a few of its
    own.

    All of it may be put into the cache, which costs more than reading alone.
    """
    return Used(read=0, cache_written=len(sent.encode(errors="replace")) + 2000, written=most_written)


def counted(number: object) -> int | None:
    """A count of tokens that a reply has told; None where that is none."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_COUNTED:
        return None
    return number
