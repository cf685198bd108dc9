"""Every setting of a Nightjar process, read once in its entry point and passed down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr

from state.client_settings import ClientSettings

OF_COMMANDS = frozenset({"NIGHTJAR_TOKEN", "NIGHTJAR_ENROLL_TOKEN"})
"""Variables that only commands get, no process of the lab."""
OF_AUTHORS = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    *("NIGHTJAR_ANTHROPIC_API_KEY", "NIGHTJAR_OPENAI_API_KEY", "NIGHTJAR_GEMINI_API_KEY"),
)
"""Variables with the key of a language model."""


class Settings(ClientSettings):
    """All settings: those of commands, and those of the lab's processes, which take longer to import."""

    clone: Path | None = Field(
        default=None,
        description="a clone of the project that the web process reads: there it tries each patch that is submitted"
        " against the tag's base commit, if that is there; up names its --repo",
    )
    redis_url: SecretStr | None = Field(
        default=None, description="Redis of the lab; unset: an embedded server is started"
    )
    broker_url: SecretStr | None = Field(default=None, description="Redis of RQ's queues, if not the lab's")
    worker_redis_url: SecretStr | None = Field(
        default=None, description="the same Redis with the user of workers; see ./nightjar redis acl"
    )
    worker_broker_url: SecretStr | None = Field(
        default=None, description="the same for the Redis of RQ's queues, if not the lab's"
    )
    redis_server: Path | None = Field(default=None, description="redis-server binary for the embedded server")
    redis_appendfsync: str = Field(
        default="everysec",
        pattern="^(everysec|always)$",
        description="AOF of the embedded server; with everysec a power loss, or a kill of Redis while it syncs, may "
        "cost the last answered writes, of two seconds at most, and so may its end on a full disk; always: none",
    )
    host: str = Field(
        default="127.0.0.1", description="address of the web process; must be loopback if there are no tokens"
    )
    allowed_hosts: str = Field(default="", description="further Host names to accept, separated by commas")

    plugins: str = Field(
        default="",
        pattern=r"^\s*([\w.]+:\w+\s*(,\s*[\w.]+:\w+\s*)*)?$",
        description="trace schedulers that a tag's policy may name, package.module:Class, separated by commas",
    )

    redis_timeout_s: float = Field(
        default=5.0, gt=0, description="seconds until an unanswered Redis command is an error"
    )
    heartbeat_s: float = Field(default=10.0, gt=0, description="seconds between two heartbeats of a worker")
    stale_s: float = Field(
        default=60.0, gt=0, description="seconds without a heartbeat after which a worker is offline"
    )
    silent_s: float = Field(
        default=15.0, gt=0, description="seconds without an answer after which a process counts as dead"
    )
    sweep_s: float = Field(default=10.0, gt=0, description="seconds between two sweeps")
    dispatch_s: float = Field(default=5.0, gt=0, description="seconds between dispatches without an event")
    health_s: float = Field(default=30.0, gt=0, description="seconds between two health checks of every GPU")
    start_grace_s: float = Field(
        default=10.0, gt=0, description="seconds until a leased run that has not started is enqueued again"
    )
    claim_idle_s: float = Field(
        default=15.0, gt=0, description="seconds after which an event of a silent consumer is claimed"
    )
    keep_events: int = Field(
        default=100_000, ge=1, description="number of newest events that are kept, of any age"
    )
    keep_events_days: float = Field(default=7.0, gt=0, description="days for which all events are kept")
    trim_s: float = Field(default=300.0, gt=0, description="seconds between two trimmings of the events")
    webhook_private: bool = Field(
        default=False, description="allow webhooks to addresses that are not public"
    )
    retry_base_s: float = Field(
        default=1.0, gt=0, description="seconds of an event handler's first backoff, doubled each time"
    )
    temperature_limit_c: float = Field(default=90.0, gt=0, description="a hotter GPU is unhealthy")
    rate_per_s: float = Field(
        default=50.0, gt=0, description="most requests per second of one token, on average, per web process"
    )
    rate_burst: int = Field(
        default=200, ge=1, description="most requests at once of a token, per web process"
    )
    costly_each: int = Field(
        default=4,
        ge=1,
        description="most calls of one token, without tokens of all callers, that may be under way at once of the "
        "functions that take seconds (report::progress, report::diff, report::tsv, the audits), per web process",
    )
    event_streams: int = Field(default=2000, ge=1, description="most open event streams of a web process")
    event_streams_each: int = Field(
        default=16, ge=1, description="most open event streams of one token, per web process"
    )
    waits_each: int = Field(
        default=64,
        ge=1,
        description="most calls of one token that may wait at once (experiment::wait, pool::acquire, trace::select), "
        "per web process",
    )
    stored_mb_a_day: float = Field(
        default=1000.0,
        ge=8,
        description="most MB that one token stores in a day: texts, patches (compressed), results, events, answers to"
        " Idempotency-Keys",
    )
    archive: str | None = Field(
        default=None,
        pattern=r"^(/|s3://[a-z0-9])",
        description="where old patches go when a tag's policy says so (patches.archive_after_days): an absolute"
        " folder that web and events processes share, or s3://BUCKET/PREFIX (with the package's extra s3, and the"
        " variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL)",
    )
    archive_s: float = Field(
        default=3600.0, gt=0, description="seconds between two movings of patches to the archive"
    )
    forget_gpus_days: float = Field(
        default=7.0, gt=0, description="days offline after which a GPU that was not drained is forgotten"
    )
    good_samples: int = Field(
        default=3, ge=1, description="good samples in a row that make a GPU healthy again"
    )
    memory_tolerance_mb: float = Field(
        default=256.0, ge=0, description="MB of GPU memory that a run may leave in use"
    )
    min_free_mb: float = Field(
        default=1024.0, ge=0, description="with less free disk (MB) a worker starts no run and is unhealthy"
    )
    run_disk_mb: float = Field(
        default=20480.0, gt=0, description="a run whose files take more disk (MB) is killed"
    )
    run_processes: int = Field(
        default=512, ge=1, description="a run that has more processes at once is killed"
    )
    run_memory_mb: float | None = Field(
        default=None,
        gt=0,
        description="a run that takes more memory (MB) is killed (default: nine tenths of the machine's, shared by "
        "the slots of its worker)",
    )
    keep_failed_s: float = Field(
        default=43200.0, ge=0, description="seconds for which a worker keeps the folder of a failed run"
    )
    keep_failed_mb: float = Field(
        default=1024.0,
        ge=0,
        description="MB of disk for these folders, per GPU or CPU slot; the oldest are removed first",
    )
    agent_gpus: int = Field(
        default=8, ge=0, description="GPUs that an agent with a token may register for itself"
    )
    worker_gpus: int = Field(
        default=64, ge=0, description="GPUs that a worker with a token may register for the lab"
    )
    worker_crash_limit: int = Field(
        default=5,
        ge=1,
        description="crashes in a row after which a baseline that crashes, too, takes its GPU out of the pool",
    )
    worker_cooldown_s: float = Field(
        default=60.0,
        gt=0,
        description="seconds until such a GPU may try one run; doubled each time, up to an hour",
    )
    term_grace_s: float = Field(default=10.0, ge=0, description="seconds between TERM and KILL of a run")
    poll_s: float = Field(
        default=0.5, gt=0, description="seconds between two requests of a worker for orders to its run"
    )

    log_level: str = Field(
        default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="lowest level to log"
    )
    log_format: str = Field(
        default="console",
        pattern="^(console|json)$",
        description="console: lines for people; json: one object per line",
    )
    otlp_endpoint: str | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="OpenTelemetry collector (OTLP over HTTP) that receives the spans",
    )

    max_consecutive_crashes: int = Field(
        default=3,
        ge=1,
        validation_alias=AliasChoices("NIGHTJAR_MAX_CONSECUTIVE_CRASHES", "MAX_CONSECUTIVE_CRASHES"),
        description="default of the policy's crash_limit for new tags",
    )
    near_miss_threshold: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        validation_alias=AliasChoices("NIGHTJAR_NEAR_MISS_THRESHOLD", "NEAR_MISS_THRESHOLD"),
        description="near_miss_margin of new tags' policies; default: by their noise",
    )
    program: Path | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_PROGRAM", "META_BASE_PROGRAM_MD_PATH"),
        description="the charter: the program.md that every tag's program is written into, read anew when it changes"
        " (default: the one that comes with Nightjar)",
    )
    swarm_profile: str = Field(
        default="mnist",
        description="what a swarm's tag may vary that the first worker creates: mnist, nanochat, or the path of a"
        " dimensions.toml",
    )
    swarm_secret: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_SWARM_SECRET", "META_ENROLL_TOKEN"),
        description="the team's secret, which a worker sends as enroll_token to join the swarm; an enroll token does,"
        " too",
    )
    swarm_public_reads: bool = Field(
        default=True,
        description="answer the swarm's public reads to anyone; false: to viewers only (/health always answers, but"
        " tells strangers of no other tag)",
    )

    llm_provider: Literal["auto", "anthropic", "openai", "gemini", "none"] = Field(
        default="auto",
        validation_alias=AliasChoices("NIGHTJAR_LLM_PROVIDER", "BAD_PI_LLM_PROVIDER"),
        description="whose language model writes: anthropic, openai, gemini, none; auto: the first whose key is set."
        " Without one, all texts come from templates",
    )
    anthropic_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
        description="key of Anthropic's API; also read from ANTHROPIC_API_KEY",
    )
    openai_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_OPENAI_API_KEY", "OPENAI_API_KEY"),
        description="key of OpenAI's API; also read from OPENAI_API_KEY",
    )
    gemini_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_GEMINI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
        description="key of the Gemini API; also read from GEMINI_API_KEY or GOOGLE_API_KEY",
    )
    llm_model: str | None = Field(
        default=None,
        pattern=r"^[\w.:/@-]{1,200}$",
        description="the model (default: claude-sonnet-5, gpt-6.1-terra or gemini-3.8-flash)",
    )
    llm_timeout_s: float = Field(
        default=120.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds after which the model's writing of one text is given up, retries and a repair included",
    )
    llm_tokens_per_day: int = Field(
        default=1_000_000,
        ge=0,
        description="tokens, read and written, that the model may cost in a day (UTC); 0: it is never asked",
    )
    llm_usd_per_day: float = Field(
        default=5.0,
        ge=0,
        allow_inf_nan=False,
        description="US dollars that the model may cost in a day (UTC), as far as its price is known",
    )
    llm_usd_per_mtok_in: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="US dollars per million tokens read (default: the model's list price, where Nightjar knows it)",
    )
    llm_usd_per_mtok_out: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="US dollars per million tokens written; goes with the one before",
    )
    pipeline_enabled: bool = Field(
        default=False,
        validation_alias=AliasChoices("NIGHTJAR_PIPELINE_ENABLED", "BAD_PI_SPEC_EXEC_ENABLED"),
        description="draft the next program of each swarm while its batch of results runs",
    )
    pipeline_auto_deploy: bool = Field(
        default=False,
        validation_alias=AliasChoices("NIGHTJAR_PIPELINE_AUTO_DEPLOY", "BAD_PI_SPEC_AUTO_DEPLOY"),
        description="let workers follow a draft before its batch confirms it, where confidence and trust suffice",
    )
    pipeline_batch_every: int = Field(
        default=20,
        ge=2,
        le=1000,
        validation_alias=AliasChoices("NIGHTJAR_PIPELINE_BATCH_EVERY", "BAD_PI_PIPELINE_BATCH_EVERY"),
        description="results of a batch, at whose end the next program is decided",
    )
    pipeline_draft_after: int = Field(
        default=10,
        ge=1,
        le=10_000,
        description="ticks of a batch, at a tenth and each fifth of a run, after which its draft begins",
    )
    pipeline_oldest_s: float = Field(
        default=600.0,
        gt=0,
        description="seconds after which a draft whose batch is not over is flushed",
    )
    pipeline_least_confidence: float = Field(
        default=0.65,
        ge=0,
        le=1,
        validation_alias=AliasChoices("NIGHTJAR_PIPELINE_LEAST_CONFIDENCE", "BAD_PI_SPEC_CONF_THRESHOLD"),
        description="least confidence of a draft that workers follow early, 0 to 1",
    )
    pipeline_least_bank: float = Field(
        default=0.70,
        ge=0,
        le=1,
        validation_alias=AliasChoices("NIGHTJAR_PIPELINE_LEAST_BANK", "BAD_PI_DEPLOY_CONF_THRESHOLD"),
        description="least trust in drafts that this takes, 0 to 1; it begins at 0.5",
    )

    @property
    def stored_bytes_a_day(self) -> int:
        """Bytes that one token may store in a day."""
        return int(self.stored_mb_a_day * 1e6)

    @property
    def plugin_names(self) -> list[str]:
        """The plug-ins that may be loaded."""
        return [name.strip() for name in self.plugins.split(",") if name.strip()]

    @property
    def worker_environment(self) -> dict[str, str]:
        """Variables that differ in a worker's environment: it gets the URLs of its own Redis user only, and no key of
        a language model, since runs may see it."""
        own = {"NIGHTJAR_REDIS_URL": self.worker_redis_url, "NIGHTJAR_BROKER_URL": self.worker_broker_url}
        given = {name: url.get_secret_value() for name, url in own.items() if url is not None}
        return {**dict.fromkeys(OF_AUTHORS, ""), **given}


def own_environment() -> dict[str, str]:
    """The environment for a process of the lab: ours without tokens, which are for commands."""
    return {name: value for name, value in os.environ.items() if name.upper() not in OF_COMMANDS}


WITHOUT_COUNTERPART: Mapping[str, str] = {
    "REQUIRE_DASHBOARD_AUTH": "an operator's token closes the lab (token issue NAME --role operator), and"
    " NIGHTJAR_SWARM_PUBLIC_READS=false the public reads",
    "DASHBOARD_TOKENS": "issue each reader a token: token issue NAME --role viewer",
    "META_RUNTIME_STATE_PATH": "the lab's state is in Redis: NIGHTJAR_DATA, NIGHTJAR_REDIS_URL",
}
"""Variables of other servers of the swarm protocol that set nothing here, with what to use instead."""


def set_in_vain(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of other servers that are set and set nothing here, each with what to use instead."""
    aliases = [info.validation_alias for info in Settings.model_fields.values()]
    known = {str(name) for alias in aliases if isinstance(alias, AliasChoices) for name in alias.choices}
    return {
        name: WITHOUT_COUNTERPART.get(name, "./nightjar config shows every setting")
        for name in sorted(environment)
        if name in WITHOUT_COUNTERPART or (name.startswith(("BAD_PI_", "META_")) and name not in known)
    }
