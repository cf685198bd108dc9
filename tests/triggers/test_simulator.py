"""How simulated workers reach a server that does not answer every time."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from unittest.mock import AsyncMock

import pytest

from functions.swarm.rules.simulating import Faults
from triggers.simulated_swarm import Plan, Swarm
from triggers.simulated_wire import Book, Wire
from triggers.simulated_worker import Worker

Answer = tuple[int, Mapping[str, object]]
OK: Answer = (200, {"ok": True})
BUSY: Answer = (503, {"detail": "come later"})
CUT: Answer = (0, {})
"""The connection ends without an answer."""


@dataclass
class Server:
    """Answers requests in turn with what it was given, the last one for ever."""

    answers: Sequence[Answer]
    url: str = ""
    bodies: list[dict[str, str]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
                self.bodies.append(json.loads(await reader.readexactly(length) or b"{}"))
                status, body = self.answers[min(len(self.bodies), len(self.answers)) - 1]
                if not status:
                    break
                text = json.dumps(body).encode()
                writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass  # the client has left
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Server]:
    server = Server(answers)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.url = "http://127.0.0.1:{1}".format(*listening.sockets[0].getsockname())
        yield server


async def test_a_request_is_repeated_until_it_is_answered_and_every_try_is_traced() -> None:
    trace = io.StringIO()
    async with serving(BUSY, CUT, OK) as server, Wire(server.url, "seed", trace=trace) as wire:
        answer = await wire.ask("tick", "POST", "/tick", {"id": "swarm-1"})

    assert answer == OK[1]
    assert server.bodies == [{"id": "swarm-1"}] * 3
    assert [json.loads(line)["status"] for line in trace.getvalue().splitlines()] == [503, None, 200]
    assert wire.meter.unanswered == 2


async def test_a_worker_whose_token_was_lost_with_the_answer_comes_under_another_name() -> None:
    answers = (CUT, (401, {"detail": "'a' has joined already"}), (200, {"worker_token": "t"}))
    async with serving(*answers) as server, Wire(server.url, "seed") as wire:
        worker = Worker("a", wire, Book(), plan(7.5).pace, Faults(), "seed")
        await worker.join("friends")

    assert [body["worker_id"] for body in server.bodies] == ["a", "a", "a-anew"]
    assert {body["enroll_token"] for body in server.bodies} == {"friends"}
    assert worker.token == "t"


async def test_an_answer_in_parts_is_read_whole_and_a_closed_connection_is_opened_again() -> None:
    heads = list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
        for part in (b'{"ok":', b" true}", b""):
            await writer.drain()
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        url = "http://127.0.0.1:{1}/lab".format(*listening.sockets[0].getsockname())
        async with Wire(url, "seed", most_at_once=1) as wire:
            answers = [await wire.ask("sync", "GET", "/sync/a", token="t") for _ in range(2)]

    assert answers == [{"ok": True}] * 2
    assert wire.meter.unanswered == 0
    assert {head.partition(b"\r\n")[0] for head in heads} == {b"GET /lab/sync/a HTTP/1.1"}
    assert all(b"X-Worker-Token: t\r\n" in head for head in heads)


async def test_while_requests_are_held_those_that_have_begun_are_answered_and_no_other_begins() -> None:
    async with serving(BUSY, OK) as server, Wire(server.url, "seed", most_at_once=1) as wire:
        begun = asyncio.create_task(wire.ask("result", "POST", "/result", {}))
        waiting = asyncio.create_task(wire.ask("sync", "POST", "/sync/a", {}))
        await asyncio.sleep(0)  # one is sent, the other waits for its connection
        async with wire.held() as unanswered:
            late = asyncio.create_task(wire.ask("tick", "POST", "/tick", {}))
            assert begun.result() == OK[1]
            for task in (waiting, late):
                task.cancel()
            await asyncio.wait([waiting, late])

    assert unanswered == 0
    assert waiting.cancelled()
    assert late.cancelled()
    assert len(server.bodies) == 2


def plan(speed: float, *, is_private: bool = True) -> Plan:
    return Plan(1, 1, speed, Faults(), "sim", "seed", is_private=is_private)


async def test_a_simulation_that_takes_too_long_is_ended_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "most_s", lambda *_: 0.0)
    own = {"active_workers": 0, "experiments": 0, "worker_token": "t", "budget_seconds": 300}
    theirs = {"run_id": "swarm-1", "config_delta": {}}
    async with serving((200, own | theirs)) as server, Wire(server.url, "seed") as wire:
        swarm = Swarm(plan(1.0, is_private=False), wire, asyncio.Event(), dict)
        monkeypatch.setattr(swarm, "_check", AsyncMock())
        found = await swarm.run()

    assert [fault.partition(" s,")[0] for fault in swarm.book.faults] == ["workers were ended after 0"]
    assert not found.is_interrupted
    assert found.used["simulate"].cpu_s > 0


def test_a_simulation_may_take_as_long_as_its_rounds_at_its_pace_and_a_slow_server_need() -> None:
    short, long = plan(60.0), replace(plan(60.0), rounds=3)

    assert 180 < short.most_s(5) < long.most_s(5) < short.most_s(5) + 2 * 2 * 25
    assert plan(60.0, is_private=False).most_s(300) < short.most_s(5)
    assert replace(short, workers=10_000).most_s(5) > short.most_s(5) + 400


@pytest.mark.parametrize("speed", [1.0, 7.5, 60.0, 300.0, 3000.0])
@pytest.mark.parametrize("is_private", [True, False])
def test_a_run_of_a_real_budget_takes_so_much_less_at_any_speed(speed: float, is_private: bool) -> None:
    its = plan(speed, is_private=is_private)
    budget = its.policy["budgets.base_s"] if is_private else 300

    assert its.pace.simulated_s(budget) == pytest.approx(300)
    assert its.pace.real_s(budget) == pytest.approx(300 / speed)
