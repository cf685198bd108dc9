"""What a route and its answer may be: over HTTP, in /openapi.json, from `nightjar call`, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import Field, RootModel

from functions.kernel.contract import (
    BadTable,
    Command,
    Function,
    Http,
    Picture,
    Request,
    Response,
    Sparse,
    Text,
    function,
)
from functions.kernel.invoke import Invoker
from functions.kernel.process.lifecycle import Process
from functions.kernel.table import check
from tests.commands import printed
from tests.conftest import http_client, served_client
from tests.labs import problem
from triggers.openapi import openapi


class StartThis(Command):
    worker: str = Field(description="who runs it", examples=["w1"])
    config: dict[str, int | str] = Field(description="values by name", examples=[{"LR": 1}])
    tag: str = Field("swarm", max_length=20, description="where")
    copies: int | None = Field(None, ge=1, description="how many", examples=[2])


class ThisStarted(Response):
    worker: str
    config: dict[str, int | str]
    tag: str
    copies: int | None


@function(
    "this::start", Http("POST", "/this/start/{worker}", query=("tag", "copies"), body="config"), role="agent"
)
async def start(request: StartThis) -> ThisStarted:
    """Say what was asked."""
    return ThisStarted(worker=request.worker, config=request.config, tag=request.tag, copies=request.copies)


class FindThis(Request):
    name: str = Field(description="which one", examples=["a"])
    tag: str = Field("swarm", description="where")
    most: int = Field(3, description="how many")


class ThisFound(Response):
    name: str = Field(description="what it is called")
    tag: str
    most: int


class TheseFound(RootModel[list[ThisFound]]):
    """A bare array."""


@function(
    "this::find",
    Http("GET", "/this/find", has_etag=True),
    Http("POST", "/this/find", query=("tag", "most"), has_etag=True),
    role="agent",
)
async def find(request: FindThis) -> TheseFound:
    """Find one, several times."""
    one = ThisFound(name=request.name, tag=request.tag, most=request.most)
    return TheseFound([one] * request.most)


class NameThis(Request):
    name: str = Field("", description="which one", examples=["a"])


class ThisAdvice(Sparse):
    action: str | None = Field(None, description="what to do")
    inner: dict[str, int | None] | None = None
    word: str = "go"


class ThisOrder(Sparse):
    action: str | None = None
    budget: float | None = None


@function("this::advise", Http("GET", "/this/advice"), role="agent")
async def advise(request: NameThis) -> ThisAdvice:
    """Advise."""
    return ThisAdvice(action=request.name or None, inner={"kept": None} if request.name else None)


@function("this::order", Http("GET", "/this/order"), role="agent")
async def order(request: NameThis) -> ThisOrder:
    """Order nothing, unless it has a name."""
    return ThisOrder(action=request.name or None)


@function("this::read", Http("GET", "/this/text", has_etag=True), role="agent")
async def read(request: NameThis) -> Text:
    """Read a text."""
    return Text(content=request.name)


class ReceiveThis(Command):
    name: str = Field("", description="which one", examples=["a"])


@function("this::receive", role="agent", writes=True)
async def receive(request: ReceiveThis) -> ThisFound | None:
    """Answer if it has a name."""
    return ThisFound(name=request.name, tag="", most=0) if request.name else None


SMALL: dict[str, Function[Any, Any]] = {one.name: one for one in (start, find, advise, order, read, receive)}
DOCUMENT = openapi(SMALL)


@pytest.fixture
def small(process: Process) -> Process:
    """A web process that has the functions of these tests."""
    return replace(process, invoker=Invoker(SMALL, []))


@pytest.fixture
async def http(small: Process) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(small) as found:
        yield found


# -- fields of a POST in its query


async def test_a_body_that_fills_one_field_may_hold_any_name(http: httpx.AsyncClient) -> None:
    body = {"tag": "in the body", "worker": "another", "copies": 7}

    answer = await http.post("/this/start/w1?tag=mar11&copies=2", json=body)

    assert answer.json() == {"worker": "w1", "config": body, "tag": "mar11", "copies": 2}


@pytest.mark.parametrize(
    ("query", "body", "field"),
    [
        ("tag=mar11", {"name": "a", "tag": "mar11"}, "tag"),
        ("most=two", {"name": "a"}, "most"),
        ("", {"name": "a", "most": "2"}, "most"),  # a body has JSON's types
        ("name=a", {}, "name"),  # not declared
        ("copies=1", {"name": "a"}, "copies"),
    ],
)
async def test_what_a_query_may_not_hold_is_refused_by_its_name(
    http: httpx.AsyncClient, query: str, body: dict[str, Any], field: str
) -> None:
    told = problem(await http.post(f"/this/find?{query}", json=body), 422)

    assert [error["field"] for error in told["errors"]] == [field]


# -- answers


async def test_a_sparse_answer_leaves_out_its_own_fields_that_are_none(http: httpx.AsyncClient) -> None:
    assert (await http.get("/this/order")).content == b"{}"
    assert (await http.get("/this/order?name=stop")).json() == {"action": "stop"}
    assert (await http.get("/this/advice?name=stop")).json() == {
        "action": "stop",
        "inner": {"kept": None},
        "word": "go",
    }


async def test_none_is_answered_without_a_body_and_a_repetition_gets_the_same(
    http: httpx.AsyncClient,
) -> None:
    some = await http.post("/api/this/receive", json={"name": "a"})
    none = [await http.post("/api/this/receive", json={}, headers={"idempotency-key": "k"}) for _ in range(2)]

    assert some.json() == {"name": "a", "tag": "", "most": 0}
    assert [(a.status_code, a.content, "content-type" in a.headers) for a in none] == [(204, b"", False)] * 2
    assert [a.headers.get("idempotent-replayed") for a in none] == [None, "true"]


# -- ETags


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_client_that_holds_the_answer_is_told_so_without_a_body(
    http: httpx.AsyncClient, method: str
) -> None:
    asked: dict[str, Any] = {"params": {"name": "a"}} if method == "GET" else {"json": {"name": "a"}}
    etag = (await http.request(method, "/this/find", **asked)).headers["etag"]

    for held in (etag, f"W/{etag}", f'"other", W/{etag}', "*", f'"a,b" ,{etag}'):
        again = await http.request(method, "/this/find", headers={"if-none-match": held}, **asked)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag), held


# -- what /openapi.json and /docs say of it


def test_the_document_shows_the_query_of_a_post_and_the_one_field_of_its_body() -> None:
    told = DOCUMENT["paths"]["/this/start/{worker}"]["post"]

    assert {(one["name"], one["in"], one["required"]) for one in told["parameters"]} == {
        ("worker", "path", True),
        ("tag", "query", False),
        ("copies", "query", False),
    }
    assert told["requestBody"]["required"]
    assert told["requestBody"]["x-fills"] == "config"
    assert told["requestBody"]["content"]["application/json"]["schema"]["type"] == "object"


# -- from the command line


async def test_call_sends_each_field_where_the_route_reads_it(small: Process, tmp_path: Path) -> None:
    check(SMALL)
    async with served_client(small) as served:

        async def call(*words: str) -> str:
            url = str(served.base_url)
            return await asyncio.to_thread(printed, tmp_path / "data", "call", *words, NIGHTJAR_URL=url)

        started = await call("this::start", "--worker", "w1", "--config", '{"tag": 1}', "--copies", "2")
        found = await call("this::find", "--name", "a", "--tag", "mar11", "--most", "1")
        text = await call("this::read", "--name", "# Title")
        nothing = await call("this::receive")

    assert json.loads(started) == {"worker": "w1", "config": {"tag": 1}, "tag": "swarm", "copies": 2}
    assert json.loads(found) == [{"name": "a", "tag": "mar11", "most": 1}]
    assert (text, nothing) == ("# Title", "")


# -- declarations that cannot work


class AskTwo(Command):
    one: str
    two: str = ""


class OneOnly(Response):
    one: str = ""


class OneWord(RootModel[str]):
    """No list."""


@pytest.mark.parametrize(
    ("door", "reason"),
    [
        (Http("GET", "/x/{one}", query=("two",)), "only a POST declares query or body"),
        (Http("DELETE", "/x/{one}", body="two"), "only a POST declares query or body"),
        (Http("POST", "/x/{one}", query=("three",)), "AskTwo has no field 'three'"),
        (Http("POST", "/x/{one}", body="three"), "AskTwo has no field 'three'"),
        (Http("POST", "/x/{three}"), "AskTwo has no field 'three'"),
        (Http("POST", "/x/{one}", query=("one",)), "'one' would come from two places"),
        (Http("POST", "/x", query=("one",), body="one"), "'one' would come from two places"),
        (Http("POST", "/x", query=("two", "two")), "'two' would come from two places"),
        (Http("POST", "/x", body="two"), "no request can have 'one'"),
        (
            Http("POST", "/x", query=("one",)),
            "'one' may stand in the query or in the body: give it a default",
        ),
        (Http("DELETE", "/x/{one}", has_etag=True), "a DELETE has no ETag"),
    ],
)
def test_a_route_that_does_not_fit_the_request_is_refused(door: Http, reason: str) -> None:
    @function("noun::verb", door, role="agent")
    async def verb(request: AskTwo) -> OneOnly:
        """Answer."""
        return OneOnly()

    with refused(reason):
        check({"noun::verb": verb})


def test_an_answer_that_cannot_be_sent_is_refused() -> None:
    @function("noun::word", role="agent")
    async def word(request: AskTwo) -> OneWord:
        """Answer."""
        return OneWord("x")

    @function("noun::kept", role="agent", writes=True)
    async def kept(request: AskTwo) -> Text:
        """Answer."""
        return Text(content="x")

    @function("noun::either", role="agent")
    async def either(request: AskTwo) -> OneOnly | Picture:
        """Answer."""
        return OneOnly()

    with refused("OneWord is no list"):
        check({"noun::word": word})
    with refused("Text cannot be kept for a repeated call"):
        check({"noun::kept": kept})
    with refused("is no model"):
        check({"noun::either": either})


@contextmanager
def refused(reason: str) -> Iterator[None]:
    with pytest.raises(BadTable, match=reason):
        yield
