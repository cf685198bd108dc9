"""The examples in deploy/: nginx reads its file, systemd reads its units, and their commands and variables exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from state.settings import Settings
from tests.conftest import ROOT
from triggers.cli.__main__ import COMMANDS
from triggers.cli.up import command as up
from triggers.lab import KINDS
from triggers.ports import free_port
from triggers.sse import HEARTBEAT_S
from workers.supervisor import main as supervisor

DEPLOY = ROOT / "deploy"
NGINX = (DEPLOY / "nginx.conf").read_text()
UNITS = {path.name: path.read_text() for path in sorted(DEPLOY.glob("*.service"))}
NAME = "lab.example.org"
LONGEST_WAIT_S = 50
"""The longest that a request is held."""
MAIN = """
daemon off;
error_log stderr;
pid nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    {server}
}}
"""


def needed(program: str) -> str:
    """The program's path: without it a skip on a laptop, a failure in CI."""
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        assert not os.environ.get("CI"), f"not installed: {program}"
        pytest.skip(f"not installed: {program}")
    return found


def configured(folder: Path, lab_port: int) -> Path:
    """The example, between a free port and a lab's port, with a certificate of its own."""
    keys = ("-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem"))
    made = (
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days"),
        "1",
    )
    subprocess.run(
        [needed("openssl"), *made, *keys, "-subj", "/CN=lab", "-addext", f"subjectAltName=DNS:{NAME}"],
        check=True,
        capture_output=True,
    )
    text = NGINX.replace("127.0.0.1:3111", f"127.0.0.1:{lab_port}")
    for port in (443, 80):
        text = text.replace(f"listen {port}", f"listen 127.0.0.1:{free_port(0)}")
    text = re.sub(r"/etc/\S+/(\w+\.pem);", rf"{folder}/\1;", text)
    file = folder / "nginx.conf"
    file.write_text(MAIN.format(server=text))
    return file


def test_nginx_reads_the_example_and_outlasts_streams_and_long_waits(tmp_path: Path) -> None:
    (patience,) = re.findall(r"proxy_read_timeout (\d+)s;", NGINX)
    assert int(patience) > max(LONGEST_WAIT_S, HEARTBEAT_S)
    assert "proxy_buffering off;" in NGINX
    nginx = needed("nginx")
    file = configured(tmp_path, 3111)

    done = subprocess.run(
        [nginx, "-t", "-p", str(tmp_path), "-c", str(file)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr


@pytest.mark.parametrize("name", UNITS)
def test_systemd_reads_each_unit(name: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("this machine has no systemd")
    unit = tmp_path / name
    unit.write_text(UNITS[name].replace("/opt/nightjar/bin/nightjar", "/bin/true"))

    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_units_name_commands_variables_and_processes_that_exist() -> None:
    known = {f"NIGHTJAR_{name.upper()}" for name in Settings.model_fields}
    for text in UNITS.values():
        assert {*re.findall(r"\bNIGHTJAR_\w+", text)} <= known
        (started,) = re.findall(r"^ExecStart=/opt/nightjar/bin/nightjar (.+)$", text, re.MULTILINE)
        words = shlex.split(started.replace("%i", "0").replace("/srv/project", str(ROOT)))
        match words:
            case ["up", *options]:
                up.make_context("up", options)
            case ["worker", "--url", _, *options]:
                supervisor.make_context("worker", options)
                assert "worker" in COMMANDS
            case ["-m", module]:
                assert module == "triggers.0"
                assert all(f"nightjar@{kind}" in text for kind in KINDS)
            case _:
                raise AssertionError(started)
