"""What journeys share: a browser, and what a failed one tells, the story of every lab that ran beside it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.browser import Browser, browsing, chromedriver, is_demanded, missing
from tests.journeys.running import living_labs


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    if (absent := missing()) and not is_demanded():
        pytest.skip(f"not installed: {', '.join(absent)} (Debian: apt-get install chromium chromium-driver)")
    assert not absent, absent
    with chromedriver(tmp_path_factory.mktemp("driver") / "log") as found:
        yield found


@pytest.fixture
def browser(driver: httpx.Client, tmp_path: Path) -> Iterator[Browser]:
    """A window of its own."""
    with browsing(driver, tmp_path / "profile") as found:
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
