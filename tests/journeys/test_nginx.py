"""The example of deploy/nginx.conf for real: event streams, long waits and the page's sign-in through TLS."""

from __future__ import annotations

import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.journeys.running import PATIENCE_S, RunningLab, running_lab
from tests.test_deploy import NAME, configured, needed

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab with tokens that is served under the name of the example."""
    with running_lab(tmp_path_factory.mktemp("lab"), NIGHTJAR_ALLOWED_HOSTS=NAME) as found:
        found.start()
        operator = found.post("token/issue", name="olga", role="operator")["token"]
        found.http.headers["authorization"] = f"Bearer {operator}"
        yield found


@pytest.fixture(scope="module")
def proxy(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """nginx with the example's file: its port, and its folder with the certificate."""
    folder = tmp_path_factory.mktemp("nginx")
    file = configured(folder, lab.port)
    (port,) = re.findall(r"listen 127\.0\.0\.1:(\d+) ssl", file.read_text())
    server = subprocess.Popen([needed("nginx"), "-p", str(folder), "-c", str(file)])
    try:
        lab.until(lambda: (folder / "nginx.pid").exists(), "nginx listens")
        yield int(port), folder
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


@pytest.fixture
def https(lab: RunningLab, proxy: tuple[int, Path]) -> Iterator[httpx.Client]:
    """A client of the lab by its public name."""
    port, folder = proxy
    transport = httpx.HTTPTransport(verify=ssl.create_default_context(cafile=folder / "fullchain.pem"))
    headers = {"host": f"{NAME}:{port}", "authorization": str(lab.http.headers["authorization"])}
    with httpx.Client(
        base_url=f"https://127.0.0.1:{port}", transport=transport, headers=headers, timeout=70.0
    ) as client:
        # the certificate is of this name
        client.event_hooks["request"].append(lambda sent: sent.extensions.update(sni_hostname=NAME))
        yield client


def test_an_event_arrives_at_once_and_a_wait_of_50_s_is_answered(
    lab: RunningLab, https: httpx.Client
) -> None:
    with https.stream("GET", "/api/events?types=tag.created&last=1") as stream:
        lines = stream.iter_lines()
        lab.setup("streamed")
        began = time.monotonic()
        while "streamed" not in next(lines):
            pass
        assert (
            time.monotonic() - began < 60
        )  # in a buffer of the proxy it would wait for an hour of heartbeats

    endless = lab.submit("streamed", config_delta={"SECONDS": 600.0})
    began = time.monotonic()
    answer = https.get(f"/api/experiment/{endless}/wait?until=finished&timeout=50")

    assert answer.status_code == 200
    assert not answer.json()["finished"]
    assert time.monotonic() - began > 45.0


def test_a_browser_signs_in_with_a_cookie_for_https_alone(
    lab: RunningLab, proxy: tuple[int, Path], https: httpx.Client
) -> None:
    code = lab.post("token/sign-in")["code"]
    page = {"origin": f"https://{NAME}:{proxy[0]}", "sec-fetch-site": "same-origin"}
    del https.headers["authorization"]
    asked = https.get("/api/lab/status", headers=page)

    answer = https.post("/api/session", json={"code": code}, headers=page)

    assert asked.status_code == 401
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"]
    assert "Secure" in cookie
    assert "HttpOnly" in cookie
    assert https.get("/api/lab/status", headers=page).status_code == 200
    assert https.get("/healthz", headers={"host": "evil.example"}).status_code == 403
