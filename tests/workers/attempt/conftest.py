"""What tests of attempts share: a repository, a folder for checkouts, and the label of an attempt."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.repository import Repository
from workers.attempt.processes import kill_all


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def label() -> Iterator[str]:
    """Label of an attempt, no process of which may outlive the test."""
    name = f"e-{uuid.uuid4().hex}/1/1"
    yield name
    assert kill_all(name)
