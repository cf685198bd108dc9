"""report::progress: a plot of any tag costs about the same, is drawn once, and never on the event loop."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import httpx
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.kernel.process.lifecycle import Process
from functions.people.plot import MOST_DOTS, Point, draw_progress, thinned
from tests.crowd import TAG, crowd
from tests.labs import crashed, open_tag, told, tried

RUNS = 3_000
TOGETHER = 60
HELD_MOST_S = 0.25
"""CPU seconds for which the event loop's thread may be busy with one request."""


@pytest.fixture(autouse=True)
def _many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("functions.kernel.invoke.COSTLY_EACH", TOGETHER)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of points of each drawing; no two are drawn at once."""
    found: list[int] = []
    turn = threading.Lock()

    def drawing(points: Sequence[Point], *more: Any) -> bytes:
        assert turn.acquire(blocking=False), "two are drawn at once"
        try:
            found.append(len(points))
            return draw_progress(points, *more)
        finally:
            turn.release()

    monkeypatch.setattr("functions.people.plot.draw_progress", drawing)
    return found


async def plot(http: httpx.AsyncClient, tag: str = TAG, kind: str = "png") -> httpx.Response:
    response = await http.get(f"/api/report/progress.{kind}?tag={tag}")
    assert response.status_code == 200, response.text
    return response


async def test_a_plot_of_many_runs_does_not_hold_the_event_loop(
    client: httpx.AsyncClient, process: Process, drawn: list[int]
) -> None:
    await open_tag(client, TAG)
    await crowd(process.lab, RUNS)
    await open_tag(client, "other")
    await plot(client, "other")

    before = time.thread_time()
    await plot(client)
    held = time.thread_time() - before

    assert held < 2 * HELD_MOST_S  # together; it lets others in between two pages of results
    assert 100 < drawn[-1] <= MOST_DOTS


async def test_many_who_ask_together_get_one_drawing(client: httpx.AsyncClient, drawn: list[int]) -> None:
    await open_tag(client)
    await tried(client, 1.0)
    pictures = await asyncio.gather(*(plot(client) for _ in range(TOGETHER)))
    assert len(drawn) == 1
    assert len({picture.content for picture in pictures}) == 1


async def test_a_plot_is_drawn_anew_when_its_tag_changes(client: httpx.AsyncClient, drawn: list[int]) -> None:
    await open_tag(client)
    await plot(client)
    for nth in range(2):
        await tried(client, 1.0 + nth)
        await plot(client)
        await plot(client)
    await told(client, "/api/experiment/retract", experiment_id="mar11-2", reason="it was wrong")

    await plot(client)

    assert drawn == [0, 1, 2, 1]


@hypothesis.settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.booleans()), min_size=1, max_size=50
    ),
    st.sampled_from([None, (0.9, 1.1), (1.0, 1.0)]),
)
def test_few_points_are_all_drawn_and_of_many_the_first_and_last_columns(
    values: list[tuple[float, bool]], seen: tuple[float, float] | None
) -> None:
    few = [Point(nth, value, kept, None, "") for nth, (value, kept) in enumerate(values, 1)]
    many = [Point(nth, *values[nth % len(values)], None, "") for nth in range(1, 3 * MOST_DOTS)]

    assert thinned(few, seen) == few
    left = thinned(many, seen)

    assert 0 < len(left) <= MOST_DOTS
    assert left[-1] == many[-1]
    assert left == sorted(left, key=lambda p: p.nth)


def test_a_crowded_plot_keeps_its_shape() -> None:
    drawn = random.Random(1)
    many = [Point(nth, drawn.random(), nth % 50 == 0, None, "") for nth in range(1, 10_001)]

    left = thinned(many, (0.0, 1.0))

    assert MOST_DOTS / 2 < len(left) <= MOST_DOTS
    for low in range(0, 10_000, 1000):
        assert sum(low < p.nth <= low + 1000 for p in left) > 80
    assert sum(p.kept for p in left) > 100


async def test_crashed_and_demoted_runs_have_marks_of_their_own(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0)
    before = (await plot(client, "mar11", "svg")).text
    await crashed(client)

    after = (await plot(client, "mar11", "svg")).text

    assert "<!-- crashed -->" not in before
    assert "<!-- crashed -->" in after
    assert "<!-- demoted -->" not in after
    fallen = [Point(1, 1.0, True, 1.0, "a"), Point(2, 0.9, False, 1.0, "b", demoted=True)]
    assert b"<!-- demoted -->" in draw_progress(fallen, [], (0.8, 1.1), "t", "val_bpb", "svg")


def test_a_baseline_is_no_keep_in_the_plot() -> None:
    drawn = [Point(1, 1.0, True, 1.0, "a"), Point(2, 1.2, True, 1.0, "baseline", baseline=True)]
    svg = draw_progress(drawn, [], (0.8, 1.3), "t", "val_bpb", "svg").decode()
    assert svg.count("<!-- baseline -->") == 2, "its label and its name in the legend"
