"""Traces and selections: which branches of a tag grow, and what each experiment is made from."""

from __future__ import annotations

from state.traces.growing import Growing
from state.traces.selecting import Selecting


class Traces(Selecting, Growing):
    """All traces and selections of the lab."""
