"""Route x method x role: who may gets in, who may not gets 401 or 403 with a hint and changes nothing.

The rows come from the function table and the fixed routes, so that a new function has its row as soon as it is
declared. Who may not sends a request that would do something; who may sends one that does not validate: 422 is an
answer from behind the door.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from functions.kernel.contract import Function
from functions.kernel.process.lifecycle import Process
from functions.kernel.rules.access import CallerRole
from functions.kernel.schemas import schema_of
from functions.kernel.table import table
from state.private import made_key
from state.records import ROLES, Role
from tests.conftest import http_client
from tests.labs import PRESENCE, add_gpu, dump, idea, open_tag, problem, tried
from triggers.http.identity import BY_PAGE, COOKIE
from triggers.mcp_tools import NAMES

pytestmark = pytest.mark.timeout(300)  # everybody knocks at every door

OF_ROLES: Mapping[str, str] = {
    "anyone": "swarm::health swarm::register token::enroll",
    "viewer": """
        cron::list dimension::list dimension::proposals event::dead event::list event::ticket experiment::best
        experiment::get experiment::log experiment::history experiment::near_misses function::calls
        function::list gpu::health gpu::history hypothesis::graph hypothesis::get hypothesis::history
        hypothesis::graph_summary hypothesis::shadow_scorecards hypothesis::list invocation::get journal::list
        journal::read lab::status pipeline::flush_token pipeline::spec pool::list program::current program::diff
        program::list report::agents report::diff report::night report::progress report::runs report::summary
        report::tags report::tsv search::policy search::strategy swarm::leaderboard swarm::populations
        swarm::preview trace::list trust::distilled
    """,
    "viewer worker": """
        gpu::get pipeline::spec_payload pipeline::status run::active run::stats token::rotate token::sign_in
        token::whoami
    """,
    "agent": """
        agent::announce dimension::propose experiment::register experiment::setup experiment::retest
        experiment::retract experiment::stop experiment::baseline experiment::submit experiment::wait
        hypothesis::gate hypothesis::propose report::brief search::adapt search::suggest_direction trace::close
        trace::context trace::merge trace::release trace::renew trace::reopen trace::select trust::certify
    """,
    "agent worker": """
        experiment::complete experiment::crash gpu::train pool::acquire pool::heartbeat pool::register_gpu
        pool::release
    """,
    "worker": """
        gpu::begin gpu::built gpu::renew gpu::stopped pool::announce pool::give_back pool::leave pool::next
        run::start run::tick swarm::next_config swarm::result swarm::sync
    """,
    "agent operator": "pool::deregister",
    "local operator": "search::set_strategy",
    "operator": """
        cron::pause cron::resume cron::run dimension::clear_proposals dimension::define dimension::follow_trials
        dimension::freeze dimension::freeze_irrelevant dimension::measure dimension::unfreeze dimension::draft
        event::discard event::redrive event::trim experiment::judge_retests experiment::resume
        hypothesis::bootstrap hypothesis::draft hypothesis::tell hypothesis::learn hypothesis::reopen
        journal::checkpoint lab::archive lab::audit pipeline::adopt pipeline::draft pipeline::flush
        pipeline::follow program::refresh program::write pool::dispatch pool::drain pool::probe pool::sweep
        run::stop search::set_policy swarm::refill swarm::sweep swarm::workers tag::budget tag::pause
        tag::pause_all tag::unpause tag::unpause_all token::issue token::list token::revoke trace::audit
        trace::configure trace::sweep trust::distil trust::follow_certificates trust::follow_distilling
        trust::follow_transfers trust::transfer
        trust::shrinkage webhook::add webhook::list webhook::remove webhook::test
    """,
}
"""Whose every function is, a second time: who changes a role changes it here too, knowing it."""
OF_A_VIEWER_THAT_WRITE = frozenset({"event::ticket", "token::rotate", "token::sign_in"})
"""What readers may write: how they themselves are let in."""

FIXED: Mapping[str, tuple[str, ...]] = {
    "/": ("anyone",),
    "/static": ("anyone",),
    "/docs": ("anyone",),
    "/openapi.json": ("anyone",),
    "/healthz": ("anyone",),
    "/readyz": ("anyone",),
    "/metrics": ("viewer",),
    "/api/events": ("viewer",),
    "/api/session": ("viewer", "worker"),
}
"""Routes that are no functions. The page and the documents show nothing of the lab, the probes that it is there."""
METHODS = {"/api/session": {"GET", "POST", "DELETE"}}
"""Theirs, where that is not GET alone."""
ASKED = {"/static": "/static/style.css", "/api/events": "/api/events?min_interval=never"}
"""What is asked of them, where that is not their path: an event stream that is opened does not end."""

SAMPLES: Mapping[str, Any] = {
    **dict.fromkeys(("experiment_id", "experiment_a", "exp_id", "run_id"), "mar11-1"),
    "experiment_ids": ["mar11-1"],
    "experiment_b": "mar11-2",
    "invocation_id": "mar11-1.0",
    "trace_id": "mar11-t1",
    "selection_id": "mar11-s1",
    "spec_id": "mar11-spec-1",
    "gpu_id": "g",
    "worker_id": "w1",
    "fence": 1,
    "number": 1,
    "name": "stranger",
    "role": "operator",
    "enroll_token": "nj_aaaaaaaaaa_" + "A" * 43,
    "all": True,
}
"""Values of sample requests that name what is there. Other fields have the example of their schema."""


@dataclass(frozen=True)
class Visitor:
    """Somebody before the door."""

    name: str
    role: CallerRole | None
    """None: nobody may come in like this."""
    status: int = 401
    """What they get as nobody."""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    only_reads: bool = False
    """A browser without the page's secret."""


def may(roles: Iterable[str], role: CallerRole | None) -> bool:
    """Operators may do all, agents may read, and who sends no token to an open lab is agent, worker and viewer."""
    meant = set(roles)
    reads = role in ("agent", "local") and "viewer" in meant
    works = role == "local" and bool(meant & {"agent", "worker"})
    return "anyone" in meant or role == "operator" or role in meant or reads or works


def sample(declared: Function[Any, Any]) -> dict[str, Any]:
    """A request of this function that validates."""
    if declared.name in ("experiment::register", "experiment::submit"):
        return idea()
    named = "".join(door.path for door in declared.doors)
    fields = declared.request.model_fields
    wanted = [name for name, info in fields.items() if info.is_required() or f"{{{name}}}" in named]
    shown = schema_of(declared.request, "request").get("properties", {})
    chosen = {name: SAMPLES[name] if name in SAMPLES else shown[name]["examples"][0] for name in wanted}
    if "all" in fields:
        chosen["all"] = True
    if declared.name == "dimension::define":
        chosen["profile"] = "mnist"
    return chosen


async def visitors(process: Process) -> list[Visitor]:
    """One of every kind."""
    tokens = process.tokens
    root = await tokens.issue(name="root", role="operator", issued_by="local")

    async def bearer(name: str, role: Role, **more: Any) -> str:
        return (await tokens.issue(name=name, role=role, issued_by="root", **more)).text

    async def shows(name: str, role: Role) -> Visitor:
        return Visitor(name, role, headers={"authorization": f"Bearer {await bearer(name, role)}"})

    found = [await shows(f"one-{role}", role) for role in ROLES]
    enrolling = await bearer("swarm", "worker", kind="enroll", uses=9)
    ended = {name: await bearer(name, "operator") for name in ("revoked", "expired", "rotated")}
    for token in await tokens.all():
        if token.name == "revoked":
            await tokens.revoke(token)
        elif token.name == "expired":
            over = repr(await process.lab.now() - 0.001)
            await process.lab.command("HSET", process.lab.keys("tokens", token.id), "expires_at", over)
        elif token.name == "rotated":
            await tokens.rotate(token, 0)
    wrong = root.text[:-1] + ("A" if root.text[-1] != "A" else "B")
    unknown = "nj_aaaaaaaaaa_" + "A" * 43
    _, proof = await tokens.recognise(root.text)
    session, ticket = await tokens.open_session(proof), await tokens.open_ticket(proof)
    cookie = {"cookie": f"{COOKIE}_3111={session.name}"}
    key = made_key(process.settings)
    shown = {**ended, "wrong": wrong, "unknown": unknown, "no token at all": "operator"}
    return [
        *found,
        Visitor("none", None),
        Visitor("enroll", None, 403, {"authorization": f"Bearer {enrolling}"}),
        *(Visitor(name, None, headers={"authorization": f"Bearer {t}"}) for name, t in shown.items()),
        Visitor("unknown worker", None, headers={"x-worker-token": unknown}),
        Visitor("unknown session", None, headers={"cookie": f"{COOKIE}_3111={'A' * 43}", BY_PAGE: "1"}),
        Visitor("the key", "operator", headers={"authorization": f"Bearer {key}"}),
        Visitor("another key", None, headers={"authorization": f"Bearer {key[:-4]}AAAA"}),
        Visitor("the page", "operator", headers={**cookie, BY_PAGE: session.page}),
        Visitor("the cookie alone", "operator", headers=cookie, only_reads=True),
        Visitor("a header of any page", "operator", headers={**cookie, BY_PAGE: "1"}, only_reads=True),
        Visitor("a token in the URL", None, query={"token": root.text, "access_token": root.text}),
        Visitor("a ticket", None, query={"ticket": ticket}),
    ]


OF_AN_OPEN_LAB = (
    Visitor("a program", "local"),
    Visitor("a browser", "viewer", headers={"sec-fetch-site": "same-origin"}),
    Visitor("a forwarded program", None, headers={"x-forwarded-for": "10.1.2.3"}),
)
"""Who comes without a token."""


@pytest.fixture
async def lab(process: Process) -> tuple[Process, list[Visitor]]:
    """A small lab, and everybody who may come to its door."""
    await furnish(process)
    unhurried = process.settings.model_copy(update={"rate_per_s": 1e6})
    found = await visitors(process)
    return replace(process, settings=unhurried), found


async def furnish(process: Process) -> None:
    async with http_client(process) as http:
        await open_tag(http)
        await tried(http, 1.0)
        await add_gpu(http, "g")


DOORS = [(declared, door) for declared in table().values() for door in declared.doors]
"""Nobody changes anything, so all routes are knocked at in one lab."""


def lets_in(declared: Function[Any, Any], visitor: Visitor, *, public_reads: bool) -> bool:
    """Whether this visitor may call it: what is open to anyone asks only that what they show is right."""
    is_page = not (visitor.only_reads and declared.writes)
    if "anyone" in declared.roles and not declared.knows_caller:
        return True
    if "anyone" in declared.roles or (declared.is_public and public_reads):
        shows_none = not {"authorization", "x-worker-token", "cookie"} & visitor.headers.keys()
        return shows_none or (visitor.role is not None and is_page)
    return may(declared.roles, visitor.role) and is_page


async def test_a_function_lets_in_whom_it_is_for_and_nobody_else(lab: tuple[Process, list[Visitor]]) -> None:
    process, people = lab
    before = await dump(process.lab, without=PRESENCE | {"tickets"})
    closed = replace(process, settings=process.settings.model_copy(update={"swarm_public_reads": False}))
    for declared, door in DOORS:
        for each in (process, closed) if declared.is_public else (process,):
            await knock(each, people, declared, door, before)


async def test_an_open_lab_lets_a_program_work_and_a_browser_look_and_nobody_operate(
    process: Process,
) -> None:
    await furnish(process)
    unhurried = replace(process, settings=process.settings.model_copy(update={"rate_per_s": 1e6}))

    before = await dump(process.lab, without=PRESENCE | {"tickets"})
    for declared, door in DOORS:
        await knock(unhurried, OF_AN_OPEN_LAB, declared, door, before)


async def knock(
    process: Process, people: Iterable[Visitor], declared: Function[Any, Any], door: Any, before: object
) -> None:
    """Have all of them call a function by one of its routes: who may not changes nothing."""
    body = sample(declared)
    path = door.path.format(**body)
    body = {name: value for name, value in body.items() if f"{{{name}}}" not in door.path}

    async with http_client(process, by_key=False) as http:
        for visitor in people:
            reads = door.method == "GET" and not declared.writes
            for method in {door.method, "HEAD"} if reads else {door.method}:
                public_reads = process.settings.swarm_public_reads
                right = lets_in(declared, visitor, public_reads=public_reads)
                sent = {"no such field": "1"} if right else body
                posted = [sent] if door.body else sent  # of one whose body fills a field, every name is one
                response = await http.request(
                    method,
                    path,
                    params={**visitor.query, **({} if method == "POST" else sent)},
                    headers=dict(visitor.headers),
                    json=posted if method == "POST" else None,
                )

                if right:
                    assert response.status_code == 422, (declared.name, visitor.name, method, response.text)
                else:
                    nobody = visitor.status if visitor.role is None else 403
                    assert response.status_code == nobody, (
                        declared.name,
                        visitor.name,
                        method,
                        response.text,
                    )
                    _is_explained(response, method)
    assert await dump(process.lab, without=PRESENCE | {"tickets"}) == before, declared.name


async def test_a_fixed_route_lets_in_whom_it_is_for_and_nobody_else(
    lab: tuple[Process, list[Visitor]],
) -> None:
    process, people = lab
    before = await dump(process.lab, without=PRESENCE | {"tickets"})

    async with http_client(process, by_key=False) as http:
        for path, visitor in itertools.product(FIXED, people):
            url = httpx.URL(ASKED.get(path, path)).copy_merge_params(visitor.query)
            by_ticket = path == "/api/events" and visitor.name == "a ticket"
            for method in ("GET",) if by_ticket else ("GET", "HEAD"):
                response = await http.request(method, url, headers=dict(visitor.headers))

                if may(FIXED[path], visitor.role) or by_ticket:
                    assert response.status_code == (422 if "never" in str(url) else 200), visitor.name
                else:
                    nobody = visitor.status if visitor.role is None else 403
                    assert response.status_code == nobody, (visitor.name, method, response.text)
                    _is_explained(response, method)
    assert await dump(process.lab, without=PRESENCE | {"tickets"}) == before


def _is_explained(response: httpx.Response, method: str) -> None:
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code == 401) == (response.headers.get("www-authenticate") == "Bearer")
    if method != "HEAD":
        problem(response)


async def test_mcp_lets_in_whom_the_http_door_lets_in(lab: tuple[Process, list[Visitor]]) -> None:
    process, people = lab
    before = await dump(process.lab)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    async with http_client(process, by_key=False) as http:
        for visitor in people:
            headers = {"accept": "application/json", **visitor.headers}
            response = await http.post("/mcp", json=asked, headers=headers, params=visitor.query)

            if visitor.role is not None and not visitor.only_reads:
                listed = {tool["name"] for tool in response.json()["result"]["tools"]}
                may_any = {
                    tool
                    for tool, named in NAMES.items()
                    if any(may(table()[function].roles, visitor.role) for function in named.values())
                }
                assert listed == may_any, visitor.name
            else:
                refused = visitor.status if visitor.role is None else 403
                assert response.status_code == refused, (visitor.name, response.text)
                assert response.json()["error"]["data"]["hint"]
    assert await dump(process.lab) == before


async def test_a_method_that_a_route_does_not_have_opens_nothing(lab: tuple[Process, list[Visitor]]) -> None:
    process, people = lab
    before = await dump(process.lab)
    methods: dict[str, set[str]] = {}
    for declared, door in DOORS:
        methods.setdefault(door.path.format(**sample(declared)), set()).add(door.method)

    async with http_client(process, by_key=False) as http:
        methods |= {path: METHODS.get(path, {"GET"}) for path in FIXED if path != "/static"} | {
            "/mcp": {"POST"}
        }
        for path, known in methods.items():
            for method in {"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "MOVE"} - known:
                for visitor in people[:1] + people[-1:]:
                    response = await http.request(method, path, headers=dict(visitor.headers))

                    assert response.status_code in (401, 403, 404, 405), (method, path, response.text)
                    problem(response)
                    if response.status_code == 405:
                        assert known <= {*response.headers["allow"].split(", ")}, path
    assert await dump(process.lab) == before


# -- the table of roles


def test_every_function_has_the_role_that_it_is_meant_to_have() -> None:
    declared = {name: found.roles for name, found in table().items()}

    assert declared == {
        name: tuple(roles.split()) for roles, names in OF_ROLES.items() for name in names.split()
    }


def test_what_viewers_may_call_changes_nothing() -> None:
    writing = {name for name, found in table().items() if found.reads and found.writes}

    assert writing == OF_A_VIEWER_THAT_WRITE


async def test_every_route_has_a_row(process: Process) -> None:
    async with http_client(process, by_key=False) as http:
        app = http._transport.app  # type: ignore[attr-defined]  # httpx shows it nowhere else
    shown = {getattr(route, "path", None) for route in app.routes}

    assert shown == set(FIXED) | {"/mcp"} | {door.path for _, door in DOORS}
    assert len(app.routes) == len(shown)
