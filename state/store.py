"""Base of every part of a store: the lab and its keys."""

from __future__ import annotations

from state.client import Lab


class Store:
    """One lab's keys."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys
