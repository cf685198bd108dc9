"""The web application on a socket, a repository to research in, and the examples on the path for agents."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from functions.kernel.process.lifecycle import Process
from tests.conftest import served_client
from tests.examples.standin import EXAMPLES, git

sys.path.append(str(EXAMPLES))


@pytest.fixture
async def web(process: Process) -> AsyncIterator[str]:
    """The URL of this test's lab: the web application on a socket, for agents in processes of their own."""
    async with served_client(process) as http:
        yield str(http.base_url).rstrip("/")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository with the example project."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLES / "tinylm", folder, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Begin")
    return folder


@pytest.fixture
def curl() -> None:
    if shutil.which("curl") is None:
        if os.environ.get("CI"):
            pytest.fail("curl is missing, and with it what this test is about")
        pytest.skip("curl is missing")
