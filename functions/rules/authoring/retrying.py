"""When a request that a provider could not answer is sent again.

The SDKs' own retries are off. One sleeps for however long the provider asks, another ignores what it asks, and none
knows how much time is left.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_TRIES = 5


@dataclass(frozen=True)
class Backoff:
    """Pauses between tries, in seconds: the first, doubled each time up to the longest."""

    first_s: float = 1.0
    longest_s: float = 30.0


def pause_s(tries: int, asked_s: float | None, left_s: float, drawn: float, backoff: Backoff) -> float | None:
    """Seconds until the next try, after so many; None: there is none, or no time for it.

    `asked_s` is what the provider has asked for. `drawn` is from [0, 1): many labs must not come back at once.
    """
    if tries >= MOST_TRIES:
        return None
    if asked_s is None:
        pause = min(backoff.first_s * 2 ** (tries - 1), backoff.longest_s) * (0.5 + drawn / 2)
    else:
        pause = asked_s + backoff.first_s * drawn / 2
    return pause if pause < left_s else None
