"""The logs of each lab after a failure."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.journeys.running import living_labs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for lab in living_labs():
            report.sections.append((f"lab in {lab.data.parent}", lab.story()))
    return report
