"""The lab's URL: NIGHTJAR_URL, else the one that its web process wrote down, else the default port."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from functions.process.birth import is_alive
from state.client_settings import ClientSettings, host_name
from state.errors import Unavailable


def base_url(settings: ClientSettings) -> str:
    """The URL of the lab that the commands call."""
    return settings.base_url if settings.url is not None else own_url(settings)


def check_is_there(settings: ClientSettings) -> None:
    """Check that the data directory is there if one was named: else the default port may be another lab's.

    Raises:
        Unavailable: it is not there.
    """
    if settings.url is None and "data" in settings.model_fields_set and not settings.data_dir.is_dir():
        raise Unavailable(
            f"no lab answers: there is no data directory {settings.data_dir}",
            hint="start one with ./nightjar up, name another directory with --data, or set NIGHTJAR_URL",
        )


def own_url(settings: ClientSettings) -> str:
    """The URL of the lab of this data directory."""
    url = _written(settings).get("url")
    return url if isinstance(url, str) else settings.model_copy(update={"url": None}).base_url


def is_up(settings: ClientSettings) -> bool:
    """Whether this lab's web process runs on this machine; if not, another program may have its port now."""
    name, host = _written(settings).get("process"), host_name()
    return isinstance(name, str) and name.startswith(f"{host}:") and is_alive(name, host)


def is_own(settings: ClientSettings) -> bool:
    """Whether the commands call the lab of this data directory."""
    return base_url(settings) == own_url(settings)


def is_here(url: str) -> bool:
    """Whether the URL's host is this machine's loopback interface."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _written(settings: ClientSettings) -> dict[str, Any]:
    """What the web process of this lab wrote down; empty if none ran."""
    try:
        written = json.loads(settings.own_file("web.json").read_text())
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}
