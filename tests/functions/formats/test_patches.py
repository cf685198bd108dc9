"""The code between two experiments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.formats.patches import between

PATCH = "diff --git a/train.py b/train.py\nindex 111..222 100644\n@@ -{at},3 +{at},4 @@ def f():\n x\n+LR = {lr}\n"


@given(st.text())
def test_nothing_lies_between_equal_patches(patch: str) -> None:
    assert between(patch, patch, "a", "b") == ""


def test_only_what_differs_is_shown() -> None:
    found = between(PATCH.format(at=10, lr=0.1), PATCH.format(at=10, lr=0.2), "mar11-1", "mar11-2")

    assert "--- mar11-1" in found
    assert "+++ mar11-2" in found
    assert "-+LR = 0.1" in found
    assert "++LR = 0.2" in found


def test_a_shifted_hunk_and_another_blob_are_no_difference() -> None:
    one, two = PATCH.format(at=10, lr=0.1), PATCH.format(at=99, lr=0.1).replace("111..222", "333..444")

    assert between(one, two, "a", "b") == ""
