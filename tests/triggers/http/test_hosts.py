"""The guard: a rebound name or a foreign page reaches no route; strangers cannot even connect."""

from __future__ import annotations

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.kernel.table import table
from state.errors import Invalid
from tests.conftest import http_client
from tests.labs import dump, problem
from triggers.http.hosts import check_bind

FIXED = (
    *("/", "/static/app.js", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics"),
    *("/api/events", "/api/session", "/mcp", "/no/such"),
)
PATHS = sorted({*FIXED, *(door.path for declared in table().values() for door in declared.doors)})
FOREIGN_HOSTS = ["evil.example", "localhost.evil.example", "192.168.0.7:3111", "0.0.0.0", "", "[::1"]
FOREIGN_ORIGINS = [
    *("https://evil.example", "null", "", "http://[::1"),
    *("http://127.0.0.1:8000", "https://127.0.0.1", "http://localhost:3111", "//127.0.0.1:3111"),
]
VISIT = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
FOREIGN = [
    {"host": FOREIGN_HOSTS[0]},
    {"origin": "http://127.0.0.1:8000"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
]


@pytest.mark.parametrize("headers", [*FOREIGN, VISIT | {"sec-fetch-site": "cross-site"}])
async def test_a_foreign_host_page_or_origin_is_refused_on_every_route_and_method(
    client: httpx.AsyncClient, process: Process, headers: dict[str, str]
) -> None:
    before = await dump(process.lab)

    for path in PATHS:
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
            if method == "GET" and headers.items() >= VISIT.items():
                continue  # a link from elsewhere
            response = await client.request(method, path, content=b"{}", headers=headers)

            assert response.status_code == 403, (method, path)
            assert method == "HEAD" or "NIGHTJAR_ALLOWED_HOSTS" in problem(response)["hint"]
    assert await dump(process.lab) == before


@pytest.mark.parametrize(
    "headers", [*({"host": h} for h in FOREIGN_HOSTS), *({"origin": o} for o in FOREIGN_ORIGINS)]
)
async def test_a_name_or_page_that_is_not_ours_is_refused(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    problem(await client.get("/healthz", headers=headers), 403)


@pytest.mark.parametrize(
    "headers",
    [
        *({"host": h, "origin": f"http://{h}"} for h in ("127.0.0.1", "LOCALHOST:80", "[::1]:3111")),
        {"host": "localhost:80", "origin": "http://localhost"},
        {"host": "localhost:443", "origin": "https://LOCALHOST"},
        {"host": "localhost:8443", "origin": "https://localhost:8443"},
        *({"sec-fetch-site": site} for site in ("same-origin", "none")),
        *(VISIT | {"sec-fetch-site": site} for site in ("cross-site", "same-site")),  # a link may be followed
    ],
)
async def test_our_own_page_and_a_followed_link_pass_by_http_and_https(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    assert (await client.get("/healthz", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {"host": "Lab.example:1"}),
        (200, {"origin": "https://lab.example:8443"}),
        (200, {"host": "other.example", "origin": "https://lab.example"}),
        (403, {"host": "evil.example"}),
        (403, {"host": "lab.example", "origin": "https://evil.example"}),
        (403, {"host": "lab.example", "origin": "https://lab.example:8443", "sec-fetch-site": "same-site"}),
        (403, {"host": "lab.example", "origin": "http://127.0.0.1:3111"}),
    ],
)
async def test_an_added_name_passes_with_any_port(
    process: Process, status: int, headers: dict[str, str]
) -> None:
    named = process.settings.model_copy(update={"allowed_hosts": "lab.example, other.example"})
    process = Process(**{**vars(process), "settings": named})

    async with http_client(process) as http:
        answer = await http.get("/healthz", headers=headers)

    assert answer.status_code == status


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


async def test_the_one_address_that_is_bound_is_a_name_of_ours_with_its_own_port_alone(
    process: Process,
) -> None:
    bound = process.settings.model_copy(update={"host": "192.0.2.7"})
    await process.tokens.issue(name="me", role="operator", issued_by="test")
    host = {"host": "192.0.2.7:3111"}

    async with http_client(Process(**{**vars(process), "settings": bound})) as http:
        answers = [
            await http.get("/healthz", headers=host | more)
            for more in ({}, {"origin": "http://192.0.2.7:3111"}, {"origin": "http://192.0.2.7:8080"})
        ]

    assert [a.status_code for a in answers] == [200, 200, 403]
