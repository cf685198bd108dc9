"""Stores that the end of a token reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

from state.experiments import Experiments
from state.pool import Pool
from state.tokens import Tokens


@dataclass(frozen=True)
class Stores:
    """The stores of this group."""

    tokens: Tokens
    pool: Pool
    experiments: Experiments
