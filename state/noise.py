"""Spread of runs of the same code, for each tag and GPU class. The script that ends a run updates it.

One hash has the sums and the runs of each code. In a swarm it has the runs of each worker and code, and only these
add to the sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from state.facts import Spread
from state.keys import Keys

if TYPE_CHECKING:
    from state.client import Lab
    from state.moves import Arg


def class_id(gpu_class: str | None) -> str:
    """A GPU class as part of a key."""
    return hashlib.sha256((gpu_class or "").encode()).hexdigest()[:16]


def noise_key(keys: Keys, tag: str, gpu_class: str | None) -> str:
    """Key of the noise of a tag and GPU class."""
    return keys("noise", tag, class_id(gpu_class))


def runs_at(noise: str, code: str) -> str:
    """Key of the list of one code's runs, beside the noise."""
    return f"{noise}:{code}"


def spread_at(keys: Keys, tag: str, gpu_class: str | None) -> Sequence[str]:
    """The noise of a tag and GPU class, as a command for `spread_of`."""
    return ("HMGET", noise_key(keys, tag, gpu_class), "squares", "df")


def main_spread(lab: Lab, tag: str) -> Sequence[Arg]:
    """The noise of a tag's main class of GPU, as a command for `spread_of`."""
    of_tag = noise_key(lab.keys, tag, None).removesuffix(class_id(None))
    return lab.reading("read_noise", args={"tag": tag, "noise": of_tag, "no_class": class_id(None)})


def spread_of(stored: Sequence[str | None]) -> Spread:
    """The spread of all repeats."""
    squares, df = stored
    return Spread(float(squares or 0), int(df or 0))
