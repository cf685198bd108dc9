"""Who may call: the roles."""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["viewer", "agent", "worker", "operator"]
"""Roles of callers: a viewer reads, an agent reads and researches, a worker serves its own GPUs."""


ROLES: tuple[Role, ...] = get_args(Role)
