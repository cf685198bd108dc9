"""`nightjar demo` and what its command line decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.settings import Settings
from triggers.cli import demo
from triggers.ports import free_port


@pytest.mark.parametrize("is_option", [True, False], ids=["by --port", "by NIGHTJAR_PORT"])
def test_the_demo_listens_where_it_is_told(
    is_option: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, used = free_port(0), []

    async def recorded(settings: Settings, runs: int, budget: float) -> int:
        used.append(settings.port)
        return 0

    monkeypatch.setattr(demo, "_demo", recorded)
    monkeypatch.setattr(demo, "start_logging", lambda *_: None)
    if not is_option:
        monkeypatch.setenv("NIGHTJAR_PORT", str(port))

    demo.command.main(
        ["--data", str(tmp_path), *(["--port", str(port)] if is_option else [])], standalone_mode=False
    )

    assert used == [port]
