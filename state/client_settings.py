"""Settings of commands that ask a running lab: its place, its URL and the token."""

from __future__ import annotations

import json
import re
import shlex
import socket
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from state.ids import Id, Tag


class ClientSettings(BaseSettings):
    """Variables with the prefix `NIGHTJAR_`, else lines of a `.env` file; `./nightjar config` shows them.

    The `.env` of the lab's data directory comes before that of the user's configuration folder. The working directory
    is not read: it may be somebody else's repository. An empty value counts as unset.
    """

    model_config = SettingsConfigDict(
        env_prefix="NIGHTJAR_", env_ignore_empty=True, extra="ignore", populate_by_name=True, frozen=True
    )

    lab: Id = Field(default="lab", description="name of the lab, the hash tag {<lab>} of all its keys")
    data: Path | None = Field(
        default=None, description="state directory (default: the user's state directory / lab)"
    )
    port: int = Field(default=3111, ge=0, le=65535, description="port of the web process")
    url: str | None = Field(default=None, description="URL of the running lab, for `call` and `status`")
    token: SecretStr | None = Field(default=None, description="the token that commands send to the lab")
    enroll_token: SecretStr | None = Field(default=None, description="the enroll token for `token enroll`")
    swarm_tag: Tag = Field(
        default="swarm", description="tag of the swarm's routes where a request names none"
    )

    @field_validator("data", mode="before")
    @classmethod
    def _named(cls, data: object) -> object:
        """The data directory as an absolute path; None for a blank name."""
        return data if not isinstance(data, str | Path) else _place(data)

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is not None and not re.match(r"https?://[^/?#]", url):
            raise ValueError(f"{url!r} is not a URL such as https://HOST")
        return url

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        of_user = DotEnvSettingsSource(settings_cls, env_file=user_file())
        given = {**of_user(), **env_settings(), **init_settings()}
        # the lab's own file cannot change the place of the lab
        place = {name: given[name] for name in ("data", "lab") if given.get(name) is not None}
        default = cls.model_fields["lab"].default
        try:
            of_lab: Path | None = data_dir(place.get("data"), place.get("lab", default)) / ".env"
        except ValueError:
            of_lab = None  # the validator says why
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, {"data": None, "lab": default, **place}),
            DotEnvSettingsSource(settings_cls, env_file=of_lab),
            of_user,
        )

    @property
    def data_dir(self) -> Path:
        """The folder of the lab's files; by default below XDG_STATE_HOME."""
        return data_dir(self.data, self.lab)

    def own_file(self, name: str) -> Path:
        """A file of the data directory, `web.json`; labs other than `lab` add their name, `web-<lab>.json`."""
        path = self.data_dir / name
        return path if self.lab == "lab" else path.with_stem(f"{path.stem}-{self.lab}")

    @property
    def written_by_web(self) -> dict[str, Any]:
        """What this lab's web process has written down: its `url`, and `process`; empty if none ran."""
        try:
            written = json.loads(self.own_file("web.json").read_text())
        except (OSError, ValueError):
            return {}
        return written if isinstance(written, dict) else {}

    @property
    def options(self) -> str:
        """The command line options that name this lab; empty for the default lab."""
        lab = "" if self.lab == "lab" else f" --lab {self.lab}"
        return lab if self.data is None else f"{lab} --data {shlex.quote(str(self.data_dir))}"

    @property
    def base_url(self) -> str:
        """The URL of the lab's HTTP triggers."""
        return (self.url or f"http://127.0.0.1:{self.port}").rstrip("/")


def data_dir(data: Path | str | None, lab: str) -> Path:
    """The folder of a lab's files. Raises ValueError: it names the home of an unknown user."""
    return (_place(data) if data else None) or Path(platformdirs.user_state_dir("nightjar"), lab).absolute()


def _place(data: Path | str) -> Path | None:
    """A named folder as an absolute path; None for a blank name."""
    if not str(data).strip():
        return None
    try:
        return Path(data).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"there is no user {Path(data).parts[0][1:]!r}") from None


def user_file() -> Path:
    """The `.env` of the user, for all labs."""
    return Path(platformdirs.user_config_dir("nightjar"), ".env")


def host_name() -> str:
    """This machine's short name in the characters that ids allow; GPU ids begin with it."""
    short = socket.gethostname().split(".")[0]
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in short)[:40].lstrip("-_") or "host"
