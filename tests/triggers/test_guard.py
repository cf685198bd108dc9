"""The guard: a rebound name or a foreign page reaches no route; strangers cannot even connect."""

from __future__ import annotations

import httpx
import pytest

from functions.contract import table
from functions.process import Process
from state.errors import Invalid
from tests.conftest import http_client
from tests.labs import dump, problem
from triggers.guard import check_bind

ROUTES = [("GET", path) for path in ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/no/such")] + [
    (door.method, door.path) for declared in table().values() for door in declared.doors
]
FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:3111",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "192.168.0.7:3111",
    "0.0.0.0",
    "",
    "[::1",
    "127.0.0.1@evil.example",
]
FOREIGN_ORIGINS = ["https://evil.example", "null", "http://evil.example:3111", "file://", "", "http://[::1"]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_foreign_host_or_origin_is_refused_on_every_route(
    client: httpx.AsyncClient, process: Process, method: str, path: str
) -> None:
    before = await dump(process.lab)

    for method_ in {method, "GET", "POST", "PUT", "DELETE", "OPTIONS"}:
        for headers in ({"host": FOREIGN_HOSTS[0]}, {"origin": FOREIGN_ORIGINS[0]}):
            response = await client.request(method_, path, content=b"{}", headers=headers)

            assert "NIGHTJAR_ALLOWED_HOSTS" in problem(response, 403)["hint"]
    assert await dump(process.lab) == before


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
async def test_a_name_that_is_not_ours_is_no_host(client: httpx.AsyncClient, host: str) -> None:
    problem(await client.get("/healthz", headers={"host": host}), 403)


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
async def test_a_page_that_is_not_ours_is_no_origin(client: httpx.AsyncClient, origin: str) -> None:
    problem(await client.get("/healthz", headers={"origin": origin}), 403)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:3111", "localhost", "LOCALHOST:80", "[::1]", "[::1]:3111"]
)
async def test_loopback_names_pass(client: httpx.AsyncClient, host: str) -> None:
    response = await client.get("/healthz", headers={"host": host, "origin": f"http://{host}"})

    assert response.status_code == 200


async def test_an_added_name_passes(process: Process) -> None:
    named = process.settings.model_copy(update={"allowed_hosts": "lab.example, other.example"})
    process = Process(**{**vars(process), "settings": named})

    async with http_client(process) as http:
        answers = [await http.get("/healthz", headers={"host": h}) for h in ("Lab.example:1", "evil.example")]

    assert [a.status_code for a in answers] == [200, 403]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "::", "example.org", ""])
async def test_an_address_that_strangers_reach_is_not_bound_without_tokens(
    process: Process, host: str
) -> None:
    settings = process.settings.model_copy(update={"host": host})
    with pytest.raises(Invalid, match="refusing to listen") as refusal:
        await check_bind(settings, process.tokens)

    assert refusal.value.hint is not None
    assert "token issue" in refusal.value.hint
    assert "ssh" in refusal.value.hint
    await process.tokens.issue(name="me", role="operator", issued_by="test")
    await check_bind(settings, process.tokens)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
async def test_a_loopback_address_is_bound(process: Process, host: str) -> None:
    await check_bind(process.settings.model_copy(update={"host": host}), process.tokens)
