"""Experiments: registered, queued, run and ended, each step one guarded script that also writes its event."""

from __future__ import annotations

from state.experiments.ending import EndingStore
from state.experiments.registering import Registering
from state.experiments.retesting import Retesting
from state.experiments.running import Running


class Experiments(Registering, Running, EndingStore, Retesting):
    """All experiments of the lab."""
