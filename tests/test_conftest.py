"""What holds for every test, wherever and however the tests are started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.conftest import heed_signals

HANDLER = "import signal, sys; print(signal.getsignal(int(sys.argv[1])) == signal.SIG_IGN)"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_processes_of_tests_heed_signals_under_a_background_shell(number: signal.Signals) -> None:
    ours = signal.signal(number, signal.SIG_IGN)

    try:
        heed_signals()
        said = subprocess.run(
            [sys.executable, "-ISc", HANDLER, str(number.value)], capture_output=True, check=True
        ).stdout
    finally:
        signal.signal(number, ours)

    assert said == b"False\n"
