"""Every error Nightjar raises on purpose, as one tree.

    NightjarError
    ├── Malformed          the request cannot be read                          400
    ├── Unauthenticated    unknown caller                                      401
    ├── Forbidden          known, but not allowed                              403
    ├── NotFound           the thing named does not exist                      404
    ├── Conflict           the thing is not in a state that allows this        409
    │   ├── BudgetExhausted    a tag's budget has no room for one more run     409
    │   └── Damaged            what is stored is not what was stored once      409
    ├── TooSlow            the body does not arrive in time                    408
    ├── TooLarge           the body is over its limit                          413
    ├── UnsupportedMedia   the body is of a kind we do not parse               415
    ├── Invalid            readable, but wrong                                 422
    ├── TooManyRequests    more than one token may ask                         429
    ├── Exhausted          nothing free right now; try again later             503
    └── Unavailable        a service we need does not answer                   503

The last column is the status over HTTP. An error may carry a `hint`, which says what to do next, and extra
`fields` for the answer. `retry_after` is the number of seconds after which a retry may help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from state.program import as_typed


class NightjarError(Exception):
    title = "Nightjar error"
    status = 500
    """Of the answer over HTTP."""

    def __init__(
        self,
        detail: str,
        *,
        hint: str | None = None,
        retry_after: float | None = None,
        fields: dict[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = as_typed(hint) if hint else hint
        self.retry_after = retry_after
        self.fields = fields or {}


def by_problem(errors: Iterable[Mapping[str, str]]) -> str:
    """Problems of a request's fields, each once: `field` and `problem`."""
    fields: dict[str, list[str]] = {}
    for error in errors:
        fields.setdefault(error["problem"], []).append(error["field"])
    return "; ".join(f"{', '.join(names)}: {problem}" for problem, names in fields.items())


class Malformed(NightjarError):
    title = "Malformed request"
    status = 400


class Unauthenticated(NightjarError):
    title = "Unauthenticated"
    status = 401


class Forbidden(NightjarError):
    title = "Forbidden"
    status = 403


class NotFound(NightjarError):
    title = "Not found"
    status = 404


class Conflict(NightjarError):
    title = "Conflict"
    status = 409


class BudgetExhausted(Conflict):
    title = "Budget exhausted"
    status = 409


class Damaged(Conflict):
    title = "Damaged data"
    status = 409


class TooSlow(NightjarError):
    title = "Request too slow"
    status = 408


class TooLarge(NightjarError):
    title = "Body too large"
    status = 413


class UnsupportedMedia(NightjarError):
    title = "Unsupported media type"
    status = 415


class Invalid(NightjarError):
    title = "Invalid request"
    status = 422


class TooManyRequests(NightjarError):
    title = "Too many requests"
    status = 429


class Exhausted(NightjarError):
    title = "Nothing free"
    status = 503


class Unavailable(NightjarError):
    title = "Service unavailable"
    status = 503
    nothing_done = False
    """Whether the service confirmed that it did nothing. Otherwise it may have executed the request."""


def _below(kind: type[NightjarError]) -> Iterator[type[NightjarError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


BY_TITLE = {kind.title: kind for kind in _below(NightjarError)}
"""Every error of the tree by its title, as problem documents name it."""
