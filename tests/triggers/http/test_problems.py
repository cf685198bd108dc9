"""Every deliberate error has its status; what only asks changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from state.errors import BY_TITLE, NightjarError, NotFound
from triggers.http.problems import problem_document, problem_response


def tree(root: type[NightjarError]) -> Iterator[type[NightjarError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from tree(kind)


def test_every_error_of_the_tree_has_its_status() -> None:
    # a worker's own errors (a checkout that cannot be built) end as an experiment's crash, never at a door
    told = {kind for kind in tree(NightjarError) if kind.__module__ == "state.errors"}

    assert {kind for kind in told if "status" not in vars(kind)} == set()


@pytest.mark.parametrize("kind", BY_TITLE.values(), ids=lambda kind: str(kind.__name__))
def test_an_error_becomes_a_problem_document(kind: type[NightjarError]) -> None:
    response = problem_response(
        kind("what", hint="do this", retry_after=1.2, fields={"title": "no", "more": 1})
    )

    assert response.status_code == kind.status
    assert response.media_type == "application/problem+json"
    assert response.headers["retry-after"] == "2"
    body = bytes(response.body)
    assert b'"hint": "do this"' in body
    assert b'"more": 1' in body
    assert b'"no"' not in body


def test_a_problem_quotes_no_token() -> None:
    text = "nj_234567abcd_" + "-_aA" * 10 + "xyz"

    response = problem_response(NotFound(f"there is no token {text!r}", fields={text: [text]}))

    assert text[-43:] not in bytes(response.body).decode()
    assert b"there is no token '[redacted]'" in bytes(response.body)


def test_a_problem_never_holds_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        problem_document(422, "t", "d", fields={"value": float("nan")})
