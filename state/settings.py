"""Every setting of a Nightjar process, read once in its entry point and passed down."""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path

import platformdirs
from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from state.ids import Id

OF_COMMANDS = frozenset({"NIGHTJAR_TOKEN", "NIGHTJAR_ENROLL_TOKEN"})
"""Variables that no process of the lab is given."""


class Settings(BaseSettings):
    """Variables with the prefix `NIGHTJAR_`, or lines of a `.env` file; `./nightjar config` shows them."""

    model_config = SettingsConfigDict(
        env_prefix="NIGHTJAR_", env_file=".env", extra="ignore", populate_by_name=True, frozen=True
    )

    lab: Id = Field(
        default="lab", description="name of the lab: every key of it carries the hash tag {<lab>}"
    )
    data: Path | None = Field(
        default=None, description="state directory (default: the user's state directory / lab)"
    )
    redis_url: SecretStr | None = Field(
        default=None, description="Redis of the lab; unset: an embedded server is started"
    )
    broker_url: SecretStr | None = Field(default=None, description="Redis of RQ's queues, if not the lab's")
    worker_redis_url: SecretStr | None = Field(
        default=None, description="the same Redis as the user that workers are; see ./nightjar redis acl"
    )
    worker_broker_url: SecretStr | None = Field(
        default=None, description="the same for the Redis of RQ's queues, if not the lab's"
    )
    redis_server: Path | None = Field(default=None, description="redis-server binary for the embedded server")
    redis_appendfsync: str = Field(
        default="everysec", pattern="^(everysec|always)$", description="AOF of the embedded server"
    )
    host: str = Field(
        default="127.0.0.1", description="address that the web process binds; loopback only without tokens"
    )
    port: int = Field(default=3111, ge=0, le=65535, description="port of the web process")
    url: str | None = Field(default=None, description="URL of the running lab, for `call` and `status`")
    allowed_hosts: str = Field(default="", description="further Host names accepted, separated by commas")

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
    dispatch_s: float = Field(
        default=5.0, gt=0, description="seconds between two dispatches that no event asked for"
    )
    health_s: float = Field(default=30.0, gt=0, description="seconds between two health checks of every GPU")
    start_grace_s: float = Field(
        default=10.0, gt=0, description="seconds until a lease that has not started is enqueued again"
    )
    claim_idle_s: float = Field(
        default=15.0, gt=0, description="seconds after which an event of a silent consumer is claimed"
    )
    keep_events: int = Field(
        default=100_000, ge=1, description="how many of the newest events are kept, however old"
    )
    keep_events_days: float = Field(
        default=7.0, gt=0, description="days for which events are kept, however many they are"
    )
    trim_s: float = Field(default=300.0, gt=0, description="seconds between two trimmings of the events")
    webhook_private: bool = Field(
        default=False, description="whether webhooks may go to addresses that are not public"
    )
    retry_base_s: float = Field(
        default=1.0, gt=0, description="first backoff of a failed event handler, doubled every time"
    )
    temperature_limit_c: float = Field(default=90.0, gt=0, description="a hotter GPU is unhealthy")
    token: SecretStr | None = Field(
        default=None, description="the token that the commands send to the running lab"
    )
    enroll_token: SecretStr | None = Field(
        default=None, description="the enroll token from which `token enroll` makes a token"
    )
    rate_per_s: float = Field(
        default=50.0, gt=0, description="requests a second of one token in the long run, at each web process"
    )
    rate_burst: int = Field(
        default=200, ge=1, description="requests of one token at once, at each web process"
    )
    event_streams: int = Field(
        default=2000, ge=1, description="most event streams (GET /api/events) open at once in a web process"
    )
    event_streams_each: int = Field(default=200, ge=1, description="most of them with one token")
    good_samples: int = Field(
        default=3, ge=1, description="good samples in a row that bring an unhealthy GPU back"
    )
    memory_tolerance_mb: float = Field(
        default=256.0, ge=0, description="GPU memory that a run may leave in use before its GPU is lent again"
    )
    min_free_mb: float = Field(
        default=1024.0, ge=0, description="free disk under which a worker begins no run and is unhealthy"
    )
    run_disk_mb: float = Field(
        default=20480.0, gt=0, description="disk that the files of one run may take before it is killed"
    )
    keep_failed_s: float = Field(
        default=43200.0, ge=0, description="seconds that the folder of a failed run is kept on its worker"
    )
    keep_failed_mb: float = Field(
        default=1024.0,
        ge=0,
        description="disk for such folders, for each GPU or CPU slot; the oldest go first",
    )
    worker_crash_limit: int = Field(
        default=5, ge=1, description="crashes in a row that take a GPU out of the pool for a while"
    )
    worker_cooldown_s: float = Field(
        default=60.0,
        gt=0,
        description="seconds such a GPU is out before it may try one run; doubled each time, up to an hour",
    )
    term_grace_s: float = Field(
        default=10.0, ge=0, description="seconds between TERM and KILL of a training run"
    )
    poll_s: float = Field(
        default=0.5, gt=0, description="seconds between two looks of a worker at its run's orders"
    )

    log_level: str = Field(
        default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="least level that is logged"
    )
    log_format: str = Field(
        default="console",
        pattern="^(console|json)$",
        description="lines for people, or json: one object per line",
    )
    otlp_endpoint: str | None = Field(
        default=None,
        validation_alias=AliasChoices("NIGHTJAR_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="OpenTelemetry collector (OTLP over HTTP) that gets the traces",
    )

    max_consecutive_crashes: int = Field(
        default=3,
        ge=1,
        validation_alias=AliasChoices("NIGHTJAR_MAX_CONSECUTIVE_CRASHES", "MAX_CONSECUTIVE_CRASHES"),
        description="default of the policy's crash_limit for new tags",
    )
    near_miss_threshold: float = Field(
        default=0.002,
        ge=0,
        allow_inf_nan=False,
        validation_alias=AliasChoices("NIGHTJAR_NEAR_MISS_THRESHOLD", "NEAR_MISS_THRESHOLD"),
        description="default of the policy's near_miss_margin for new tags",
    )

    @property
    def data_dir(self) -> Path:
        """Where the lab's files live; XDG_STATE_HOME is honoured."""
        return (self.data or Path(platformdirs.user_state_dir("nightjar")) / self.lab).expanduser().absolute()

    @property
    def plugin_names(self) -> list[str]:
        """Each plug-in that may be loaded."""
        return [name.strip() for name in self.plugins.split(",") if name.strip()]

    @property
    def worker_environment(self) -> dict[str, str]:
        """What the environment of a worker's process says in place of ours: it sees no other user than its own."""
        own = {"NIGHTJAR_REDIS_URL": self.worker_redis_url, "NIGHTJAR_BROKER_URL": self.worker_broker_url}
        return {name: url.get_secret_value() for name, url in own.items() if url is not None}

    @property
    def options(self) -> str:
        """The options that name this lab to another command; empty for the default lab."""
        lab = "" if self.lab == "lab" else f" --lab {self.lab}"
        return lab if self.data is None else f"{lab} --data {shlex.quote(str(self.data_dir))}"

    @property
    def base_url(self) -> str:
        """Where the lab's HTTP triggers answer."""
        return (self.url or f"http://127.0.0.1:{self.port}").rstrip("/")


def own_environment() -> dict[str, str]:
    """The environment for a process of the lab: the tokens in it are for the commands, which speak for a person."""
    return {name: value for name, value in os.environ.items() if name.upper() not in OF_COMMANDS}


def host_name() -> str:
    """This machine's short name, as it stands in GPU ids (only characters that an id allows)."""
    short = socket.gethostname().split(".")[0]
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in short)[:40].lstrip("-_") or "host"
