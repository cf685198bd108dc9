"""Which token the commands send, to whom, and what they end with where it does not suffice."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from functions.kernel.process.process_identity import birth_name
from functions.kernel.process.redaction import presentable, scrubbed
from state.client_settings import host_name
from state.errors import BY_TITLE, NightjarError, Unauthenticated
from state.private import key_file, made_key, read_key, write_private
from state.settings import Settings
from state.token_values import new_id, new_secret
from tests.conftest import ROOT
from triggers.cli import lab_http
from triggers.cli.lab_http import LabHttp, bearer_of, own_url
from triggers.cli.output import AUTH, exit_code
from triggers.lab import LabParts
from triggers.web import write_down

HERE = "http://127.0.0.1:3999"


def token() -> str:
    return f"nj_{new_id()}_{new_secret()}"


def settings_in(data: Path, **more: Any) -> Settings:
    return Settings.model_validate({"data": data, **more})


def up(data: Path, url: str = HERE, lab: str = "lab") -> None:
    """Write down that this process is the web process."""
    where = urlsplit(url)
    write_down(settings_in(data, lab=lab, host=where.hostname, port=where.port))


def taken_over(data: Path, process: str) -> None:
    """Replace the name of the web process that is written down."""
    written = json.loads((data / "web.json").read_text())
    (data / "web.json").write_text(json.dumps(written | {"process": process}))


@contextmanager
def sleeping() -> Iterator[int]:
    """The pid of a process that is not Nightjar's."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def sent(settings: Settings) -> str | None:
    found = bearer_of(settings)
    return found.text if found else None


def test_the_variable_goes_before_the_key(tmp_path: Path) -> None:
    up(tmp_path)
    mine, key = token(), made_key(settings_in(tmp_path))

    assert sent(settings_in(tmp_path)) == key
    assert sent(settings_in(tmp_path, token=f" {mine}\n")) == mine
    assert sent(settings_in(tmp_path, token="")) == key


@pytest.mark.parametrize(
    ("here", "elsewhere"),
    [
        *((HERE, url) for url in ("http://127.0.0.1:4000", "https://lab.example", "http://192.0.2.1:3999")),
        *((url, None) for url in ("http://192.0.2.1:3999", "http://localhost.example:3999")),  # no loopback
    ],
)
def test_the_key_goes_to_the_web_process_of_its_own_directory_alone(
    tmp_path: Path, here: str, elsewhere: str | None
) -> None:
    up(tmp_path, url=here)
    key = made_key(settings_in(tmp_path))

    assert sent(settings_in(tmp_path, url=elsewhere)) is None
    assert sent(settings_in(tmp_path, url=HERE + "/")) == (key if here == HERE else None)


def test_the_key_is_not_sent_to_whoever_has_the_port_of_a_lab_that_ended(tmp_path: Path) -> None:
    key = made_key(settings_in(tmp_path))
    assert sent(settings_in(tmp_path)) is None
    with sleeping() as pid:
        name = birth_name(host_name(), pid)
        up(tmp_path)
        taken_over(tmp_path, name)
        assert sent(settings_in(tmp_path)) == key

    assert sent(settings_in(tmp_path)) is None


@pytest.mark.process
@pytest.mark.parametrize("other", ["host", "boot", "start"])
def test_no_key_is_sent_where_another_process_has_the_pid_and_a_foreign_server_the_port(
    tmp_path: Path, other: str
) -> None:
    made_key(settings_in(tmp_path))
    with sleeping() as pid, listening(200) as (url, heard):
        host, _, born = birth_name(host_name(), pid).split(":")
        before = {
            "host": f"elsewhere-{host}:{pid}:{born}",
            "boot": f"{host}:{pid}:another-boot/{born.rpartition('/')[2]}",
            "start": f"{host}:{pid}:{born}0",
        }
        up(tmp_path, url=url)
        taken_over(tmp_path, before[other])

        LabHttp(settings_in(tmp_path)).ask("GET", "/api/lab/status")

    assert heard == [None]


def test_each_lab_of_a_data_directory_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys = [made_key(settings_in(tmp_path, lab=name)) for name in ("lab", "other", "lab")]
    up(tmp_path, lab="other")

    assert keys[0] == keys[2] != keys[1]
    assert sorted(path.name for path in tmp_path.glob("*.key")) == ["operator-other.key", "operator.key"]
    assert sent(settings_in(tmp_path)) is None
    assert sent(settings_in(tmp_path, lab="other")) == keys[1]

    up(tmp_path, url="http://127.0.0.1:3998")

    assert sent(settings_in(tmp_path)) == keys[0]
    assert sent(settings_in(tmp_path, lab="other")) == keys[1]
    assert [own_url(settings_in(tmp_path, lab=name)) for name in ("lab", "other")] == [
        "http://127.0.0.1:3998",
        HERE,
    ]


def test_processes_that_start_at_once_share_one_key_for_its_owner_s_eyes(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "new")

    with ThreadPoolExecutor(4) as starting:
        keys = {*starting.map(lambda _: key_of_a_process(settings), range(2))}

    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["operator.key"]
    assert key_file(settings).stat().st_mode & 0o777 == 0o600


def key_of_a_process(settings: Settings) -> str:
    """The key as another process makes or finds it."""
    code = "import sys; from state.settings import Settings; from state.private import made_key;"
    code += "print(made_key(Settings(data=sys.argv[1])))"
    command = [sys.executable, "-c", code, str(settings.data_dir)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o610])
def test_a_key_that_is_open_to_others_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    settings = settings_in(tmp_path)
    before = made_key(settings)
    key_file(settings).chmod(mode)

    with pytest.raises(Unauthenticated, match="open to others") as refusal:
        made_key(settings)

    remedy = (refusal.value.hint or "").split(";")[0]
    subprocess.run(remedy.split(), check=True)
    assert made_key(settings) != before


def test_a_key_of_another_user_or_a_link_or_folder_in_its_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_in(tmp_path / "data")
    made_key(settings)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(Unauthenticated, match="not your own file"):
            read_key(settings)

    made_key(settings_in(tmp_path / "other"))
    key_file(settings).unlink()
    key_file(settings).symlink_to(tmp_path / "other" / "operator.key")
    with pytest.raises(Unauthenticated, match="cannot be read"):
        made_key(settings)

    key_file(settings).unlink()
    key_file(settings).mkdir()
    with pytest.raises(Unauthenticated):
        made_key(settings)


@pytest.mark.parametrize(
    "text",
    ["hunter2-hunter2", "nj_abc_def", f"nj_{'a' * 10}_{'B' * 43}\nX-Other: header"],
    ids=["a password", "a short one", "one that smuggles a header"],
)
def test_what_is_no_token_is_refused_and_never_told(tmp_path: Path, text: str) -> None:
    up(tmp_path)
    with pytest.raises(Unauthenticated) as by_variable:
        bearer_of(settings_in(tmp_path, token=text))
    write_private(key_file(settings_in(tmp_path)), text)
    with pytest.raises(Unauthenticated) as by_file:
        bearer_of(settings_in(tmp_path))

    for problem in (by_variable.value, by_file.value):
        assert problem.hint
        assert text not in f"{problem.detail} {problem.hint}"


def test_a_token_that_was_found_is_hidden_from_then_on(tmp_path: Path) -> None:
    up(tmp_path)
    text = made_key(settings_in(tmp_path))

    found = bearer_of(settings_in(tmp_path))

    assert text not in repr(found)
    assert text not in scrubbed(f"the lab said {text}") + presentable(f"the lab said {text}")
    assert (
        presentable("the token of NIGHTJAR_TOKEN: it is refused")
        == "the token of NIGHTJAR_TOKEN: it is refused"
    )


@contextmanager
def listening(answer: int, location: str = "") -> Iterator[tuple[str, list[str | None]]]:
    """An HTTP server that notes the Authorization of every request."""
    heard: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers.get("Authorization"))
            self.send_response(answer)
            self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", heard
        finally:
            server.shutdown()
            thread.join()


def test_a_token_goes_to_no_other_host_than_the_url_s(tmp_path: Path) -> None:
    text = token()
    with listening(200) as (elsewhere, heard_elsewhere), listening(307, elsewhere) as (url, heard):
        settings = settings_in(tmp_path, url=url, token=text)
        for anonymous in (False, True):
            with pytest.raises(NightjarError):
                LabHttp(settings, anonymous=anonymous).ask("GET", "/api/lab/status")

    assert heard == [f"Bearer {text}", None]
    assert heard_elsewhere == []


def test_a_token_over_plain_http_to_another_machine_is_warned_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_http, "_warned", set())
    text = token()

    for url in ("http://192.0.2.1:3111", "http://192.0.2.1:3111", "https://192.0.2.1", HERE):
        LabHttp(settings_in(tmp_path, url=url, token=text))
    LabHttp(settings_in(tmp_path, url="http://192.0.2.9:3111"))

    said = capsys.readouterr().err
    assert said.count("unencrypted") == said.count("192.0.2.1") == 1
    assert "ssh -L" in said
    assert text not in said


@pytest.mark.parametrize("kind", BY_TITLE.values())
def test_the_exit_code_tells_that_it_is_about_who_one_is(kind: type[NightjarError]) -> None:
    assert (exit_code(kind("x")) == AUTH == 7) == (kind.status in (401, 403))


def test_no_process_of_the_lab_is_given_the_token_of_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NIGHTJAR_TOKEN", "NIGHTJAR_ENROLL_TOKEN"):
        monkeypatch.setenv(name, token())
    monkeypatch.setenv("NIGHTJAR_STALE_S", "7")

    given = [spec.env or {} for spec in LabParts(settings_in(tmp_path), repo=tmp_path).specs()]

    assert len(given) == 4
    assert not any(name in env for env in given for name in ("NIGHTJAR_TOKEN", "NIGHTJAR_ENROLL_TOKEN"))
    assert {env["NIGHTJAR_STALE_S"] for env in given} == {"7"}
