"""The command line's HTTP client: where the lab is, which token it gets, and its answers.

URL: NIGHTJAR_URL, else the one that the lab's web process wrote down, else the default port.
Token: NIGHTJAR_TOKEN, else the operator's key of the data directory.
"""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit

import click

from functions.kernel.process.process_identity import is_up
from functions.kernel.process.redaction import hide
from state import errors
from state.client_settings import ClientSettings
from state.errors import (
    BY_TITLE,
    Exhausted,
    Forbidden,
    NightjarError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from state.ids import token_id_in
from state.private import key_file, read_key

BY_STATUS = {kind.status: kind for kind in reversed(BY_TITLE.values())}
AWAY = (Exhausted, TooManyRequests, Unavailable)
"""Errors of a lab that is busy, starts again, or is not there."""
TIMEOUT_S = 60.0
"""Seconds for the connection, and for each part of an answer."""

_warned: set[str] = set()
"""URLs of which this process has warned."""


def base_url(settings: ClientSettings) -> str:
    """The URL of the lab that the commands call."""
    return settings.base_url if settings.url is not None else own_url(settings)


def check_is_there(settings: ClientSettings) -> None:
    """Raise Unavailable if a named data directory is missing: the default port may be another lab's."""
    if settings.url is None and "data" in settings.model_fields_set and not settings.data_dir.is_dir():
        raise Unavailable(
            f"no lab answers: there is no data directory {settings.data_dir}",
            hint="start one with ./nightjar up, name another directory with --data, or set NIGHTJAR_URL",
        )


def own_url(settings: ClientSettings) -> str:
    """The URL of the lab of this data directory."""
    url = settings.written_by_web.get("url")
    return url if isinstance(url, str) else settings.model_copy(update={"url": None}).base_url


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


@dataclass(frozen=True)
class Bearer:
    text: str = field(repr=False)
    source: str


def bearer_of(settings: ClientSettings) -> Bearer | None:
    """The token for the lab that the commands call. The key goes only to the running web process of its directory.

    Raises:
        Unauthenticated: the text found is not a token, or others may have read the key.
    """
    if (found := given(settings)) is not None:
        return found
    if not (is_own(settings) and is_here(base_url(settings)) and is_up(settings)):
        return None
    key = read_key(settings)
    return None if key is None else _checked(Bearer(key, str(key_file(settings))))


def given(settings: ClientSettings) -> Bearer | None:
    """The token in NIGHTJAR_TOKEN. Raises Unauthenticated: it is not a token."""
    text = settings.token.get_secret_value().strip() if settings.token is not None else ""
    return _checked(Bearer(text, "NIGHTJAR_TOKEN")) if text else None


def named(text: str, source: str) -> Bearer:
    """The token in the option `source`. Raises Unauthenticated: it is not a token."""
    return _checked(Bearer(text.strip(), source))


def _checked(bearer: Bearer) -> Bearer:
    hide(bearer.text)
    if token_id_in(bearer.text) is None:
        raise Unauthenticated(
            f"the text in {bearer.source} is not a token", hint="a token is nj_, its id, _ and its secret"
        )
    return bearer


class LabHttp:
    """A client of one lab's web process. It sends `bearer`, else the lab's token unless `anonymous`.

    It follows no redirects, so the token goes to the lab's URL only. It uses Python's own HTTP client, because
    httpx takes too long to import.

    Raises:
        Unauthenticated: the token that was found cannot be sent. Unavailable: the data directory that was named is
            not there.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        bearer: Bearer | None = None,
        anonymous: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        check_is_there(settings)
        self.url = base_url(settings)
        self._is_own = is_own(settings)
        self._options = settings.options
        self._anonymous = anonymous
        self._bearer = bearer or (None if anonymous else bearer_of(settings))
        self._headers = {"Authorization": f"Bearer {self._bearer.text}"} if self._bearer else {}
        if self._bearer and not self._is_own:
            warn_of_plain_http(self.url)
        self._timeout_s = timeout_s
        self._opener = _opener(self.url)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to one request. Raises NightjarError: the problem as our own error, or no answer."""
        sent = json.dumps(body).encode() if method == "POST" and body is not None else None
        with self._answered(
            method, path, {"Content-Type": "application/json"} if sent else {}, sent
        ) as answer:
            content: bytes = answer.read()
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return json.loads(content) if is_json else content

    @contextmanager
    def lines(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Iterator[Iterator[str]]:
        """The lines of a streamed answer. Raises NightjarError: as `ask`, or the connection breaks."""
        with self._answered("GET", f"{path}?{urlencode(query)}" if query else path, headers) as answer:
            yield (line.decode(errors="replace").rstrip("\r\n") for line in answer)

    @contextmanager
    def _answered(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        headers = {**self._headers, **headers}
        try:
            request = urllib.request.Request(self.url + path, body, headers, method=method)
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=self._timeout_s)
        except HTTPError as refusal:
            raise self._refused(refusal.code, refusal.read()) from refusal
        except (OSError, http.client.HTTPException, ValueError) as problem:  # ValueError: not a URL
            raise no_lab(self.url, problem) from problem
        with answer:
            try:
                yield answer
            except (OSError, http.client.HTTPException) as problem:
                raise no_lab(self.url, problem) from problem

    def _refused(self, status: int, content: bytes) -> NightjarError:
        problem = problem_of(status, content)
        match problem:
            case Unauthenticated():
                problem.detail = f"{self.url}: {problem.detail}"
                if not self._anonymous:
                    problem.hint = advice(self._bearer, self._is_own, self._options)
            case Forbidden() if self._bearer:
                problem.hint = f"{problem.hint or ''} (the token of {self._bearer.source} was sent)".strip()
        return problem


def _opener(url: str) -> urllib.request.OpenerDirector:
    """An opener with the environment's proxy, unless the lab is on this machine."""
    by_proxy = not is_here(url)
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.ProxyHandler(None if by_proxy else {}),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ]
    if url.startswith("https:"):
        import httpx  # for its certificate authorities

        handlers.append(urllib.request.HTTPSHandler(context=httpx.create_ssl_context(trust_env=by_proxy)))
    opener = urllib.request.OpenerDirector()
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def advice(bearer: Bearer | None, is_own: bool, options: str) -> str:
    """The hint when a lab does not accept our token."""
    found = (
        f"the token of {bearer.source} was sent; {_another(bearer)}"
        if bearer
        else "set NIGHTJAR_TOKEN to a token of this lab"
    )
    if not is_own:
        return f"{found}: its operator issues them"
    return f"{found}; without it the commands send this lab's key while its web process runs: ./nightjar up{options}"


def _another(bearer: Bearer) -> str:
    is_option = bearer.source.startswith("--")
    return f"give another by {bearer.source}" if is_option else "set NIGHTJAR_TOKEN to another"


def warn_of_plain_http(url: str) -> None:
    """Warn, once per URL, that others on the network can read the token."""
    if urlsplit(url).scheme == "http" and not is_here(url) and url not in _warned:
        _warned.add(url)
        click.echo(
            f"nightjar: warning: the token is sent unencrypted to {urlsplit(url).hostname}; others on the network"
            " can read it. Use https, or an SSH tunnel: ssh -L 3111:127.0.0.1:3111 HOST",
            err=True,
        )


def no_lab(url: str, problem: Exception) -> Unavailable:
    """The error when no lab answers at this URL."""
    reason = getattr(problem, "reason", problem)
    kind = type(reason if isinstance(reason, Exception) else problem).__name__
    return Unavailable(
        f"no lab answers at {url} ({kind})", hint="start one with ./nightjar up, or set NIGHTJAR_URL"
    )


def problem_of(status: int, content: bytes) -> NightjarError:
    """A problem document as our own error."""
    try:
        body: dict[str, Any] = dict(json.loads(content))
    except (ValueError, TypeError):
        body = {"detail": content.decode(errors="replace")[:500]}
    kind = BY_TITLE.get(str(body.get("title"))) or BY_STATUS.get(status, errors.Unavailable)
    return kind(
        str(body.get("detail")),
        hint="--help shows what the command takes" if "errors" in body else body.get("hint"),
        retry_after=body.get("retry_after"),
        fields={"problem": body},
    )
