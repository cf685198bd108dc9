"""THREATS.md claims what tests keep, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.applications import Starlette

from state.settings import Settings
from triggers.web import server_config

ROOT = Path(__file__).parents[1]
THREATS = (ROOT / "THREATS.md").read_text()


def test_every_test_that_the_threats_name_exists() -> None:
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^(?:async )?def (test_\w+)\(", tests, re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", THREATS))
    assert len(named) > 25
    assert named <= there


def test_every_row_of_the_threats_names_a_test() -> None:
    tables, _, rest = THREATS.split("## Not trusted")[1].partition("\n## ")
    rows = re.findall(r"^\|(?! attempt |---)(.+)\|$", tables, re.MULTILINE)
    gaps = re.split(r"\n- ", rest.split("## What does not hold")[1])[1:]

    assert len(rows) > 50
    assert len(gaps) > 20
    for claim in rows + [gap.partition("\n\n")[0] for gap in gaps]:
        assert "`test_" in claim, claim


def test_the_web_process_speaks_no_tls() -> None:
    assert not server_config(Starlette(), Settings()).is_ssl
