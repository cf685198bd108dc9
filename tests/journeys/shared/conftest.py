"""One lab for all journeys here: none of them ends it, and each has tags of its own.

It ends with the last of these journeys.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.journeys.running import RunningLab, running_lab


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    settings = {"NIGHTJAR_WEBHOOK_PRIVATE": "true", "NIGHTJAR_LOG_LEVEL": "DEBUG"}
    with running_lab(tmp_path_factory.mktemp("lab"), **settings) as found:
        found.start()
        yield found
