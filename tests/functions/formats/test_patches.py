"""Patches as texts."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from functions.formats.patches import essence, in_a_line

PATCH = (
    b"diff --git a/train.py b/train.py\nindex 111..222 100644\n@@ -10,3 +10,4 @@ def f():\n x\n+LR = 0.1\n"
)


def test_another_line_is_a_difference_and_a_shifted_hunk_or_another_blob_is_none() -> None:
    other = PATCH.replace(b"111..222", b"333..444").replace(b"-10,3 +10,4", b"-99,3 +99,4")
    assert essence(PATCH) == essence(other) != essence(PATCH.replace(b"0.1", b"0.2"))


@example(b"\n\n")
@given(st.binary())
def test_the_last_line_ends_whether_the_patch_s_does_or_not(patch: bytes) -> None:
    assert essence(patch).endswith(b"\n") or not essence(patch)
    without = patch.rstrip(b"\n")
    assert essence(without) == essence(without + b"\n")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["-WIDTH = 48  # wide", "+WIDTH = 96  # wide"], "WIDTH = 48 -> 96"),
        (["-x = relu(x)", "+x = gelu(x)"], "x = relu(x) -> gelu(x)"),
        (["-return a", "+return b"], "return a -> return b"),
        (["-x = 1  # one", "+x = 1  # two"], "train.py: +1 -1 lines"),
        (["+a = 1", "+b = 2", "-c = 3"], "train.py: +2 -1 lines"),
    ],
)
def test_a_patch_in_a_line(lines: list[str], words: str) -> None:
    head = [
        *("diff --git a/train.py b/train.py", "index 1..2 100644", "--- a/train.py", "+++ b/train.py"),
        "@@ -1 +1 @@",
    ]
    assert in_a_line("\n".join([*head, " same", *lines, ""])) == words
    assert in_a_line("") == "unchanged"


def test_a_file_whose_name_git_quotes_is_named() -> None:
    assert in_a_line('diff --git "a/a \\"b\\"" "b/a \\"b\\""\n+x\n') == 'a \\"b\\": +1 -0 lines'
