"""Which processes descend from which."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from functions.kernel.process.ending import children_of, descendants_of

pytestmark = pytest.mark.process

PARENT = """
import subprocess, sys
with subprocess.Popen(["sleep", "600"]) as child:
    print(child.pid, flush=True)
    sys.stdin.read()
    child.kill()
"""


def test_children_and_their_children_are_known() -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())

        assert parent.pid in children_of(os.getpid())
        assert grandchild not in children_of(os.getpid())
        assert {parent.pid, grandchild} <= {*descendants_of([os.getpid()])}
        parent.communicate()
