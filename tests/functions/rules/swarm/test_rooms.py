"""The values that are left to one dimension."""

from __future__ import annotations

from functions.rules.swarm.rooms import room_of
from tests.functions.rules.swarm.sample import LAYERS, LR, OPTIMIZER, dimension


def test_a_room_without_a_value_has_all_others_while_they_can_be_told() -> None:
    layers, optimizer, lr = map(room_of, (LAYERS, OPTIMIZER, LR))
    assert layers
    assert optimizer
    assert lr

    assert layers.without(3).choices == (1, 2, 4, 5)
    assert "adam" not in optimizer.without("adam").choices
    assert lr.without(0.001) == lr
    only = room_of(dimension("ONE", "categorical", categories=["tanh"]))
    assert only
    assert only.without("tanh") == only
