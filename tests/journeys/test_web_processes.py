"""Several web processes on one port: a promise that one of them makes holds at the others."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.journeys.running import FAST, RunningLab, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

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
        given = {"content-type": "application/json", "authorization": f"Bearer {self._key}", **headers}
        self._line.request(method, path, None if body is None else json.dumps(body), given)
        answer = self._line.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if answer.headers[
            "content-type"
        ] == "application/json" else text


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


def test_an_idempotency_key_holds_at_both(lab: RunningLab, two: tuple[Visitor, Visitor]) -> None:
    lab.setup("once")

    answers = [
        each.ask("POST", "/api/experiment/register", idea("once"), **{"idempotency-key": "k"}) for each in two
    ]

    assert answers[0] == answers[1]
    assert len(lab.post("experiment/history", tag="once")["experiments"]) == 1


def test_a_token_that_is_revoked_at_one_process_is_refused_at_the_other(
    lab: RunningLab, two: tuple[Visitor, Visitor]
) -> None:
    one, other = two
    lab.post("token/issue", name="me", role="operator")
    given = lab.post("token/issue", name="ann", role="agent")
    shown = {"authorization": f"Bearer {given['token']}"}
    assert {each.ask("GET", "/api/token/whoami", **shown)[0] for each in two} == {200}

    assert one.ask("POST", "/api/token/revoke", {"id": given["id"]})[0] == 200

    assert one.ask("GET", "/api/token/whoami", **shown)[0] == 401
    lab.until(lambda: other.ask("GET", "/api/token/whoami", **shown)[0] == 401, "it is refused")


def test_the_counts_of_both_are_in_each_answer(lab: RunningLab, two: tuple[Visitor, Visitor]) -> None:
    for each in two:
        assert each.ask("GET", "/api/report/tags")[0] == 200

    def told(each: Visitor) -> list[float]:
        families = text_string_to_metric_families(each.ask("GET", "/metrics")[1].decode())
        calls = next(f for f in families if f.name == "nightjar_function_calls")
        return [s.value for s in calls.samples if s.labels["function"] == "report::tags"]

    lab.until(lambda: [told(each) for each in two] == [[2.0], [2.0]], "both are counted")


def test_a_killed_process_leaves_the_port_to_the_other_and_comes_back(lab: RunningLab) -> None:
    victim = webs(lab)[0]

    victim.send_signal(signal.SIGKILL)
    victim.wait(60)
    lab.until(lambda: lab.http.get("/healthz").is_success, "the other one answers")

    lab.until(lambda: len(webs(lab)) == WEB, "it is back")
    lab.until(lambda: lab.get("lab/status")["counts"]["web"] == WEB, "both are announced")
