"""The program that a worker of a swarm keeps: written when it is another one, and else left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.swarm.working import PROGRAM, keep_program


@pytest.mark.parametrize("text", ["# Mine\n", "# Mine\r\nfrom Windows\r\n", "größer, 学習率"])
def test_a_program_is_written_once_and_again_only_where_it_has_changed(tmp_path: Path, text: str) -> None:
    said: list[str] = []

    for given in (text, text, f"{text} more", f"{text} more", ""):
        keep_program(tmp_path, given, said.append)

    assert (tmp_path / PROGRAM).read_bytes() == f"{text} more".encode()
    assert len(said) == 2
