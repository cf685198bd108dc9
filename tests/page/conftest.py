"""A browser, a lab and a tab that all tests of the page share: to load the page anew costs a second of CPU.

They end with the last of these tests: an open page asks its lab again and again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.browser import Browser, browsing, chromedriver, is_demanded, missing
from tests.journeys.conftest import pytest_runtest_makereport
from tests.journeys.running import RunningLab, running_lab
from tests.page.pages import Page

__all__ = ["pytest_runtest_makereport"]

_tags = (f"page{nth}" for nth in itertools.count())


@pytest.fixture(scope="package")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests: it takes seconds to start."""
    if (absent := missing()) and not is_demanded():
        pytest.skip(f"not installed: {', '.join(absent)} (Debian: apt-get install chromium chromium-driver)")
    assert not absent, absent
    folder = tmp_path_factory.mktemp("chromium")
    with chromedriver(folder / "log") as driver, browsing(driver, folder / "profile") as found:
        yield found


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


@pytest.fixture(scope="package")
def tab(chromium: Browser) -> Iterator[Browser]:
    with chromium.window() as found:
        found.size(1280, 1000)
        yield found


@pytest.fixture
def page(tab: Browser, lab: RunningLab, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page as a visitor sees it, who has not signed in."""
    found, failed = Page(tab, lab), request.session.testsfailed
    yield found
    if request.session.testsfailed > failed:
        tab.forget()  # a failed test may leave anything
    else:
        found.leave()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """A tab of its own, for tests with a lab of their own or with scripts before the page's."""
    with chromium.window() as found:
        found.size(1280, 1000)
        yield found
