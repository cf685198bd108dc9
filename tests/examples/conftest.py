"""A real web process, a repository to research in, and the examples on the path, as the agent has them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from state.settings import Settings
from tests.examples.standin import EXAMPLES, ROOT, git

sys.path.append(str(EXAMPLES))


@pytest.fixture
def web(settings: Settings, tmp_path: Path) -> Iterator[str]:
    """The URL of a web process of this test's lab."""
    assert settings.redis_url is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}", tmp_path / "web.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "triggers.web"],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "NIGHTJAR_REDIS_URL": settings.redis_url.get_secret_value(),
                "NIGHTJAR_LAB": settings.lab,
                "NIGHTJAR_PORT": str(port),
                "NIGHTJAR_DATA": str(tmp_path / "data"),
            },
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        until_ready(url, process, log)
        yield url
    finally:
        process.kill()
        process.wait()


def until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + 60
    while True:
        try:
            if httpx.get(url + "/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.05)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository with the example project."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLES / "tinylm", folder, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Begin")
    return folder
