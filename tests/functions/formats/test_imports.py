"""What a script imports is read from its text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from functions.kernel.process.interpreter import imported


def test_every_import_counts_by_its_first_name_wherever_it_stands() -> None:
    script = """
import os, torch.nn as nn
from kernels.fast import get_kernel
from . import sibling
from .other import thing
def later():
    import rustbpe
    from torch.optim import AdamW
if True:
    import tiktoken
"""

    assert imported(script) == ["os", "torch", "kernels", "rustbpe", "tiktoken"]


@pytest.mark.parametrize(
    "script",
    [
        "try:\n    import flash_attn\nexcept ImportError:\n    pass",
        "try:\n    import flash_attn\nexcept (OSError, ModuleNotFoundError):\n    pass",
        "try:\n    import flash_attn\nexcept Exception:\n    pass",
        "try:\n    import flash_attn\nexcept:\n    pass",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import flash_attn",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import flash_attn",
        "import typing\nif typing.TYPE_CHECKING:\n    import flash_attn",
    ],
)
def test_what_a_script_can_do_without_does_not_count(script: str) -> None:
    assert "flash_attn" not in imported(script)


def test_what_it_falls_back_to_counts() -> None:
    assert imported("try:\n    import a\nexcept ImportError:\n    import b\nelse:\n    import c") == [
        "b",
        "c",
    ]
    assert imported("try:\n    import a\nexcept KeyError:\n    import b") == ["a", "b"]


@example("import (")
@example("import\0os")
@example("(" * 5000)
@given(st.text())
def test_a_text_that_is_no_python_imports_nothing(text: str) -> None:
    assert imported(text) == []
