"""GET /metrics: gauges of this process, what all processes of the lab have counted, and how the lab stands now.

All but the gauges of the process is read from Redis at each scrape, by index, and is the same at every web process.
While Redis is away, `nightjar_redis_up` is 0, and the counts are the last ones with those of this process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response

from functions.experiments.rules.gains import unbiased
from functions.kernel.process.lifecycle import Process
from functions.pool.rules.health import effective_status, pool_counts
from state.author_budget import AuthorBudget
from state.errors import Unavailable
from state.experiments import Experiments
from state.pool import Pool
from state.presence import Tallies
from state.records import STATUSES, Gpu
from state.reports import Reports
from triggers.http.exchange import Exchange
from triggers.http.identity import admit
from triggers.sse import Broadcast

TAGS_COUNTED = 200
"""Experiments are counted over this many newest tags, so that a scrape costs the same in a lab of any size."""

TAGS_LABELLED = 50
"""Newest tags that have samples of their own. This bounds the number of time series; `nightjar_tags_left_out` counts
the other tags."""

SAMPLES = (
    ("temperature_c", "nightjar_gpu_temperature_celsius", "Temperature of the GPU.", 1.0),
    ("memory_used_mb", "nightjar_gpu_memory_used_bytes", "Memory of the GPU in use.", 1024.0**2),
    ("memory_total_mb", "nightjar_gpu_memory_total_bytes", "Memory of the GPU.", 1024.0**2),
    ("utilization_percent", "nightjar_gpu_utilization_ratio", "Share of time that the GPU works.", 0.01),
    ("power_w", "nightjar_gpu_power_watts", "What the GPU draws.", 1.0),
)
"""Health that keepers report: field, metric, help, and how many base units one of its units is."""


VITALS = (
    ("used_memory", "nightjar_redis_memory_used_bytes", "Memory that Redis uses."),
    ("maxmemory", "nightjar_redis_memory_max_bytes", "Memory that Redis may use; 0: all there is."),
    ("aof_enabled", "nightjar_redis_aof_enabled", "Whether Redis keeps a file."),
    ("aof_last_write_ok", "nightjar_redis_aof_last_write_ok", "Whether its last write worked."),
)
"""What Redis says of itself: field, metric and help."""


async def metrics(exchange: Exchange) -> Response:
    """Everything, in the text format that the scraper asks for."""
    process = exchange.process
    broadcast: Broadcast = exchange.app.state.broadcast
    try:
        await admit(exchange, "viewer")
    except Unavailable:
        if process.tokens.were_configured is not False:
            raise  # no caller can be identified
    tallies: Mapping[str, float] | None = None
    lab: list[Metric] = []
    try:
        async with asyncio.timeout(process.settings.redis_timeout_s):
            tallies = await Tallies(process.lab).all()
            lab = [family async for family in lab_families(process)]
    except (Unavailable, TimeoutError):
        tallies = None
    lab.append(gauge("nightjar_redis_up", "Whether Redis answers this process.", tallies is not None))
    open_streams = broadcast.subscribers
    lab.append(gauge("nightjar_sse_subscribers", "Open event streams of this process.", open_streams))
    families = Collected([*process.meters.families(tallies), *lab])
    encode, content_type = choose_encoder(exchange.header("accept") or "")
    return Response(encode(families), media_type=content_type)


class Collected(Collector):
    """Families that are read already, for the encoder."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


def gauge(name: str, text: str, value: float | None) -> Metric:
    """One number; none where there is none."""
    family = GaugeMetricFamily(name, text)
    if value is not None:
        family.add_metric([], value)
    return family


def labelled(name: str, text: str, label: str, values: Mapping[str, float | None]) -> Metric:
    """One number for each value of a label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        if value is not None:
            family.add_metric([key], value)
    return family


async def lab_families(process: Process) -> AsyncIterator[Metric]:
    """How the lab stands. Raises Unavailable: Redis does not answer."""
    stale_s = process.settings.stale_s
    pool, experiments = Pool(process.lab), Experiments(process.lab)
    now, gpus = await pool.roster()
    census = await experiments.census(TAGS_COUNTED)
    yield gauge(
        "nightjar_queue_experiments",
        "Experiments that wait for a GPU.",
        await experiments.waiting_count([gpu.gpu_id for gpu in gpus]),
    )
    waits = 0.0 if census.queued_since is None else max(0.0, now - census.queued_since)
    yield gauge("nightjar_queue_oldest_seconds", "How long the oldest of them has waited.", waits)
    yield labelled(
        "nightjar_experiments",
        f"Experiments of the newest {TAGS_COUNTED} tags by status.",
        "status",
        {status: float(census.counts.get(status, 0)) for status in STATUSES},
    )
    for family in (
        *await tag_families(process),
        *gpu_families(gpus, now, stale_s),
        *await stream_families(process),
        *await clock_families(process),
    ):
        yield family
    kinds = Counter(str(p.facts.get("kind")) for p in await process.presence.alive(stale_s))
    yield labelled("nightjar_processes", "Processes alive by kind.", "kind", dict(kinds))
    spent = await AuthorBudget(process.lab).today()
    yield gauge(
        "nightjar_author_day_tokens",
        "What counts as spent of the language model's tokens today (UTC), reservations included.",
        spent.tokens,
    )
    yield gauge("nightjar_author_day_usd", "The same in US dollars.", spent.micro_usd / 1e6)
    vitals = await process.lab.vitals()
    for field, name, text in VITALS:
        yield gauge(name, text, vitals[field])


async def tag_families(process: Process) -> list[Metric]:
    """Best value, runs and keeps of the newest tags, and the number of the other tags."""
    tags, total = await Reports(process.lab).tags(0, TAGS_LABELLED)
    runs = CounterMetricFamily(
        "nightjar_tag_runs", "Experiments of a tag that ended with a verdict.", labels=["tag"]
    )
    for found in tags:
        runs.add_metric([found.tag.name], found.tag.finishes)
    return [
        runs,
        labelled(
            "nightjar_tag_keeps",
            "Experiments of a tag that are kept now.",
            "tag",
            {found.tag.name: found.tag.kept for found in tags},
        ),
        labelled(
            "nightjar_tag_best_value",
            "Best value of a tag, in its metric's unit; in a swarm the best difference to a worker's baseline.",
            "tag",
            {found.tag.name: unbiased(found.runs)[0] for found in tags},
        ),
        gauge(
            "nightjar_tags_left_out",
            f"Tags without samples of their own: all but the newest {TAGS_LABELLED}.",
            max(0, total - len(tags)),
        ),
    ]


def gpu_families(gpus: Sequence[Gpu], now: float, stale_s: float) -> Iterator[Metric]:
    """The pool, its leases, and each GPU's newest sample while it is fresh."""
    counts = pool_counts(gpus, now, stale_s)
    by_status = {status: float(count) for status, count in counts.items() if status != "total"}
    yield labelled("nightjar_gpus", "GPUs and CPU slots by status.", "status", by_status)
    leased = [gpu.leased_at for gpu in gpus if gpu.holder is not None and gpu.leased_at is not None]
    yield gauge("nightjar_leases", "GPUs that are lent.", len(leased))
    oldest = max(0.0, now - min(leased)) if leased else 0.0
    yield gauge("nightjar_lease_oldest_seconds", "Age of the oldest lease.", oldest)
    fresh = [
        gpu
        for gpu in gpus
        if effective_status(gpu, now, stale_s) != "offline" and now - (gpu.sampled_at or 0.0) < stale_s
    ]
    for field, name, text, unit in SAMPLES:
        values = {gpu.gpu_id: (gpu.health or {}).get(field) for gpu in fresh}
        yield labelled(
            name,
            text,
            "gpu_id",
            {gpu_id: value * unit for gpu_id, value in values.items() if isinstance(value, int | float)},
        )


async def clock_families(process: Process) -> list[Metric]:
    """Counts of firings by outcome, and which functions are paused."""
    names = [name for name, declared in process.invoker.table.items() if declared.clock is not None]
    looks = dict(zip(names, await process.schedules.looks(names), strict=True))
    firings = CounterMetricFamily(
        "nightjar_clock_ticks", "Firings by outcome.", labels=["function", "outcome"]
    )
    for name, look in looks.items():
        for outcome in ("fired", "by_hand", "missed", "skipped"):
            firings.add_metric([name, outcome], getattr(look.firings, outcome))
    return [
        firings,
        labelled(
            "nightjar_clock_paused",
            "Whether the clock does not fire the function, because an operator paused it.",
            "function",
            {name: float(look.firings.paused_at is not None) for name, look in looks.items()},
        ),
        labelled(
            "nightjar_clock_fired_age_seconds",
            "How long ago the clock fired it last.",
            "function",
            {
                name: None if (at := look.firings.fired_at) is None else max(0.0, look.now - at)
                for name, look in looks.items()
            },
        ),
    ]


async def stream_families(process: Process) -> list[Metric]:
    """The event stream, and how far each binding is behind on it."""
    lags = await process.stream.lags()
    behind = lags["bindings"]
    return [
        gauge("nightjar_stream_events", "Events that the stream holds.", lags["length"]),
        gauge(
            "nightjar_dead_letters", "Events that their handler failed on too often.", lags["dead_letters"]
        ),
        labelled(
            "nightjar_binding_undelivered_events",
            "Events that a binding has not been given yet.",
            "binding",
            {name: lag["undelivered"] for name, lag in behind.items()},
        ),
        labelled(
            "nightjar_binding_unacknowledged_events",
            "Events that a binding was given and has not finished.",
            "binding",
            {name: lag["unacknowledged"] for name, lag in behind.items()},
        ),
        labelled(
            "nightjar_binding_oldest_seconds",
            "Age of the oldest event that a binding has not finished.",
            "binding",
            {name: lag["oldest_s"] or 0.0 for name, lag in behind.items()},
        ),
    ]
