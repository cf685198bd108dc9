"""The views on a phone's screen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import Browser
from tests.journeys.running import RunningLab
from tests.page.pages import HOSTILE, Page
from tests.page.test_runs import measured

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.fixture
def phone(browser: Browser) -> Iterator[None]:
    """A screen of 390 by 844 pixels; a window of Chromium is never that narrow."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.tell("Emulation.setDeviceMetricsOverride", **size)
    yield
    browser.tell("Emulation.clearDeviceMetricsOverride")


@pytest.mark.usefixtures("phone")
@pytest.mark.parametrize("view", ["branches", "agents", "gpus", "events", "functions"])
def test_a_view_fits_a_phone_whatever_agents_write(page: Page, lab: RunningLab, tag: str, view: str) -> None:
    measured(lab, tag, 3.0, 2.5, agent="a" * 90, hypothesis=HOSTILE + "x" * 3000)
    page.sign_in()

    page.show(tag=tag, view=view, **({"function": "experiment::register"} if view == "functions" else {}))

    page.browser.until(lambda: page.texts("#view tbody tr:not(.gap), #view .slot, #view .plot"), "the view")
    assert page.run("return innerWidth") == 390
    assert page.fits()
    assert page.said() == []
