"""Whether what concurrent clients saw could have happened one after the other (Wing and Gong, 1993; Lowe, 2017).

A history is linearisable if each operation can be given one moment between its call and its return, so that
run in the order of those moments the model answers what was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
Op = TypeVar("Op")


@dataclass(frozen=True)
class Seen(Generic[Op]):
    """One operation with its answer inside, and when it was called and had returned, on one clock."""

    op: Op
    called: float
    returned: float


class Undecided(Exception):
    """The search was given up: more orders than it may look at."""


def linearised(
    history: Sequence[Seen[Op]],
    start: S,
    step: Callable[[S, Op], S | None],
    ends: Callable[[S], bool] = lambda _: True,
    hopeless: Callable[[S, Op], bool] = lambda *_: False,
    fickle: Callable[[Op], bool] = lambda _: False,
    *,
    most: int = 50_000,
) -> list[Op] | None:
    """An order in which the model goes from `start` to a state that `ends`; None where there is none.

    `step` answers the state after an operation, or None where the model cannot answer what was answered.
    `hopeless` may say that from this state on an operation can never be answered so: it shortens the search.
    `fickle` has to say which operations are answered the same whether they change something or nothing.

    Raises:
        Undecided: after looking at `most` states.
    """
    ordered = sorted(history, key=lambda seen: seen.returned)
    everything = (1 << len(ordered)) - 1
    visited: set[tuple[int, S]] = set()
    path: list[tuple[int, S, Iterator[tuple[int, S]]]] = []
    order: list[Op] = []
    done, state, choices = 0, start, _next(ordered, 0, start, step, fickle)
    while done != everything or not ends(state):
        for nth, after in choices:
            now_done = done | 1 << nth
            if (now_done, after) in visited:
                continue
            visited.add((now_done, after))
            if len(visited) > most:
                raise Undecided(f"looked at {most} states of {len(ordered)} operations")
            if any(hopeless(after, seen.op) for n, seen in enumerate(ordered) if not now_done >> n & 1):
                continue
            path.append((done, state, choices))
            order.append(ordered[nth].op)
            done, state, choices = now_done, after, _next(ordered, now_done, after, step, fickle)
            break
        else:
            if not path:
                return None
            done, state, choices = path.pop()
            order.pop()
    return order


def _next(
    ordered: Sequence[Seen[Op]],
    done: int,
    state: S,
    step: Callable[[S, Op], S | None],
    fickle: Callable[[Op], bool],
) -> Iterator[tuple[int, S]]:
    """Operations that may come next, called before any other that is left had returned, and the state after each.

    One that changes nothing is the only choice, unless it is fickle: it can as well come now.
    """
    left = [nth for nth in range(len(ordered)) if not done >> nth & 1]
    choices = []
    for nth in left:
        if ordered[nth].called <= ordered[left[0]].returned:
            after = step(state, ordered[nth].op)
            if after == state and not fickle(ordered[nth].op):
                return iter([(nth, state)])
            if after is not None:
                choices.append((nth, after))
    return iter(choices)
