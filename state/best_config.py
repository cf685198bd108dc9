"""The config of a tag's best keep. It may be older than the runs that a search reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from state.client import Lab
from state.indexes import members, values
from state.moves import Arg


def reading(lab: Lab, tag: str) -> Sequence[Arg]:
    """The command that finds it."""
    keys = lab.keys
    return members(lab, keys.keeps(tag), limit=1, fields=("config_delta",))


def read_from(answer: Sequence[Any]) -> dict[str, Any]:
    """The config in the command's answer; empty: the tag has no keep, or its best has no config."""
    text = next((config for (config,) in values(answer).values()), None)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found
