"""What a log line carries, and what it never does."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from functions.kernel.process.logs import bound
from functions.kernel.process.redaction import hide, scrubbed
from tests.logged import logged

log = logging.getLogger("nightjar.test")


def fail(secret: str) -> None:
    inner = f"only a local: {secret}"
    raise ValueError(f"{len(inner)} letters")


def test_a_line_says_when_where_who_and_what_with_the_ids_bound_around_it() -> None:
    with logged() as lines, bound(request_id="r1", experiment_id="mar11-1", attempt=2):
        log.warning("the lease of %s ends", "mar11-1")

    line = lines.one()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "logger": "nightjar.test",
        "process": "test",
        "pid": os.getpid(),
        "message": "the lease of mar11-1 ends",
        "request_id": "r1",
        "experiment_id": "mar11-1",
        "attempt": 2,
    }


@pytest.mark.parametrize("library", ["uvicorn.error", "rq.worker", "apscheduler.scheduler", "asyncio"])
def test_libraries_log_through_the_same_form(library: str) -> None:
    with logged() as lines:
        logging.getLogger(library).error("%s is wrong", "it", extra={"color_message": "\x1b[1mit"})
    line = lines.one(logger=library, message="it is wrong")
    assert "color_message" not in line


def test_an_exception_is_told_by_frames_and_without_any_local() -> None:
    canary = uuid.uuid4().hex
    with logged() as lines:
        try:
            fail(canary)
        except ValueError:
            log.exception("it failed")

    (told,) = lines.one(message="it failed")["exception"]
    assert (told["exc_type"], told["frames"][-1]["name"]) == ("ValueError", "fail")
    assert canary not in lines.text


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    "text",
    [
        *("redis://default:{}@localhost:6379/0", "rediss://:{}@localhost", "Authorization: Bearer {}"),
        *("'authorization': 'Basic {}'", "whsec_{}", "a token of ours: nj_aaaaaaaaaa_{}"),
        *("GET /?q=nj_234567abcd_{}&more=1", "sk-ant-api03-{}", "AIzaSy{}", "password={}"),
        *('{{"api_key": "{}"}}', "ANTHROPIC_API_KEY={}", "x-token: {}"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, log_format: str) -> None:
    canary = uuid.uuid4().hex
    with logged(log_format=log_format) as lines:
        log.error("Redis said: %s!", text.format(canary))
        try:
            raise RuntimeError(text.format(canary))
        except RuntimeError:
            log.exception("it failed")

    assert canary not in lines.text
    assert lines.text.count("[redacted]") >= 2


@pytest.mark.parametrize(
    "text",
    [
        "48 total tokens_m: 12.5, tokenizer=bytes",
        "GET /api/experiment/{experiment_id} 200",
        "a signature of two arguments, and a Basic idea",
        "mar11-1 attempt 2 ended: keep; see http://127.0.0.1:3111/docs",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert scrubbed(text) == text


def test_a_known_secret_is_hidden_wherever_it_stands_and_under_whatever_name() -> None:
    canary = uuid.uuid4().hex
    hide(f"redis://:{canary}%2F1@127.0.0.1:1/0")
    assert canary not in scrubbed(f"AUTH {canary}/1 and {canary}%2F1")
    with logged() as lines, bound(facts={"password": "short", "note": [f"<{canary}/1>"]}):
        log.info("done")
    assert lines.one(message="done")["facts"] == {"password": "[redacted]", "note": ["<[redacted]>"]}


def test_foreign_text_cannot_pretend_to_be_a_line_of_its_own() -> None:
    with logged(log_format="console") as lines:
        log.info("no tag %s", "x\n2026-01-01 [critical] all is lost \x1b[31m")
    assert len(lines.text.splitlines()) == 1
    assert "\x1b" not in lines.text


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_process_logs_as_the_settings_ask_even_a_fault(log_format: str, tmp_path: Path) -> None:
    canary = uuid.uuid4().hex
    program = (
        "import logging; from functions.kernel.process.logs import start_logging;"
        "from state.settings import Settings;"
        "start_logging(Settings(), 'web'); logging.getLogger('a').info('hello');"
        f"logging.getLogger('a').debug('unheard'); raise RuntimeError({canary!r})"
    )
    env = os.environ | {
        "NIGHTJAR_LOG_FORMAT": log_format,
        "MODEL_API_KEY": canary,
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }

    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "hello" in done.stderr
    assert "RuntimeError" in done.stderr
    assert "unheard" not in done.stderr
    assert done.stderr.startswith("{") == (log_format == "json")
    assert "\x1b" not in done.stderr  # no colours where nobody looks
    shown = done.stderr.replace(repr(canary), "")  # the source line in the traceback is this test's own
    assert canary not in shown


@pytest.mark.parametrize(
    "part", ["a-", "a_", "token ", "token:", "token\n", "://", "Bearer ", "sk-", "nj_", '"']
)
def test_no_text_takes_long_to_look_through(part: str) -> None:
    text = "=" + part * (65536 // len(part))
    before = time.thread_time()
    scrubbed(text)
    assert time.thread_time() - before < 0.25
