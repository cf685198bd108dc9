"""A lab that all tests of the page share, and a browser."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.browser import Browser
from tests.journeys.conftest import browser, chromium, pytest_runtest_makereport
from tests.journeys.running import RunningLab, running_lab
from tests.page.pages import Page

__all__ = ["browser", "chromium", "pytest_runtest_makereport"]

_tags = (f"page{nth}" for nth in itertools.count())


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running_lab(tmp_path_factory.mktemp("page")) as found:
        found.start()
        yield found


@pytest.fixture
def tag(lab: RunningLab) -> str:
    """A tag of its own for each test."""
    name = next(_tags)
    lab.setup(name)
    return name


@pytest.fixture
def page(browser: Browser, lab: RunningLab) -> Page:
    """The page as a visitor sees it, who has not signed in."""
    return Page(browser, lab)
