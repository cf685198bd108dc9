"""The page's connection to the lab."""

from __future__ import annotations

from tests.journeys.running import RunningLab
from tests.page.pages import Page, measured

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


def test_a_view_that_could_not_be_read_says_so_and_reads_again(page: Page, lab: RunningLab, tag: str) -> None:
    names = measured(lab, tag, 3.0, 2.5)
    page.show(tag=tag, view="runs")
    page.until("2 runs", ".note")
    page.run("window.ask = window.fetch; window.fetch = () => Promise.reject(new TypeError())")

    page.show(tag=tag, view="compare", ids=",".join(names))

    page.until("the web process does not answer: start the lab with ./nightjar up", "#problem")
    page.run("window.fetch = window.ask")
    page.until(names[1], "#view thead")
    page.until_gone("#problem:not(:empty)")
