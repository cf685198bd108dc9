"""A server that speaks the published routes of a swarm and knows nothing else: what a worker may meet, on demand."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, Any]]


def assignment(exp_id: str, delta: Mapping[str, Any] | None = None, budget: int = 1) -> dict[str, Any]:
    """What /next_config answers."""
    return {
        "exp_id": exp_id,
        "config_delta": dict(delta or {}),
        "budget_seconds": budget,
        "priority": 0.5,
        "note": "investigate · pop_000001 — smaller is better",
        "population_id": "pop_000001",
        "population_strategy": "investigate",
        "hypothesis_id": "hyp_1",
        "hypothesis_statement": "smaller is better",
        "run_id": exp_id,
    }


def problem(status: int, title: str, detail: str = "so it is", **more: Any) -> Reply:
    """A refusal."""
    return status, {"title": title, "status": status, "detail": detail, **more}


@dataclass
class Swarm:
    """Its configs, the requests that it got, and its refusals."""

    todo: list[dict[str, Any]] = field(default_factory=list)
    """Assignments, each handed out until its result is here."""
    on_tick: Callable[[dict[str, Any]], dict[str, Any]] = lambda tick: {}
    refusals: dict[str, list[Reply]] = field(default_factory=dict)
    """By route: what the next requests are answered instead."""
    program: str = "# the program\n"
    dimensions: list[str] = field(default_factory=list)
    on_trial: Mapping[str, Any] = field(default_factory=dict)
    """Further ones, with their defaults."""
    base_s: float | None = None
    """Seconds of its runs, where everybody may read the policy."""
    budget_s: float | None = None
    """The same, as it tells its workers."""
    registered: list[dict[str, Any]] = field(default_factory=list)
    bearers: list[str | None] = field(default_factory=list)
    ticks: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    pipeline: Reply = (404, {"title": "Not found", "status": 404, "detail": "it drafts nothing"})
    """What it says of its drafts."""
    draft: dict[str, Any] | None = None
    """The one that it serves."""
    preloads: int = 0
    """How often it was."""
    url: str = ""

    def answer(self, method: str, path: str, body: dict[str, Any], bearer: str | None) -> Reply:
        """The status and the document of one answer."""
        route = path.partition("?")[0].split("/")[1]
        if self.refusals.get(route):
            return self.refusals[route].pop(0)
        match method, route:
            case "GET", "health":
                more = {} if self.base_s is None else {"budget_seconds": self.base_s}
                return 200, {"status": "ok", "experiments": len(self.results), "queue_depth": 0, **more}
            case "POST", "register":
                self.registered.append(body)
                self.bearers.append(bearer)
                welcome = f"Welcome {body['worker_id']}! You are worker #1."
                return 200, {
                    "ok": True,
                    "message": welcome,
                    "current_program_md": self.program,
                    "worker_token": "nj_w",
                }
            case "GET", "sync":
                dimensions: list[dict[str, Any]]
                dimensions = [{"name": name, "frozen": False} for name in self.dimensions]
                for name, default in self.on_trial.items():
                    dimensions.append({"name": name, "is_canary": True, "default_value": default})
                more = {} if self.budget_s is None else {"budget_seconds": self.budget_s}
                return 200, {"program_md": self.program, "dimensions": dimensions, **more}
            case "GET", "pipeline" if path.startswith("/pipeline/status"):
                return self.pipeline
            case "GET", "pipeline" if self.draft is not None:
                self.preloads += 1
                return 200, self.draft
            case "GET", "pipeline":
                return 204, {}
            case "GET", "next_config" if self.todo:
                return 200, self.todo[0]
            case "GET", "next_config":
                return problem(503, "Service unavailable", "there is nothing to run", retry_after=1)
            case "POST", "tick":
                self.ticks.append(body)
                return 200, self.on_tick(body)
            case "POST", "result":
                self.results.append(body)
                self.todo = [given for given in self.todo if given["exp_id"] != body["exp_id"]]
                return 200, {"ok": True, "total_experiments": len(self.results)}
        return problem(404, "Not found", f"no route {path}")


@contextmanager
def serving(swarm: Swarm) -> Iterator[Swarm]:
    """The server, on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _reply(self, body: dict[str, Any]) -> None:
            status, document = swarm.answer(
                self.command,
                self.path,
                body,
                self.headers.get("authorization", "").removeprefix("Bearer ") or None,
            )
            content = b"" if status == 204 else json.dumps(document).encode()
            etag = f'"{zlib.crc32(content)}"'
            if self.headers.get("if-none-match") == etag:
                status, content = 304, b""
            self.send_response(status)
            self.send_header("etag", etag)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    swarm.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield swarm
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
