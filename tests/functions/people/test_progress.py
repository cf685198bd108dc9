"""report::progress: a plot of any tag costs about the same, is drawn once, and never on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from functions.people.plot import MOST_DOTS, Point, draw_progress, thinned
from tests.crowd import TAG
from tests.labs import crashed, open_tag, told, tried

TOGETHER = 60


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


@pytest.mark.parametrize("share", [1, 2, 50, 10**6])
def test_a_crowded_plot_keeps_its_shape_and_its_newest_run_and_few_points_are_all_drawn(share: int) -> None:
    many = [Point(nth, 1.0, nth % share == 0, None, "") for nth in range(1, 10_002)]

    left = thinned(many)

    assert thinned(many[:MOST_DOTS]) == many[:MOST_DOTS]
    assert MOST_DOTS / 3 < len(left) <= MOST_DOTS
    assert left == sorted(left, key=lambda p: p.nth)
    assert many[-1] in left
    assert sum(p.kept for p in left) == min(MOST_DOTS // 2, 10_001 // share)
    for low in range(0, 10_000, 1000) if share > 1 else ():
        assert sum(low < p.nth <= low + 1000 for p in left) > 80


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
