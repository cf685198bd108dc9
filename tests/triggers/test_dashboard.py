"""What GET / and the static files answer; tests/page looks at the page in a browser."""

from __future__ import annotations

import re

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.events import CATALOGUE
from triggers.http.routes import STATIC

FILES = sorted(str(path.relative_to(STATIC)) for path in STATIC.rglob("*.*") if path.name != "index.html")
OURS = [name for name in FILES if not name.startswith("echarts/")]


async def test_the_page_is_a_shell_that_names_the_lab_and_its_event_types(
    client: httpx.AsyncClient, process: Process
) -> None:
    answer = await client.get("/")

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert f"<title>{process.settings.lab} · Nightjar</title>" in answer.text
    (types,) = re.findall(r'name="event-types" content="([^"]*)"', answer.text)
    assert set(types.split()) == CATALOGUE.keys()


async def test_everything_that_the_page_names_is_served_by_the_lab_itself(client: httpx.AsyncClient) -> None:
    shell = (await client.get("/")).text
    named = re.findall(r'(?:src|href)="([^"#]+)"', shell)

    assert {"/static/app.js", "/static/style.css", "/static/icon.svg"} <= set(named)
    for path in named:
        assert (await client.get(path)).status_code == 200, path
    for name in OURS:
        text = (STATIC / name).read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        for other in re.findall(r'from "(\.[^"]+)"', text):
            assert (STATIC / name).parent.joinpath(other).is_file(), (name, other)


@pytest.mark.parametrize("path", ["/", *(f"/static/{name}" for name in FILES)])
async def test_a_page_or_file_runs_no_inline_script_and_is_asked_for_again(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path", ["/static/none.js", "/static/../page.py", "/static/%2e%2e/page.py", "/static/"]
)
async def test_nothing_beside_the_files_is_served(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404
