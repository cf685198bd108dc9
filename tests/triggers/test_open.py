"""How `nightjar open` hands its link to a browser."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from triggers.cli import token as opening

Opening = Callable[[Path, str], list[str]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opening:
    """Runs the command with a data directory and a code; answers what its browser is told to open."""

    def run(data: Path, code: str) -> list[str]:
        words: list[str] = []
        monkeypatch.setattr(webbrowser, "open", words.append)
        monkeypatch.setattr(opening, "sign_in_link", lambda http: f"http://127.0.0.1:3999/#sign-in={code}")
        monkeypatch.setattr(opening, "has_browser", lambda: True)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("NIGHTJAR_URL", "http://127.0.0.1:3999")
        opening.open_command.main(["--data", str(data)], standalone_mode=False)
        return words

    return run


def test_the_code_is_in_a_private_file_and_not_on_the_command_line_of_the_browser(
    tmp_path: Path, opened: Opening
) -> None:
    data = tmp_path / "a lab"
    data.mkdir()

    words = [*opened(data, "first"), *opened(data, "second")]

    [page] = data.iterdir()
    assert [unquote(urlsplit(word).path) for word in words] == [str(page)] * 2
    assert page.stat().st_mode & 0o777 == 0o600
    assert "#sign-in=second" in page.read_text()
    assert "first" not in page.read_text()


def test_without_a_data_directory_the_link_is_printed_and_nothing_opens(
    tmp_path: Path, opened: Opening, capsys: pytest.CaptureFixture[str]
) -> None:
    assert opened(tmp_path / "none", "code") == []
    assert capsys.readouterr().out == "http://127.0.0.1:3999/#sign-in=code\n"
