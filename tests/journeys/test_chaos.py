"""A lab whose processes are killed and stopped under load for a quarter of an hour loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.chaos import SETTINGS, chaos
from tests.journeys.running import running_lab

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

SECONDS = 900.0


def test_a_quarter_of_an_hour_of_kills_under_load_violates_nothing(tmp_path: Path) -> None:
    with running_lab(tmp_path, **SETTINGS) as lab:
        book, violations = chaos(lab, SECONDS, seed=12)

    assert violations == []
    assert book.kills
