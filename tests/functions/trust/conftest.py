"""What tests of trust share."""

from __future__ import annotations

import pytest


@pytest.fixture
def trainable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of these tests are in no repository."""

    async def unchecked(*_: object) -> None:
        pass

    monkeypatch.setattr("functions.trust.certificates.check_trainable", unchecked)
