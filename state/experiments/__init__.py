"""Experiments: registered, queued, run and ended, each step one guarded script that also writes its event."""

from __future__ import annotations

from state.experiments.handing_out import HandingOut
from state.experiments.reading import PAGE_BYTES, Page, Window
from state.experiments.retesting import Retesting, Retracting
from state.experiments.running import Running
from state.experiments.showing import NearBand, Showing

__all__ = ["PAGE_BYTES", "Experiments", "NearBand", "Page", "Window"]


class Experiments(HandingOut, Running, Retesting, Retracting, Showing):
    """All experiments of the lab."""
