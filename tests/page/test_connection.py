"""The page's connection to the lab."""

from __future__ import annotations

import pytest

from tests.journeys.running import RunningLab
from tests.page.pages import Page

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

MOST_CONNECTIONS = 6
"""Connections that a browser opens to one host."""


def test_pages_that_were_left_keep_no_connection(page: Page, lab: RunningLab, tag: str) -> None:
    for _ in range(MOST_CONNECTIONS + 2):
        page.show(tag=tag, view="program", anew=True)
        page.until("No version yet.")

    page.browser.back()
    page.browser.back()

    page.until("No version yet.")
    page.until("live", "#connection")
