"""The running lab, over HTTP: so that the command line sees the same answers and roles as everybody."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any

import httpx

from state import errors
from state.errors import NightjarError, Unavailable
from state.settings import Settings
from triggers.problems import STATUS

BY_TITLE: dict[str, type[NightjarError]] = {kind.title: kind for kind in STATUS}
BY_STATUS: dict[int, type[NightjarError]] = {status: kind for kind, status in reversed(STATUS.items())}


class LabHttp:
    """A client of one lab's web process."""

    def __init__(self, settings: Settings) -> None:
        self.url = base_url(settings)
        self._http = httpx.Client(base_url=self.url, timeout=60.0, trust_env=asks_proxies(self.url))

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer to one request.

        Raises:
            NightjarError: the problem document as our own error; Unavailable where no lab answers.
        """
        try:
            answer = self._http.request(method, path, json=body if method == "POST" else None)
        except httpx.HTTPError as problem:
            raise no_lab(self.url, problem) from problem
        if answer.is_success:
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return answer.json() if is_json else answer.content
        raise problem_of(answer)

    def close(self) -> None:
        """Give the connection back."""
        self._http.close()


def asks_proxies(url: str) -> bool:
    """Whether the environment's proxies are asked: none leads to this machine's own loopback interface."""
    host = httpx.URL(url).host
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def no_lab(url: str, problem: httpx.HTTPError) -> Unavailable:
    """Nobody answers there."""
    return Unavailable(
        f"no lab answers at {url} ({type(problem).__name__})",
        hint="start one with ./nightjar up, or set NIGHTJAR_URL",
    )


def problem_of(answer: httpx.Response) -> NightjarError:
    """A problem document as our own error."""
    try:
        body: dict[str, Any] = answer.json()
    except ValueError:
        body = {"detail": answer.text[:500]}
    kind = BY_TITLE.get(str(body.get("title"))) or BY_STATUS.get(answer.status_code, errors.Unavailable)
    return kind(
        str(body.get("detail")),
        hint=body.get("hint"),
        retry_after=body.get("retry_after"),
        fields={"problem": body},
    )


def base_url(settings: Settings) -> str:
    """Where the lab answers: NIGHTJAR_URL, else what `up` wrote down for this data directory, else the port."""
    if settings.url is not None:
        return settings.base_url
    try:
        written = json.loads((settings.data_dir / "web.json").read_text())
        return str(written["url"])
    except (OSError, ValueError, KeyError):
        return settings.base_url
