"""The running lab, over HTTP: so that the command line sees the same answers and roles as everybody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import click
import httpx

from state import errors
from state.errors import Forbidden, NightjarError, Unauthenticated, Unavailable
from state.settings import Settings
from triggers.cli.address import base_url, is_here, is_own
from triggers.cli.bearer import Bearer, bearer_of
from triggers.http.problems import STATUS

BY_TITLE: dict[str, type[NightjarError]] = {kind.title: kind for kind in STATUS}
BY_STATUS: dict[int, type[NightjarError]] = {status: kind for kind, status in reversed(STATUS.items())}
TIMEOUT = httpx.Timeout(60.0)

_warned: set[str] = set()
"""URLs that were warned of in this process."""


class LabHttp:
    """A client of one lab's web process, with the token that is meant for it; an `anonymous` one sends none.

    It follows no redirect: a token goes to the lab's own URL or nowhere.

    Raises:
        Unauthenticated: the token that was found cannot be sent.
    """

    def __init__(
        self, settings: Settings, *, anonymous: bool = False, timeout: httpx.Timeout = TIMEOUT
    ) -> None:
        self.url = base_url(settings)
        self._is_own = is_own(settings)
        self._options = settings.options
        self._bearer = None if anonymous else bearer_of(settings)
        headers = {"Authorization": f"Bearer {self._bearer.text}"} if self._bearer else {}
        if self._bearer and not self._is_own:
            warn_of_plain_http(self.url)
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=timeout,
            trust_env=not is_here(self.url),  # no proxy of the environment leads to this machine itself
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
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
        raise self._refused(answer)

    @contextmanager
    def lines(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Iterator[Iterator[str]]:
        """The lines of an answer that goes on until the connection ends.

        Raises:
            NightjarError: as `ask`; also when the connection breaks while it is read.
        """
        try:
            with self._http.stream("GET", path, params=dict(query), headers=dict(headers)) as answer:
                if not answer.is_success:
                    answer.read()
                    raise self._refused(answer)
                yield answer.iter_lines()
        except httpx.HTTPError as problem:
            raise no_lab(self.url, problem) from problem

    def close(self) -> None:
        """Give the connection back."""
        self._http.close()

    def _refused(self, answer: httpx.Response) -> NightjarError:
        problem = problem_of(answer)
        match problem:
            case Unauthenticated():
                problem.detail = f"{self.url}: {problem.detail}"
                problem.hint = advice(self._bearer, self._is_own, self._options)
            case Forbidden() if self._bearer:
                problem.hint = f"{problem.hint or ''} (the token of {self._bearer.source} was sent)".strip()
        return problem


def advice(bearer: Bearer | None, is_own: bool, options: str) -> str:
    """What to do about a lab that does not know us."""
    found = (
        f"the token of {bearer.source} was sent; set NIGHTJAR_TOKEN to another"
        if bearer
        else "set NIGHTJAR_TOKEN to a token of this lab"
    )
    if not is_own:
        return f"{found}: its operator issues them"
    return (
        f"{found}, or let this data directory have an operator's:"
        f" ./nightjar token issue NAME --role operator --direct --save{options}"
    )


def warn_of_plain_http(url: str) -> None:
    """Say, once, that whoever is on the way can read the token."""
    if httpx.URL(url).scheme == "http" and not is_here(url) and url not in _warned:
        _warned.add(url)
        click.echo(
            f"nightjar: warning: the token travels unencrypted to {httpx.URL(url).host}: anybody on the way can"
            " read it. Use https, or an SSH tunnel: ssh -L 3111:127.0.0.1:3111 HOST",
            err=True,
        )


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
