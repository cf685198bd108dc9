"""Secrets let into a whole lab at work, and every place in which they must not turn up."""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import redis

from tests.commands import nightjar
from tests.journeys.running import TRAIN, RunningLab, running_lab

OF_PASSWORDS = frozenset({"redis.json", "redis-worker.json"})
KEY = "operator.key"
"""Files of mode 0600 that tell the lab's own processes how to reach Redis."""
SHOW = """
import os, sys
print("environment:", dict(os.environ))
print("arguments:", sys.argv)
"""


@dataclass
class Told:
    """A lab that has been told secrets, and all that it has said."""

    lab: RunningLab
    tokens: dict[str, str] = field(default_factory=dict)
    """Secrets of tokens, sessions and tickets, by what they are: one answer has each, and no other place."""
    others: dict[str, str] = field(default_factory=dict)
    """What no answer and no log may have at all."""
    answers: list[tuple[str, str]] = field(default_factory=list)
    """Every HTTP answer: what was asked, and all of it with its headers."""
    said: str = ""
    """What commands printed."""

    def seen(self, response: httpx.Response) -> None:
        if response.headers.get("content-type") != "text/event-stream":
            response.read()
            self.answers.append((str(response.url.path), f"{response.headers}\n{response.text}"))

    def issued(self, name: str, text: str) -> str:
        self.tokens[name] = re.sub(r"^nj_[a-z2-7]{10}_", "", text)
        return text

    @property
    def root(self) -> str:
        """The operator's token."""
        return str(self.lab.http.headers["Authorization"]).removeprefix("Bearer ")

    @property
    def secrets(self) -> dict[str, str]:
        return self.tokens | self.others


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    key = uuid.uuid4().hex
    environment = {
        "NIGHTJAR_LOG_FORMAT": "json",
        "NIGHTJAR_LOG_LEVEL": "DEBUG",
        "NIGHTJAR_WEBHOOK_PRIVATE": "true",
        "ANTHROPIC_API_KEY": key,
        "MY_SERVICE_TOKEN": f"token-{key}",
    }
    with running_lab(tmp_path_factory.mktemp("lab"), **environment) as lab:
        lab.start()
        found = Told(lab, others={"a provider's key": key})
        lab.http.event_hooks["response"] = [found.seen]
        for file in OF_PASSWORDS:
            url = json.loads((lab.data / file).read_text())["url"]
            found.others |= {f"the password in {file}": urlsplit(url).password or ""}
        own_key = (lab.data / KEY).read_text().strip()
        found.others["the operator's key"] = own_key.rpartition("nj_labsownkey_")[2]
        live(found)
        assert len(found.tokens) >= 9
        assert all(len(secret) >= 12 for secret in found.secrets.values())
        assert found_in(f"x{found.tokens['root']}y", found.secrets) == {"root"}
        yield found


def live(told: Told) -> None:
    """Everything that a secret can go through."""
    lab = told.lab
    root = told.issued("root", lab.post("token/issue", name="root", role="operator")["token"])
    lab.http.headers["Authorization"] = f"Bearer {root}"
    for name in ("viewer", "agent", "worker", "gone"):
        told.issued(
            name, lab.post("token/issue", name=name, role=name if name != "gone" else "agent")["token"]
        )
    enroll = lab.post("token/issue", name="swarm", role="worker", kind="enroll", uses=2)["token"]
    told.issued("enroll", enroll)
    told.issued("enrolled", lab.post("token/enroll", enroll_token=enroll, name="w1")["token"])
    listed = {row["name"]: row["id"] for row in lab.post("token/list")["tokens"]}
    told.issued("rotated", lab.post("token/rotate", id=listed["viewer"])["token"])
    lab.post("token/revoke", id=listed["gone"])
    listen(told)
    sign_in(told)
    hook(told)
    research(told)
    be_wrong(told)
    fail(told)
    command(told)


def listen(told: Told) -> None:
    """An event stream by ticket."""
    ticket = told.lab.post("event/ticket")["ticket"]
    told.issued("ticket", ticket)
    with httpx.Client(base_url=told.lab.http.base_url, timeout=60) as stranger:
        for status in (200, 401):
            with stranger.stream("GET", "/api/events", params={"ticket": ticket, "since": "0"}) as stream:
                assert stream.status_code == status


def sign_in(told: Told) -> None:
    """A browser that signs in, and two that do not."""
    told.others["a wrong session"] = wrong = f"session{uuid.uuid4().hex}"
    told.others["a wrong token to sign in"] = mistyped = "-_aA" + uuid.uuid4().hex + "wrong--"
    seen = {"response": [told.seen]}
    with httpx.Client(base_url=told.lab.http.base_url, event_hooks=seen, timeout=60) as browser:
        for text, status in ((f"nj_aaaaaaaaaa_{mistyped}", 401), (mistyped, 401), (mistyped * 9, 422)):
            assert browser.post("/api/session", json={"token": text}).status_code == status
        code = told.issued("sign-in code", told.lab.post("token/sign-in")["code"])
        signed_in = browser.post("/api/session", json={"code": code})
        assert signed_in.status_code == 200
        (cookie,) = browser.cookies.jar
        told.issued("session", str(cookie.value))
        page = {"X-Nightjar-Page": told.issued("page", signed_in.json()["page"])}
        assert browser.get("/api/session").json()["signed_in"]
        assert browser.get("/api/lab/status").status_code == 200
        assert browser.post("/api/token/list", json={}).status_code == 200
        assert browser.post("/api/cron/pause", json={"function": "pool::sweep"}).status_code == 403
        assert browser.post("/api/token/sign-in", json={}, headers=page).status_code == 200
        browser.cookies.clear()
        browser.cookies.set(cookie.name, wrong)
        assert browser.get("/api/lab/status").status_code == 401


def hook(told: Told) -> None:
    """A webhook whose receiver is not there."""
    secret = "whsec_" + "Y2FuYXJ5" * 6
    path = f"path{uuid.uuid4().hex}"
    told.lab.post("webhook/add", url=f"http://127.0.0.1:9/{path}", secret=secret)
    told.others["a webhook's path"] = path
    told.tokens["a webhook's secret"] = secret
    told.lab.post("webhook/list")


def research(told: Told) -> None:
    """Good and bad runs with a script that prints all that it knows."""
    lab = told.lab
    lab.setup("canary")
    shows = lab.commit({"train.py": SHOW + TRAIN})
    crashes = lab.commit({"train.py": SHOW + "raise SystemExit(f'it broke: {dict(os.environ)}')"})
    bearer = {"Authorization": f"Bearer nj_{_id(lab, 'agent')}_{told.tokens['agent']}"}
    for commit, end in ((shows, "keep"), (crashes, "crash")):
        body = {
            "tag": "canary",
            "hypothesis": "h",
            "category": "other",
            "commit_sha": commit,
            "diff_summary": "d",
        }
        submitted = lab.http.post("/api/experiment/submit", json=body, headers=bearer)
        assert submitted.status_code == 200, submitted.text
        found = lab.until_status(submitted.json()["experiment_id"], end)
        assert "environment:" in found["log_tail"]


def _id(lab: RunningLab, name: str) -> str:
    return next(str(row["id"]) for row in lab.post("token/list")["tokens"] if row["name"] == name)


def be_wrong(told: Told) -> None:
    """Tokens that open nothing, wherever a client may put them by mistake."""
    lab = told.lab
    wrong = told.others["a wrong token"] = uuid.uuid4().hex + uuid.uuid4().hex[:11]
    text = f"nj_{_id(lab, 'agent')}_{wrong}"
    for headers in (
        {"Authorization": f"Bearer {text}"},
        {"Authorization": f"Token {text}"},
        {"Authorization": "", "X-Worker-Token": text},
        {"Authorization": f"Basic {text}"},
        {"Authorization": "Bearer"},
    ):
        answer = lab.http.get("/api/lab/status", params={"token": text}, headers=headers)
        assert answer.status_code == 401, answer.text
    for path, body in (
        ("experiment/register", {"tag": "canary", "api_key": text}),
        ("experiment/crash", {"experiment_id": text, "error": text}),
        ("token/enroll", {"enroll_token": text, "name": "x"}),
        ("token/enroll", {"enroll_token": "x" * 150 + wrong, "name": "x"}),
        ("token/enroll", {"enroll_token": "x" * 300 + wrong, "name": "x"}),
        ("token/rotate", {"id": text}),
        (f"no/such/{text}", {}),
    ):
        assert lab.http.post(f"/api/{path}", json=body, params={"token": text}).is_client_error
    for path in ("/", "/docs", "/openapi.json", "/readyz", "/metrics", "/api/token/whoami"):
        assert lab.http.get(path).status_code == 200


def fail(told: Told) -> None:
    """A fault of the lab's own, and a Redis and an events process that die."""
    lab = told.lab
    with closing(connected(lab)) as admin:
        admin.hset("{lab}:experiments:canary-1", "attempt", "not a number")
        answer = lab.http.get("/api/experiment/canary-1")
        admin.hset("{lab}:experiments:canary-1", "attempt", "1")
    assert answer.status_code == 500, answer.text
    psutil.Process(json.loads((lab.data / "redis.json").read_text())["pid"]).kill()
    lab.until(lambda: lab.http.get("/api/lab/status").status_code == 200, "Redis is back")
    lab.process("triggers.events").kill()
    lab.until(lambda: lab.get("lab/status")["counts"].get("events") == 1, "events are back")


def command(told: Told) -> None:
    """What the operator's own commands print."""
    own = {"NIGHTJAR_URL": str(told.lab.http.base_url), "NIGHTJAR_TOKEN": told.root}
    for words in (
        ("status",),
        ("config",),
        ("doctor",),
        ("call", "token::list"),
        ("call", "experiment::get"),
    ):
        done = nightjar(told.lab.data, *words, **own)
        told.said += done.stdout + done.stderr
    assert "root" in told.said


def connected(lab: RunningLab) -> redis.Redis:
    url = json.loads((lab.data / "redis.json").read_text())["url"]
    return redis.Redis.from_url(url, driver_info=None)


def found_in(text: str | bytes, secrets: dict[str, str]) -> set[str]:
    """Which of the secrets stand there."""
    raw = text.encode() if isinstance(text, str) else text
    return {name for name, secret in secrets.items() if secret.encode() in raw}


def test_no_file_of_the_lab_but_the_aof_and_the_password_files_has_a_secret(told: Told) -> None:
    told.lab.until_idle()  # a run that ends takes its files along
    files = [file for file in told.lab.data.rglob("*") if file.is_file()]
    names = {file.name for file in files}
    assert {"web.log", "events.log", "clock.log", "worker.log", "redis.log"} <= names

    for file in files:
        allowed = of_file(told, file)
        assert found_in(file.read_bytes(), told.secrets) <= allowed, file
    assert found_in(told.lab.output() + told.said, told.secrets) == set()
    for secretive in (*OF_PASSWORDS, KEY):
        assert (told.lab.data / secretive).stat().st_mode & 0o777 == 0o600


def of_file(told: Told, file: Path) -> set[str]:
    """What may stand in it: Redis' own files hold a webhook, whose secret signs what it is sent."""
    if file.name in OF_PASSWORDS:
        return {f"the password in {name}" for name in OF_PASSWORDS}
    if file.name == KEY:
        return {"the operator's key"}
    return {"a webhook's secret", "a webhook's path"} if "appendonly" in str(file) else set()


def test_redis_holds_no_secret_but_the_webhook_s(told: Told) -> None:
    holding: dict[str, set[str]] = {}
    with closing(connected(told.lab)) as admin:
        admin.config_set("rdbcompression", "no")
        keys: list[bytes] = list(admin.scan_iter(count=1000))
        for key in keys:
            shown = admin.dump(key)
            assert shown is None or isinstance(shown, bytes)
            if found := found_in(key + (shown or b""), told.secrets):
                holding[re.sub(r":[^:]*$", "", key.decode())] = found
        jobs = [job for key in keys if key.startswith(b"rq:job:") and (job := payload(admin, key))]

    assert len(keys) > 30
    assert any(b"gpu::train" in job for job in jobs)
    assert all(found_in(job, told.secrets) == set() for job in jobs)
    assert holding == {"{lab}:webhooks": {"a webhook's secret", "a webhook's path"}}


def payload(admin: redis.Redis, key: bytes) -> bytes:
    """The uncompressed payload of an RQ job."""
    data: Any = admin.hget(key.decode(), "data")
    return zlib.decompress(data) if data else b""


def test_no_answer_but_the_one_that_issued_it_has_a_secret(told: Told) -> None:
    shown: dict[str, list[str]] = {}
    for path, text in told.answers:
        for name in found_in(text, told.secrets):
            shown.setdefault(name, []).append(path)

    issuing = {
        "/api/token/issue",
        "/api/token/enroll",
        "/api/token/rotate",
        "/api/event/ticket",
        "/api/token/sign-in",
        "/api/session",
        "/api/webhook/add",
    }
    assert set(shown) == set(told.tokens)
    assert {path for paths in shown.values() for path in paths} <= issuing
    assert all(len(paths) == 1 for paths in shown.values()), shown


def test_no_training_script_and_no_command_line_is_told_a_secret(told: Told) -> None:
    lab = told.lab
    experiment = lab.submit("canary", config_delta={"SECONDS": 8.0})
    child = lab.until_training(experiment)

    family = [child, *child.children(recursive=True)]
    shown = [text for process in family for text in (*process.environ().values(), *process.cmdline())]
    lines = [text for process in lab.processes() for text in process.cmdline()]
    lab.post("experiment/stop", experiment_id=experiment)

    assert found_in("\n".join(shown), told.secrets) == set()
    assert found_in("\n".join(lines), told.secrets) == set()
    assert not [text for text in shown if "redis://" in text or "rediss://" in text]
    for name in ("canary-1", "canary-2"):
        assert found_in(lab.get(f"experiment/{name}")["log_tail"], told.secrets) == set()
