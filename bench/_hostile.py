"""Hostile agents: costly requests, harmful runs, access to others' tags, and changing tokens."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from bench._users import TAG, Book, User, idea
from tests.journeys.running import RunningLab
from tests.triggers.test_holding import BODIES, HEADS, longest_patch

HOSTILE = "hostile"
"""The one tag that they may use."""
PATCHES = 4
"""Number of different long patches. A lab stores each once."""
LINGERING = 80
"""Connections that one of them holds at once; more than a token may use for waiting."""
RUN_S = 3.0

EVIL = {
    "crash": "raise RuntimeError('boom')",
    "no metric": "sys.exit(0)",
    "NaN": "print('---\\nval_bpb: nan'); sys.exit(0)",
    "hang": "time.sleep(600)",
    "deaf": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    "flood": "[print('x' * 1000) for _ in range(50_000)]",
    "orphan": (
        "os.fork() or (os.setsid(), os.fork() and os._exit(0),"
        " os.execve('/bin/sleep', ['sleep', '600'], {})); time.sleep(0.2)"
    ),
    "names": r"open('results.json', 'w').write('{\"val_bpb\": 0.5, \"\\ud800\": 1}'); sys.exit(0)",
    "reports": "[report(n, 0.1) for n in range(20_000)]",
    "environment": "print(dict(os.environ)); raise SystemExit(1)",
}
"""Behaviour of a hostile run, by the value of the constant EVIL."""


def with_evil(script: str) -> str:
    """A training script that does what its constant EVIL names, before it trains."""
    doing = "\n".join(f"if EVIL == {name!r}:\n    {code}" for name, code in EVIL.items())
    return script.replace("begun = ", f"EVIL = 'none'\n{doing}\n\nbegun = ", 1)


class Hostile(User):
    """Sends what its token allows, and expects an answer that is no fault of the lab."""

    def told(self, answer: httpx.Response, *expected: int) -> httpx.Response:
        """Note an answer as a fault, unless it has one of these statuses."""
        if answer.status_code not in expected:
            self.book.faults.append(
                f"{answer.url.path} by {self.name}: {answer.status_code} {answer.text[:200]}"
            )
        return answer

    def send(self, method: str, path: str, **how: Any) -> httpx.Response:
        return self.repeated(lambda: self.http.request(method, path, **how), path)

    def rest(self, seconds: float = 1.0) -> None:
        self.stop.wait(self.chance.uniform(seconds / 2, seconds * 2))


class SendsTheWorst(Hostile):
    """The requests that cost most."""

    def turn(self) -> None:
        what = self.chance.choice((self.patches, self.reads, self.bodies, self.heads, self.lingers))
        what()
        self.rest()

    def patches(self) -> None:
        names = []
        for seed in self.chance.sample(range(PATCHES), 2):
            body = idea(self.chance, self.lab.base, HOSTILE) | {"diff": longest_patch(seed)}
            answer = self.told(self.call("experiment/register", key=True, **body), 200, 429)
            if answer.status_code == 200:
                names.append(answer.json()["experiment_id"])
        if len(names) == 2:
            self.told(self.call("report/diff", experiment_a=names[0], experiment_b=names[1]), 200, 429)
        for name in names:
            self.told(self.call("experiment/crash", experiment_id=name, error="boom " * 13_000), 200)

    def reads(self) -> None:
        worst: Sequence[tuple[str, dict[str, Any]]] = (
            ("experiment/history", {"limit": 1000}),
            ("trace/list", {"limit": 1000, "draw": True}),
            ("trace/context", {"search_type": "all", "max_keep": 500, "max_failed": 500}),
            ("report/tsv", {}),
            ("report/summary", {}),
            ("experiment/near-misses", {"limit": 500}),
        )
        for path, body in worst:
            tag = HOSTILE if path == "trace/context" else self.chance.choice((TAG, HOSTILE))
            self.told(self.call(path, tag=tag, **body), 200, 429)
        for form in ("svg", "png"):
            self.told(self.send("GET", f"/api/report/progress.{form}?tag={TAG}"), 200, 429)

    def bodies(self) -> None:
        content = self.chance.choice(list(BODIES.values()))
        self.told(self.send("POST", "/api/experiment/register", content=content), 400, 413, 422, 429)

    def heads(self) -> None:
        path, headers = self.chance.choice(list(HEADS.values()))
        kept = [(name, value) for name, value in headers if name != "authorization"]
        self.told(self.send("GET", path, headers=kept), 200, 206, 400, 403, 405, 416, 422, 429, 431)

    def lingers(self) -> None:
        """Hold waits, event streams and heads that never end, all at once, for a few seconds."""
        paths = [
            f"/api/experiment/{name}/wait?timeout=50&until=finished" for name in self.book.submitted[-1:]
        ]
        paths += ["/api/events", "/api/events?since=0"]
        head = f"Host: 127.0.0.1\r\nAuthorization: {self.http.headers['authorization']}\r\n"
        with contextlib.ExitStack() as held:
            for nth in range(LINGERING):
                with contextlib.suppress(OSError):
                    line = held.enter_context(socket.create_connection(("127.0.0.1", self.lab.port), 5))
                    end = "\r\n" if nth % 4 else ""
                    line.sendall(f"GET {paths[nth % len(paths)]} HTTP/1.1\r\n{head}{end}".encode())
            self.stop.wait(3)


class RunsTheWorst(Hostile):
    """Submits runs that crash, hang, flood, leave processes behind, or have a broken patch."""

    def turn(self) -> None:
        body = idea(self.chance, self.lab.base, HOSTILE) | {"timeout_s": RUN_S}
        if self.chance.random() < 0.2:
            body |= {"commit_sha": uuid.uuid4().hex, "diff": "no patch\n"}
        else:
            body["config_delta"] = {"EVIL": self.chance.choice(list(EVIL)), "VALUE": self.chance.random()}
        answer = self.told(self.call("experiment/submit", key=True, **body), 200, 409, 422, 429)
        if answer.status_code == 200:
            self.book.hostile.append(answer.json()["experiment_id"])
        self.rest(3)


class Meddles(Hostile):
    """Calls functions that it has no right to call."""

    def turn(self) -> None:
        others = self.chance.choice([*self.book.submitted[-20:], f"{TAG}-1"])
        gpu_id = "unknown:0"
        theirs: Sequence[tuple[str, dict[str, Any]]] = (
            ("experiment/register", idea(self.chance, self.lab.base)),
            ("experiment/stop", {"experiment_id": others}),
            ("experiment/complete", {"experiment_id": others, "val_bpb": 0.0001}),
            ("experiment/crash", {"experiment_id": others, "error": "boom"}),
            ("experiment/retract", {"experiment_id": others, "reason": "it is not mine"}),
            ("trace/close", {"tag": TAG, "trace_id": f"{TAG}-t1"}),
            ("search/set-policy", {"tag": TAG, "policy": {"crash_limit": 1}}),
            ("tag/pause", {"tag": TAG, "reason": "no"}),
            ("pool/drain", {"gpu_id": gpu_id}),
            ("pool/heartbeat", {"gpu_id": gpu_id}),
            ("token/issue", {"name": "mine", "role": "operator"}),
            ("token/list", {}),
            ("lab/audit", {}),
            ("event/discard", {"all": True}),
        )
        for path, body in theirs:
            self.told(self.call(path, **body), 401, 403, 404, 409, 422, 429)
        bare = f"Bearer nj_{'a' * 10}_{'b' * 43}"
        self.told(self.send("POST", "/api/token/list", json={}, headers={"authorization": bare}), 401)
        self.rest()


class Rotates(Hostile):
    """An operator whose agents' tokens are issued, used, rotated and revoked all the time."""

    def turn(self) -> None:
        name = f"gust-{uuid.uuid4().hex[:12]}"
        issued = self.call("token/issue", name=name, role="agent", tags=[HOSTILE])
        if issued.status_code == 409:  # the answer to the first try was lost
            return
        self.told(issued, 200)
        token, token_id = issued.json()["token"], issued.json()["id"]
        self.book.secrets.append(token)
        rotated = self.told(self.send("POST", "/api/token/rotate", json={}, headers=bearing(token)), 200)
        new = rotated.json()["token"]
        self.book.secrets.append(new)
        self.told(self.send("GET", "/api/token/whoami", headers=bearing(new)), 200)
        using = threading.Thread(target=lambda: self.send("GET", "/api/report/tags", headers=bearing(new)))
        using.start()
        self.told(self.call("token/revoke", id=token_id), 200)
        using.join()
        for old in (token, new):
            self.told(self.send("GET", "/api/token/whoami", headers=bearing(old)), 401)
        self.rest()


def bearing(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def hostile_users(
    lab: RunningLab, book: Book, stop: threading.Event, seed: str, token: Callable[[str], str]
) -> list[User]:
    """All hostile users, each with its own token. `token` issues one for a role."""
    lab.setup(HOSTILE, max_attempts=3, crash_limit=1_000_000, **{"budgets.base_s": 2})
    kinds: Sequence[type[User]] = (SendsTheWorst, SendsTheWorst, RunsTheWorst, Meddles, Rotates)
    return [
        kind(
            lab, book, stop, f"{seed}/{kind.__name__}/{n}", token("operator" if kind is Rotates else "agent")
        )
        for n, kind in enumerate(kinds)
    ]
