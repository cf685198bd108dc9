"""A watcher that remembers what it was told and answers as the test says."""

from __future__ import annotations

from collections.abc import Callable

from functions.kernel.lanes import Extension, Order, Source


class Orders:
    """Implements workers.attempt.job.Watcher."""

    def __init__(
        self,
        *,
        on_tick: Callable[[float, float], Order | Extension] = lambda metric, progress: "continue",
        on_poll: Callable[[], Order] = lambda: "continue",
        on_built: Callable[[], Order] = lambda: "continue",
    ) -> None:
        self.ticks: list[tuple[float, float]] = []
        self.tails: list[str] = []
        self.sources: list[Source] = []
        self._on_tick = on_tick
        self._on_poll = on_poll
        self._on_built = on_built

    async def built(self, source: Source) -> Order:
        self.sources.append(source)
        return self._on_built()

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        self.ticks.append((metric, progress))
        return self._on_tick(metric, progress)

    async def poll(self) -> Order:
        return self._on_poll()

    async def tail(self, text: str) -> None:
        self.tails.append(text)
