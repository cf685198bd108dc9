"""Fair shares of the wait queue between agents."""

from __future__ import annotations

from state.entries import Rounds, Turn


def next_turn(rounds: Rounds) -> Turn:
    """The round of an agent's next experiment: the one after its last, and none that is over.

    Start-time fair queueing with equal shares (P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996).
    """
    after_its_last = 0 if rounds.own is None else rounds.own + 1
    return Turn(max(after_its_last, rounds.served), rounds)
