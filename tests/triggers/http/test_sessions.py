"""A browser's session: signed in once with a token, known by a cookie that nobody else can use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from http.cookies import Morsel, SimpleCookie
from typing import Any

import httpx
import pytest

from functions.kernel.contract import Http
from functions.kernel.invoke import Invoker
from functions.kernel.process.lifecycle import Process, opened
from functions.pool.gpus import heartbeat
from state.private import key_file, made_key
from state.records import Role
from state.token_values import Issued, digest_of_secret
from state.tokens import CODE_S, SESSION_S, SESSIONS_MOST, TRIES_S, WRONG_TRIES
from tests.conftest import http_client
from tests.labs import dump, problem, told
from triggers.http import identity
from triggers.http.identity import BY_PAGE

COOKIE = f"{identity.COOKIE}_3111"
"""Of the port that the tests' client calls."""
WRONG = "nj_aaaaaaaaaa_" + "A" * 43


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that nobody has signed in yet; it keeps its cookies as browsers do."""
    async with http_client(process, by_key=False) as found:
        yield found


@pytest.fixture
async def root(process: Process) -> Issued:
    return await process.tokens.issue(name="root", role="operator", issued_by="local")


@pytest.fixture
async def viewer(process: Process, root: Issued) -> Issued:
    return await issued(process, "vera", "viewer")


async def issued(process: Process, name: str, role: Role, **more: Any) -> Issued:
    return await process.tokens.issue(name=name, role=role, issued_by="root", **more)


async def sign_in(http: httpx.AsyncClient, text: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post("/api/session", json={"token": text}, headers=named)


def page_of(response: httpx.Response) -> dict[str, str]:
    """The headers of a write by the session that this answer opened."""
    return {BY_PAGE: response.json()["page"]}


def reader_of(response: httpx.Response) -> dict[str, Any]:
    """Who is signed in, by the same answer."""
    return {name: value for name, value in response.json().items() if name != "page"}


def cookie_of(response: httpx.Response) -> Morsel[str]:
    """The one cookie that an answer sets."""
    (line,) = response.headers.get_list("set-cookie")
    return SimpleCookie(line)[COOKIE]


async def code_of(operator: httpx.AsyncClient) -> str:
    """What `nightjar open` puts into its link."""
    return str((await told(operator, "/api/token/sign-in"))["code"])


async def test_a_browser_that_nobody_has_signed_in_looks_on_while_the_lab_is_open(
    http: httpx.AsyncClient, process: Process
) -> None:
    http.headers["sec-fetch-site"] = "same-origin"
    before = await dump(process.lab)

    answer = await http.get("/api/session")
    refusal = problem(await http.post("/api/experiment/setup", json={"tag": "mar11"}), 403)

    assert answer.json() == {
        "name": "visitor",
        "role": "viewer",
        "tags": None,
        "signed_in": False,
        "may_read": True,
    }
    assert "nightjar open" in refusal["hint"]
    assert (await http.post("/api/pool/list", json={})).is_success
    problem(await sign_in(http, WRONG), 401)
    assert await dump(process.lab) == before


async def test_the_link_of_the_operator_signs_one_browser_in_once(
    http: httpx.AsyncClient, operator: httpx.AsyncClient, process: Process
) -> None:
    code = await code_of(operator)

    signed_in = await http.post("/api/session", json={"code": code})
    again = await http.post("/api/session", json={"code": code})

    assert (reader_of(signed_in)["name"], reader_of(signed_in)["role"]) == ("operator", "operator")
    assert "used or older" in problem(again, 401)["detail"]
    cookie = cookie_of(signed_in).value
    page = {"cookie": f"{COOKIE}={cookie}", **page_of(signed_in)}
    assert (await http.post("/api/lab/audit", json={}, headers=page)).is_success
    assert not await process.tokens.are_configured(), "the key and its sessions leave the lab open"
    await code_of(operator)
    kept = {key.split(":")[1]: key for key in await dump(process.lab, without=frozenset())}
    assert 590 < await process.lab.command("TTL", kept["codes"]) <= CODE_S == 600
    assert SESSION_S - 10 < await process.lab.command("TTL", kept["sessions"]) <= SESSION_S


async def test_a_session_by_the_key_ends_with_the_key(
    http: httpx.AsyncClient, operator: httpx.AsyncClient, process: Process
) -> None:
    await http.post("/api/session", json={"code": await code_of(operator)})
    code, key = await code_of(operator), key_file(process.settings)
    assert (await http.get("/api/session")).json()["signed_in"]

    key.unlink()
    async with opened("web", process.settings) as later, http_client(later, by_key=False) as other:
        other.cookies = http.cookies
        refusals = [await other.get("/api/session"), await other.post("/api/session", json={"code": code})]

    for refusal in refusals:
        problem(refusal, 401)


async def test_a_token_opens_a_session_whose_cookie_is_out_of_reach_of_scripts_and_other_sites(
    http: httpx.AsyncClient, viewer: Issued
) -> None:
    response = await sign_in(http, viewer.text)

    assert reader_of(response) == {
        "name": "vera",
        "role": "viewer",
        "tags": None,
        "signed_in": True,
        "may_read": True,
    }
    cookie = cookie_of(response)
    assert cookie["httponly"]
    assert cookie["samesite"] == "strict"
    assert cookie["path"] == "/"
    assert cookie["max-age"] == str(SESSION_S)
    assert not cookie["domain"]
    assert not cookie["secure"]
    assert len(cookie.value) == 43
    assert cookie.value not in viewer.text
    assert viewer.text[-43:] not in str(response.headers) + response.text
    assert response.headers["cache-control"] == "no-store"
    assert (await http.get("/api/session")).json() == reader_of(response)
    assert (await http.get("/api/lab/status")).status_code == 200


@pytest.mark.parametrize(
    ("proto", "secure"), [("https", True), ("HTTPS, http", True), ("http", False), ("", False)]
)
async def test_the_cookie_of_a_browser_that_came_by_https_goes_by_https_alone(
    http: httpx.AsyncClient, viewer: Issued, proto: str, secure: bool
) -> None:
    response = await sign_in(http, viewer.text, x_forwarded_proto=proto)

    assert bool(cookie_of(response)["secure"]) is secure


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_write_by_cookie_needs_the_page_s_secret(
    http: httpx.AsyncClient, process: Process, root: Issued, method: str
) -> None:
    page = page_of(await sign_in(http, root.text))
    before = await dump(process.lab)
    body = {"tag": "mar11"} if method == "POST" else None
    path = "/api/experiment/setup" if method == "POST" else "/api/session"

    for shown in ({}, {BY_PAGE: "1"}, {BY_PAGE: "A" * 43}):
        document = problem(await http.request(method, path, json=body, headers=shown), 403)

        assert "sign in again" in document["hint"]
    assert (await http.post("/api/pool/list", json={})).is_success, "to read takes the cookie alone"
    assert await dump(process.lab) == before
    assert (await http.request(method, path, json=body, headers=page)).is_success


async def test_each_port_of_a_host_has_a_session_of_its_own(
    http: httpx.AsyncClient, process: Process, viewer: Issued
) -> None:
    name = cookie_of(await sign_in(http, viewer.text)).value
    http.cookies.clear()

    elsewhere = {"cookie": f"{identity.COOKIE}_3112={name}"}
    problem(await http.get("/api/session", headers=elsewhere), 401)
    by_name = await http.get("http://127.0.0.1:3112/api/session", headers=elsewhere)
    assert by_name.json()["name"] == "vera", "the port is the one that the browser calls"


async def test_signing_out_or_in_again_ends_the_session_before(
    http: httpx.AsyncClient, process: Process, viewer: Issued
) -> None:
    first = cookie_of(await sign_in(http, viewer.text)).value
    response = await sign_in(http, (await issued(process, "otto", "viewer")).text)
    second, page = cookie_of(response).value, page_of(response)

    assert (await http.get("/api/session")).json()["name"] == "otto"
    problem(await http.get("/api/session", headers={"cookie": f"{COOKIE}={first}"}), 401)
    out, again = [await http.delete("/api/session", headers=page) for _ in range(2)]
    stolen = await http.get("/api/session", headers={"cookie": f"{COOKIE}={second}"})

    assert [out.status_code, again.status_code] == [204, 204]
    assert (cookie_of(out)["max-age"], bool(cookie_of(out)["httponly"])) == ("0", True)
    assert problem(stolen, 401)["detail"] == "the session has ended"
    problem(await http.get("/api/session"), 401)
    assert (await process.tokens.all())[-1].revoked_at is None


@pytest.mark.parametrize("by_key", [False, True], ids=["a token", "the key"])
async def test_the_oldest_session_of_a_token_ends_when_it_has_more_than_twenty(
    http: httpx.AsyncClient, process: Process, viewer: Issued, by_key: bool
) -> None:
    tokens = process.tokens
    _, proof = await tokens.recognise(made_key(process.settings) if by_key else viewer.text)
    _, other = await tokens.recognise((await issued(process, "otto", "viewer")).text)
    opened = [await tokens.open_session(other), *[await tokens.open_session(proof) for _ in range(20)]]
    await tokens.close_session(opened[5].name)
    opened += [await tokens.open_session(proof) for _ in range(3)]

    http.cookies.set(COOKIE, opened[1].name)
    problem(await http.get("/api/session"), 401)

    kept = [key for key in await dump(process.lab, without=frozenset()) if ":sessions:" in key]
    living = {
        process.lab.keys("sessions", digest_of_secret(one.name))
        for one in [opened[0], *opened[3:5], *opened[6:]]
    }
    assert set(kept) == living
    assert len(kept) == 1 + SESSIONS_MOST == 21


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"token": WRONG}),
        (401, {"token": ""}),
        (401, {"code": "A" * 43}),
        (422, {}),
        (422, {"token": WRONG, "code": "x"}),
        (422, {"token": 7}),
        (422, {"token": "x" * 201}),
        (422, {"token": WRONG, "more": 1}),
        (413, {"token": "x" * 5000}),
    ],
)
async def test_what_is_no_token_is_refused_and_not_repeated(
    http: httpx.AsyncClient, root: Issued, status: int, body: dict[str, Any]
) -> None:
    response = await http.post("/api/session", json=body)

    problem(response, status)
    assert "set-cookie" not in response.headers
    assert "AAAA" not in response.text


async def test_wrong_tokens_of_one_address_are_slowed(
    http: httpx.AsyncClient, process: Process, viewer: Issued
) -> None:
    for _ in range(3):
        assert (await sign_in(http, viewer.text)).is_success  # right ones are not counted

    answers = [await sign_in(http, WRONG) for _ in range(WRONG_TRIES + 2)]

    assert [a.status_code for a in answers] == [401] * WRONG_TRIES + [429] * 2
    assert 1 <= int(answers[-1].headers["retry-after"]) <= TRIES_S
    problem(answers[-1], 429)
    assert (await sign_in(http, viewer.text)).is_success, (
        "a right one is let in, or strangers could lock all out"
    )
    assert (await http.get("/api/lab/status")).is_success
    transport = httpx.ASGITransport(app=http._transport.app, client=("10.1.2.3", 1))  # type: ignore[attr-defined]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3111") as other:
        assert (await sign_in(other, WRONG)).status_code == 401, "other addresses are not concerned"
    keys = [k for k in await dump(process.lab, without=frozenset()) if ":tries:" in k]
    assert len(keys) == 2
    for key in keys:
        assert 0 < await process.lab.command("TTL", key) <= TRIES_S


async def test_the_tries_of_one_ipv6_network_count_as_one_s(process: Process) -> None:
    for nth in range(WRONG_TRIES):
        await process.tokens.take_try(f"2001:db8::{nth + 1}")

    (key,) = [k for k in await dump(process.lab, without=frozenset()) if ":tries:" in k]
    assert key.endswith("2001:db8::/64")


async def test_no_token_is_logged(
    http: httpx.AsyncClient, viewer: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")

    await sign_in(http, viewer.text)
    await sign_in(http, WRONG)

    assert "somebody at 127.0.0.1 could not sign in: this is no token of this lab" in caplog.text
    for text in (viewer.text, WRONG):
        assert text[-43:] not in caplog.text


async def test_a_get_that_writes_needs_the_page_s_secret_too(
    http: httpx.AsyncClient, process: Process, root: Issued
) -> None:
    page = page_of(await sign_in(http, (await issued(process, "w1", "worker")).text))
    fetched = replace(heartbeat, triggers=(Http("GET", "/next"),), needs={})

    async with http_client(
        replace(process, invoker=Invoker({"pool::next": fetched}, [])), by_key=False
    ) as other:
        other.cookies = http.cookies
        visit = page | {"sec-fetch-mode": "navigate"}
        answers = [await other.get("/next", headers=headers) for headers in ({}, visit, page)]

    assert "page" in problem(answers[0], 403)["detail"]
    assert "no link opens it" in problem(answers[1], 403)["detail"]
    problem(answers[2], 422)
