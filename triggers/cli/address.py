"""Where the lab answers: NIGHTJAR_URL, else what `up` wrote down for the data directory, else the default port."""

from __future__ import annotations

import json
import os
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from state.settings import Settings


def base_url(settings: Settings) -> str:
    """Where the commands ask."""
    return settings.base_url if settings.url is not None else own_url(settings)


def own_url(settings: Settings) -> str:
    """Where the lab of this data directory answers."""
    url = _written(settings).get("url")
    return url if isinstance(url, str) else settings.model_copy(update={"url": None}).base_url


def is_up(settings: Settings) -> bool:
    """Whether an `up` of ours runs on this data directory: else its port may be somebody else's by now."""
    pid = _written(settings).get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except OSError:  # it has ended, or is another user's
        return False
    return True


def is_own(settings: Settings) -> bool:
    """Whether the commands ask the lab of this data directory."""
    return base_url(settings) == own_url(settings)


def is_here(url: str) -> bool:
    """Whether it leads to this machine's own loopback interface."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _written(settings: Settings) -> dict[str, Any]:
    """What `up` wrote down; nothing where it never ran."""
    try:
        written = json.loads((settings.data_dir / "web.json").read_text())
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}
