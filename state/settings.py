"""Settings of all Nightjar processes. An entry point reads them once and passes them down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr

from state.client_settings import ClientSettings

OF_COMMANDS = frozenset({"NIGHTJAR_TOKEN", "NIGHTJAR_ENROLL_TOKEN"})
"""Variables of commands; processes of the lab do not get them."""
OF_AUTHORS = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    *("NIGHTJAR_ANTHROPIC_API_KEY", "NIGHTJAR_OPENAI_API_KEY", "NIGHTJAR_GEMINI_API_KEY"),
)
"""Keys of language models."""


class Settings(ClientSettings):
    """All settings. The lab's processes take these; commands take `ClientSettings`, which imports faster."""

    clone: Path | None = Field(
        default=None,
        description="clone of the project. The web process tries each submitted patch there, against the tag's base "
        "commit; `up` names its --repo",
    )
    redis_url: SecretStr | None = Field(
        default=None,
        description="Redis of the lab, its Sentinels or nodes of its Cluster (default: an embedded server)",
    )
    broker_url: SecretStr | None = Field(
        default=None,
        description="Redis of RQ's queues, if it is not the lab's; needed if that is a Cluster",
    )
    worker_redis_url: SecretStr | None = Field(
        default=None,
        description="Redis of RQ's queues with the user of workers that `up` starts; see ./nightjar redis acl",
    )
    redis_server: Path | None = Field(default=None, description="redis-server binary for the embedded server")
    redis_appendfsync: str = Field(
        default="everysec",
        pattern="^(everysec|always)$",
        description="how the embedded server syncs its append-only file. With everysec, a power loss, a kill during "
        "a sync or a full disk may cost the last two seconds of answered writes; with always, none",
    )
    host: str = Field(
        default="127.0.0.1", description="address of the web process; loopback while there are no tokens"
    )
    allowed_hosts: str = Field(default="", description="further Host names to accept, separated by commas")

    functions: Path | None = Field(
        default=None, description="folder of functions of your own; its files run as the lab"
    )

    redis_timeout_s: float = Field(
        default=5.0, gt=0, description="seconds until an unanswered Redis command is an error"
    )
    stale_s: float = Field(
        default=60.0,
        gt=0,
        description="seconds without a heartbeat after which a worker is offline. Heartbeats and sweeps come six "
        "times as often, dispatches twelve times, health checks twice",
    )
    silent_s: float = Field(
        default=15.0,
        gt=0,
        description="seconds without a sign of life after which a process counts as dead, and a leased run or an "
        "event that it took is given to another",
    )
    keep_events_days: float = Field(
        default=7.0,
        gt=0,
        description="days for which all events are kept; the newest 100,000 are kept at any age",
    )
    webhook_private: bool = Field(
        default=False, description="allow webhooks to addresses that are not public"
    )
    rate_per_s: float = Field(
        default=50.0,
        gt=0,
        description="average requests per second of one token; four times as many may come at once",
    )
    stored_mb_a_day: float = Field(
        default=1000.0,
        ge=8,
        description="MB that one token may store in a day: texts, patches (compressed), results, events, answers to "
        "Idempotency-Keys",
    )
    archive: str | None = Field(
        default=None,
        pattern=r"^(/|s3://[a-z0-9])",
        description="place of old patches (policy patches.archive_after_days): an absolute folder that web and "
        "events processes share, or s3://BUCKET/PREFIX. S3 needs the package's extra s3 and the "
        "variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL",
    )
    run_disk_mb: float = Field(
        default=20480.0,
        gt=0,
        description="disk in MB that the files of a run may take; the run is killed beyond it",
    )
    run_memory_mb: float | None = Field(
        default=None,
        gt=0,
        description="memory in MB that a run may take; the run is killed beyond it (default: nine tenths of the "
        "machine's, divided by the slots of its worker)",
    )

    log_level: str = Field(
        default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="lowest level to log"
    )
    log_format: str = Field(
        default="console",
        pattern="^(console|json)$",
        description="console: lines for people; json: one object per line",
    )

    max_consecutive_crashes: int = Field(
        default=3,
        ge=1,
        validation_alias=AliasChoices("NIGHTJAR_MAX_CONSECUTIVE_CRASHES", "MAX_CONSECUTIVE_CRASHES"),
        description="crash_limit of new tags' policies",
    )
    near_miss_threshold: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        validation_alias=AliasChoices("NIGHTJAR_NEAR_MISS_THRESHOLD", "NEAR_MISS_THRESHOLD"),
        description="near_miss_margin of new tags' policies (default: from the tag's noise)",
    )
    program: Path | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_PROGRAM", "META_BASE_PROGRAM_MD_PATH"),
        description="the charter: the program.md into which every tag's program is written. It is read again when it"
        " changes (default: Nightjar's own)",
    )
    swarm_profile: str = Field(
        default="mnist",
        description="dimensions of a swarm's tag that the first worker creates: mnist, nanochat, or the path of a "
        "dimensions.toml",
    )
    swarm_secret: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_SWARM_SECRET", "META_ENROLL_TOKEN"),
        description="the team's secret. A worker sends it, or an enroll token, as enroll_token to join the swarm",
    )
    swarm_public_reads: bool = Field(
        default=True,
        description="answer the swarm's public reads to anyone; false: only to viewers. /health always answers, but "
        "then without the other tags",
    )

    llm_provider: Literal["auto", "anthropic", "openai", "gemini", "none"] = Field(
        default="auto",
        validation_alias=AliasChoices("NIGHTJAR_LLM_PROVIDER", "BAD_PI_LLM_PROVIDER"),
        description="provider of the language model that writes. auto: the first whose key is set. Without one, "
        "templates write all texts",
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
        pattern=r"^[A-Za-z0-9_.:/@-]{1,200}$",
        description="model (default: claude-sonnet-5, gpt-6.1-terra or gemini-3.8-flash)",
    )
    llm_timeout_s: float = Field(
        default=120.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds until the writing of one text is given up, with its retries and repair",
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
        description="US dollars that the model may cost in a day (UTC), where its price is known",
    )
    llm_usd_per_mtok: str | None = Field(
        default=None,
        pattern=r"^\d+(\.\d+)?/\d+(\.\d+)?$",
        description="US dollars per million tokens read and written, such as 3/15 (default: the model's list price, "
        "where Nightjar knows it)",
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
        description="results in a batch; the next program is decided at the end of a batch",
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
        description="least trust in the author's drafts for following one early, 0 to 1; trust begins at 0.5",
    )

    @property
    def heartbeat_s(self) -> float:
        """Seconds between two heartbeats of a process or a GPU."""
        return self.stale_s / 6

    @property
    def sweep_s(self) -> float:
        """Seconds between two sweeps for what has died."""
        return self.stale_s / 6

    @property
    def dispatch_s(self) -> float:
        """Seconds between two dispatches without an event."""
        return self.stale_s / 12

    @property
    def health_s(self) -> float:
        """Seconds between two health checks of every GPU."""
        return self.stale_s / 2

    @property
    def cooldown_s(self) -> float:
        """Seconds until a GPU whose baseline crashed may try a run, the first time."""
        return self.silent_s * 4

    @property
    def stored_bytes_a_day(self) -> int:
        """Bytes that one token may store in a day."""
        return int(self.stored_mb_a_day * 1e6)

    @property
    def worker_environment(self) -> dict[str, str]:
        """Variables of a worker, which runs may read: its own Redis user, no key of a language model."""
        url = self.worker_redis_url or self.broker_url
        names = ("NIGHTJAR_REDIS_URL", "NIGHTJAR_BROKER_URL")
        own = {} if url is None else dict.fromkeys(names, url.get_secret_value())
        return {**dict.fromkeys(OF_AUTHORS, ""), **own}


def own_environment() -> dict[str, str]:
    """Our environment without the tokens of commands, for a process of the lab."""
    return {name: value for name, value in os.environ.items() if name.upper() not in OF_COMMANDS}


WITHOUT_COUNTERPART: Mapping[str, str] = {
    "REQUIRE_DASHBOARD_AUTH": "an operator's token closes the lab (token issue NAME --role operator), and"
    " NIGHTJAR_SWARM_PUBLIC_READS=false the public reads",
    "DASHBOARD_TOKENS": "issue each reader a token: token issue NAME --role viewer",
    "META_RUNTIME_STATE_PATH": "the lab's state is in Redis: NIGHTJAR_DATA, NIGHTJAR_REDIS_URL",
}
"""Variables of other servers of the swarm protocol that have no effect here, with a replacement."""


def set_in_vain(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of other servers that are set without effect, each with a replacement."""
    aliases = [info.validation_alias for info in Settings.model_fields.values()]
    known = {str(name) for alias in aliases if isinstance(alias, AliasChoices) for name in alias.choices}
    return {
        name: WITHOUT_COUNTERPART.get(name, "./nightjar config shows every setting")
        for name in sorted(environment)
        if name in WITHOUT_COUNTERPART or (name.startswith(("BAD_PI_", "META_")) and name not in known)
    }
