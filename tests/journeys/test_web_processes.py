"""Several web processes on one port: a promise that one of them makes holds at the others."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import psutil
import pytest

from tests.journeys.running import FAST, RunningLab, running_lab

WEB = 2


class Visitor:
    """One open connection, so always the same web process."""

    def __init__(self, lab: RunningLab) -> None:
        self._key = (lab.data / "operator.key").read_text().strip()
        self._line = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)
        assert self.ask("GET", "/healthz")[0] == 200
        port = self._line.sock.getsockname()[1]
        (self.pid,) = [
            process.pid
            for process in webs(lab)
            for connection in process.net_connections("tcp")
            if connection.raddr and connection.raddr.port == port
        ]

    def close(self) -> None:
        self._line.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and body of the answer. It shows the operator's key, unless `authorization` is another, or empty."""
        answer = self._answer(method, path, body, headers)
        text = answer.read()
        return answer.status, json.loads(text) if answer.headers[
            "content-type"
        ] == "application/json" else text

    def cookie(self, path: str, body: Any) -> tuple[str, Any]:
        """The cookie and the body of an answer to somebody who shows nothing else."""
        answer = self._answer("POST", path, body, {"authorization": ""})
        return answer.headers["set-cookie"].partition(";")[0], json.loads(answer.read())

    def lines(self, path: str) -> Generator[str]:
        """The lines of a stream; the connection is of no other use then."""
        answer = self._answer("GET", path, None, {"authorization": ""})
        assert answer.status == 200, answer.read()
        while line := answer.readline():
            yield line.decode()

    def _answer(self, method: str, path: str, body: Any, headers: dict[str, str]) -> http.client.HTTPResponse:
        given = {"content-type": "application/json", "authorization": f"Bearer {self._key}", **headers}
        shown = {name: text for name, text in given.items() if text}
        self._line.request(method, path, None if body is None else json.dumps(body), shown)
        return self._line.getresponse()


def webs(lab: RunningLab) -> list[psutil.Process]:
    """The web processes that listen."""
    return [
        p
        for p in lab.processes()
        if any(c.status == "LISTEN" and c.laddr.port == lab.port for c in p.net_connections("tcp"))
    ]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running_lab(tmp_path_factory.mktemp("lab"), FAST) as found:
        found.start("--web", str(WEB), "--cpu", "0")
        found.post("token/issue", name="me", role="operator")
        yield found


@pytest.fixture
def two(lab: RunningLab) -> Iterator[tuple[Visitor, Visitor]]:
    """Visitors of different processes."""
    with ExitStack() as stack:

        def visitor() -> Visitor:
            return stack.enter_context(closing(Visitor(lab)))

        def found() -> list[Visitor]:
            by_pid = {each.pid: each for each in (visitor() for _ in range(8))}
            return [*by_pid.values()] if len(by_pid) == WEB else []

        one, other = lab.until(found, "both processes answer")
        yield one, other


def idea(tag: str) -> dict[str, str]:
    return {"tag": tag, "hypothesis": "h", "category": "other", "diff_summary": "d", "commit_sha": "abc1234"}


def test_who_waits_at_one_process_hears_of_the_end_at_another(
    lab: RunningLab, two: tuple[Visitor, Visitor]
) -> None:
    lab.setup("waited")
    one, other = two
    _, registered = other.ask("POST", "/api/experiment/register", idea("waited"))
    name = registered["experiment_id"]

    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(one.ask, "GET", f"/api/experiment/{name}/wait?timeout=50")
        ended, _ = other.ask("POST", "/api/experiment/complete", {"experiment_id": name, "val_bpb": 1.0})
        status, answer = waiting.result()

    assert (ended, status, answer["status"]) == (200, 200, "keep")


def test_who_signs_in_at_one_process_is_signed_in_and_out_at_the_other(
    lab: RunningLab, two: tuple[Visitor, Visitor]
) -> None:
    one, other = two
    token = lab.post("token/issue", name="bob", role="viewer")["token"]
    cookie, opened = one.cookie("/api/session", {"token": token})

    def signed_in(each: Visitor) -> bool:
        status, shown = each.ask("GET", "/api/session", authorization="", cookie=cookie)
        return status == 200 and bool(shown["signed_in"])

    assert [signed_in(each) for each in two] == [True, True]
    page = {"x-nightjar-page": opened["page"], "sec-fetch-site": "same-origin"}
    assert one.ask("DELETE", "/api/session", authorization="", cookie=cookie, **page)[0] == 204

    assert not signed_in(one)
    lab.until(lambda: not signed_in(other), "it has ended")


def test_a_ticket_of_one_process_opens_one_stream_of_what_happens_at_either(
    lab: RunningLab, two: tuple[Visitor, Visitor]
) -> None:
    lab.setup("heard")
    one, other = two
    shown = {"authorization": f"Bearer {lab.post('token/issue', name='eve', role='viewer')['token']}"}
    ticket = one.ask("POST", "/api/event/ticket", {}, **shown)[1]["ticket"]

    with closing(other.lines(f"/api/events?tag=heard&ticket={ticket}")) as lines:
        assert next(lines).startswith("id: ")
        status, registered = one.ask("POST", "/api/experiment/register", idea("heard"))
        told = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
        heard = next(event for event in told if event["type"] == "experiment.registered")

    assert (status, heard["subject"]) == (200, registered["experiment_id"])
    assert one.ask("GET", f"/api/events?ticket={ticket}", authorization="")[0] == 401


def test_a_killed_process_leaves_the_port_to_the_other_and_comes_back(lab: RunningLab) -> None:
    victim = webs(lab)[0]

    victim.send_signal(signal.SIGKILL)
    victim.wait(60)
    lab.until(lambda: lab.http.get("/healthz").is_success, "the other one answers")

    lab.until(lambda: len(webs(lab)) == WEB, "it is back")
    lab.until(lambda: lab.get("lab/status")["counts"]["web"] == WEB, "both are announced")
