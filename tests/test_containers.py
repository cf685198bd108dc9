"""Dockerfile and compose.yaml, as far as they can be checked without an image."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from state.client import Lab
from state.errors import NightjarError
from state.redis_server import find_binary, look, refuse
from state.settings import Settings
from tests.conftest import ROOT
from triggers.cli.__main__ import COMMANDS
from triggers.cli.token import token_command as token
from triggers.lab import KINDS
from triggers.ports import free_port
from workers.supervisor import main as supervisor

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PASSWORD = "afb72c01"


def filled(text: str) -> str:
    """A value as compose hands it on."""
    values = {"REDIS_PASSWORD": PASSWORD, "PROJECT": "/home/me/project"}
    plain = re.sub(r"\$\{\w+:-\}", "", text)
    return re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: values[found[1]], plain).replace("$$", "$")


def test_compose_runs_every_kind_of_process_and_one_cpu_worker() -> None:
    assert set(SERVICES) == {"redis", *KINDS, "pi", "worker"}
    for kind in (*KINDS, "pi"):
        flag, module = SERVICES[kind]["command"]
        assert (flag, module) == ("-m", "workers.pi" if kind == "pi" else f"triggers.{kind}")
        assert importlib.util.find_spec(module) is not None
    name, *words = SERVICES["worker"]["command"]
    assert name in COMMANDS
    at = words.index("--url")
    assert words[at + 1] == "http://web:3111"
    assert SERVICES["web"]["environment"]["NIGHTJAR_ALLOWED_HOSTS"] == "web"
    chosen = supervisor.make_context("worker", words).params
    assert (chosen["gpu"], chosen["cpu"], str(chosen["repo"])) == ("none", 1, "/project")
    assert any(filled(volume).split(":")[1] == "/project" for volume in SERVICES["worker"]["volumes"])


@pytest.mark.parametrize("service", sorted({*SERVICES} - {"redis"}))
def test_every_variable_in_compose_is_a_setting(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {f"NIGHTJAR_{name.upper()}" for name in Settings.model_fields}
    given = SERVICES[service]["environment"]

    assert set(given) <= known
    for name, value in given.items():
        monkeypatch.setenv(name, filled(str(value)))
    if service != "worker":
        url = Settings().redis_url
        assert url is not None
        assert url.get_secret_value() == f"redis://:{PASSWORD}@redis:6379/0"


def test_volumes_and_ports_are_those_of_the_image_and_this_machine() -> None:
    volumes = {volume.split(":")[0] for one in SERVICES.values() for volume in one["volumes"]}
    port = Settings.model_fields["port"].default

    assert {name for name in volumes if name[0] not in "/$"} == set(COMPOSE["volumes"])
    assert SERVICES["web"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert "ENV NIGHTJAR_DATA=/data" in DOCKERFILE
    assert "/data" in {volume.split(":")[1] for volume in SERVICES["worker"]["volumes"]}


@pytest.fixture
def redis_of_compose(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that runs as compose has it."""
    try:
        binary = find_binary(Settings())
    except NightjarError as problem:
        pytest.skip(problem.detail)
    (tmp_path / "redis-server").symlink_to(binary.path)
    port = free_port(0)
    *shell, text = SERVICES["redis"]["command"]
    server = subprocess.Popen(
        [*shell, f"{filled(text)} --bind 127.0.0.1 --port {port}"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDISCLI_AUTH": PASSWORD},
        stdout=subprocess.DEVNULL,
        process_group=0,
    )
    yield f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
    os.killpg(server.pid, signal.SIGTERM)
    server.wait()


@pytest.mark.process
async def test_the_redis_of_compose_may_hold_a_lab(redis_of_compose: str) -> None:
    lab = Lab("lab", redis_of_compose, timeout_s=5.0)
    give_up = time.monotonic() + 30.0
    try:
        while True:
            try:
                facts, save = await lab.facts(), await lab.command("CONFIG", "GET", "save")
                break
            except NightjarError:
                assert time.monotonic() < give_up
                await asyncio.sleep(0.05)
    finally:
        await lab.close()

    refuse(look(facts))
    assert (facts["aof"], facts["appendfsync"]) == (True, "everysec")
    assert save == ["save", ""]
    assert PASSWORD not in shlex.join(SERVICES["redis"]["command"])


def test_the_image_is_built_of_what_the_wheel_is_made_of() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for word in line.split()
    }

    assert all((ROOT / name).exists() for name in copied)
    assert {*build["wheel"]["only-include"], *build["wheel"]["force-include"]} <= copied
    assert {"pyproject.toml", "README.md", "LICENSE"} <= copied
    assert 'ENTRYPOINT ["nightjar"]' in DOCKERFILE


def test_the_tokens_are_issued_as_the_documents_say() -> None:
    page = (ROOT / "docs" / "install.md").read_text()

    lines = re.findall(r"^docker compose run --rm (.+?) *(?:#.*)?$", page, re.MULTILINE)

    issued = []
    for service, command, verb, *options in map(shlex.split, lines):
        assert SERVICES[service]["environment"]["NIGHTJAR_HOST"] == "0.0.0.0"
        assert command in COMMANDS
        given = token.commands[verb].make_context(verb, options).params
        issued.append((given["role"], given["direct"]))
    assert issued == [("operator", True), ("worker", True)]
