"""Traces and selections: the growing branches of a tag, and the parents of each experiment."""

from __future__ import annotations

from state.traces.reading import Growing
from state.traces.selecting import Selecting


class Traces(Selecting, Growing):
    """All traces and selections of the lab."""
