"""A dimension on trial, beside two that are not."""

from __future__ import annotations

from state.records import Dimension

LR = Dimension(name="LR", dtype="float_log", min=1e-4, max=1e-1)
DEPTH = Dimension(name="DEPTH", dtype="int", min=4, max=24)
ON_TRIAL = {"is_canary": True, "canary_prob": 0.12}
WARMUP = Dimension(name="WARMUP", dtype="float", min=0.0, max=0.5, default_value=0.0).model_copy(
    update=ON_TRIAL
)
GATE = Dimension(name="GATE", dtype="categorical", categories=["none", "silu", "gelu"], default_value="none")
GATE = GATE.model_copy(update=ON_TRIAL)
BEST = {"LR": 0.003, "DEPTH": 12}
