"""Fixtures of journeys: a browser, and the logs of each lab after a failure."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.browser import Browser, browsing, chromedriver, is_demanded, missing
from tests.journeys.running import living_labs


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests: it takes seconds to start."""
    if (absent := missing()) and not is_demanded():
        pytest.skip(f"not installed: {', '.join(absent)} (Debian: apt-get install chromium chromium-driver)")
    assert not absent, absent
    folder = tmp_path_factory.mktemp("chromium")
    with chromedriver(folder / "log") as driver, browsing(driver, folder / "profile") as found:
        yield found


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """A tab of its own."""
    with chromium.window() as found:
        found.size(1280, 1000)
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for lab in living_labs():
            report.sections.append((f"lab in {lab.data.parent}", lab.story()))
    return report
