"""Commands on a running lab: what they print and how they exit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from tests.commands import command_line, nightjar, started_nightjar
from tests.journeys.running import RunningLab, reserved_port


@pytest.fixture(scope="module")
def lab(lab: RunningLab) -> RunningLab:
    lab.setup("cli")
    return lab


def test_call_prints_the_answer_of_a_function_wherever_the_lab_s_directory_is_named(
    lab: RunningLab, tmp_path: Path
) -> None:
    strategy = started_nightjar(lab.data, "call", "search::strategy", "--tag", "cli")
    after = nightjar(tmp_path / "nowhere", "call", "report::tags", "--data", str(lab.data))
    before = command_line("call", "--data", str(lab.data), "report::progress", "--tag", "cli")
    plot = subprocess.run(before, capture_output=True, check=True)

    assert json.loads(strategy.stdout)["mode"] == "explore", strategy.stderr
    assert "cli" in [tag["name"] for tag in json.loads(after.stdout)["tags"]], after.stderr
    assert plot.stdout.startswith(b"\x89PNG")


def imported_by(*words: str, **environment: str) -> set[str]:
    """The modules that a command imports."""
    watched = (sys.executable, "-X", "importtime", "-P", "-m", "triggers.cli", *words)
    env = {**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__", **environment}
    done = subprocess.run(watched, capture_output=True, text=True, check=True, env=env)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


HEAVY = frozenset({"redis", "httpx", "state.records", "functions.kernel.table"})
NEEDLESS = {
    ("--help",): HEAVY | {"state.client_settings", "pydantic", "rich", "asyncio"},
    ("status", "--help"): HEAVY | {"state.policy", "state.settings", "rich.console"},
    ("config",): HEAVY | {"triggers.cli.doctor", "triggers.cli.lab_http"},
    ("call", "report::tags"): HEAVY
    | {"functions.people", "numpy", "difflib", "state.settings", "rich.console"},
}
"""What a command has to do without: each import costs a start."""


@pytest.mark.parametrize("words", NEEDLESS, ids=" ".join)
def test_a_command_imports_nothing_that_it_does_not_need(lab: RunningLab, words: tuple[str, ...]) -> None:
    imported = imported_by(*words, NIGHTJAR_DATA=str(lab.data))

    assert "click" in imported
    assert not imported & NEEDLESS[words]


def test_without_a_lab_call_says_what_this_checkout_can_do(tmp_path: Path) -> None:
    shown = nightjar(tmp_path / "data", "call", "experiment::wait", "--help")
    called = nightjar(tmp_path / "data", "call", "experiment::best", "--tag", "t", NIGHTJAR_PORT="1")

    assert "--until change|finished" in shown.stdout
    assert called.returncode == 1
    assert "no lab answers" in called.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("experiment::best",), 2, "tag"),
        (("experiment::history", "--tag", "cli", "--limit", "many"), 2, "limit"),
        (("no::such",), 2, "no::such"),
        (
            ("search::set_policy", "--tag", "cli", "--policy", "{a: 7}"),
            2,
            "policy is not JSON: Expecting property",
        ),
        (("experiment::best", "--tag", "nowhere"), 1, "-> create it with"),
    ],
)
def test_a_call_that_cannot_be_says_why(
    lab: RunningLab, words: tuple[str, ...], code: int, told: str
) -> None:
    done = nightjar(lab.data, "call", *words)

    assert (done.returncode, told in done.stderr) == (code, True), done.stderr


def test_a_recorded_tag_is_replayed_under_another_keep_rule(lab: RunningLab) -> None:
    lab.post("experiment/setup", tag="dusk", metric={"name": "accuracy", "direction": "maximize"})
    for commit, value in (("a1", 0.5), ("a2", 0.502), ("a2", 0.499), ("a3", 0.6), ("a4", 0.58)):
        idea = {"hypothesis": "h", "category": "other", "diff_summary": f"{commit} is tried"}
        new = lab.post("experiment/register", tag="dusk", commit_sha=commit, **idea)
        lab.post("experiment/complete", experiment_id=new["experiment_id"], val_bpb=value)
    crashed = lab.post("experiment/register", tag="dusk", commit_sha="a5", **idea)["experiment_id"]
    lab.post("experiment/crash", experiment_id=crashed, error="boom")

    done = nightjar(lab.data, "replay", "dusk", "--json")
    unknown = nightjar(lab.data, "replay", "dawn")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["metric"], found["direction"], found["sigma_df"]) == ("accuracy", "maximize", 1)
    assert found["sigma"] == pytest.approx(0.003 / 2**0.5)
    assert [(j["name"], j["verdict"]) for j in found["judged"]] == [
        ("dusk-1", "keep"),
        ("dusk-2", "retest"),
        ("dusk-4", "retest"),  # one repeat alone makes nobody sure of the noise
        ("dusk-5", "discard"),
    ]
    assert [(s["name"], s["reason"]) for s in found["skipped"]] == [(crashed, "its status is 'crash'")]
    assert unknown.returncode == 1
    assert "no file 'dawn' and no such tag" in unknown.stderr


def test_status_shows_processes_slots_and_tags_and_a_gpu_s_name_as_text(lab: RunningLab) -> None:
    gpu = {"gpu_id": "other:gpu0", "gpu_index": 0, "vram_mb": 1.0}
    lab.post("pool/register", **gpu, gpu_name="[/red][link=x]\x1b[31mnamed")

    plain = nightjar(lab.data, "status")
    machine = nightjar(lab.data, "status", "--json")
    lab.post("pool/drain", gpu_id="other:gpu0")
    lab.post("pool/deregister", gpu_id="other:gpu0")

    assert plain.returncode == 0, plain.stderr
    assert re.search(r"\d web;", plain.stdout), "others may have been killed just now"
    assert "cpu0" in plain.stdout
    assert r"[/red][link=x]\x1b[31mnamed" in plain.stdout
    assert json.loads(machine.stdout)["status"]["counts"]["keeper"] == 1


def test_no_command_hands_a_terminal_what_an_agent_wrote_for_it(lab: RunningLab) -> None:
    hostile = "cold\x1b[2J\x9b31m\u202egpj.exe\u2066\u200b\u200d"
    lab.setup("hostile")
    lab.post("tag/pause", tag="hostile", reason=hostile)
    lab.post("tag/unpause", tag="hostile")
    about = {"hypothesis": hostile, "diff_summary": hostile, "description": hostile}
    name = lab.post("experiment/register", tag="hostile", category="other", commit_sha=lab.base, **about)[
        "experiment_id"
    ]
    lab.post("experiment/complete", experiment_id=name, val_bpb=1.0)
    lab.post("experiment/retract", experiment_id=name, reason=hostile)

    done = {
        words: nightjar(lab.data, *words)
        for words in [
            ("status",),
            ("top",),
            ("wait", name),
            ("wait", name, "--json"),
            ("call", "experiment::get", "--experiment-id", name),
            ("call", "report::tsv", "--tag", "hostile"),
            ("call", "experiment::register", "--tag", hostile),
            ("call", "experiment::best", "--tag", "hostile"),
            ("replay", "hostile"),
            ("doctor",),
        ]
    }

    for words, told in done.items():
        shown = told.stdout + told.stderr
        assert not {c for c in shown if unicodedata.category(c) in ("Cc", "Cf")} - {"\n"}, words
    assert json.loads(done["wait", name, "--json"].stdout)["next"].count(hostile) == 1
    assert r"cold\x1b[2J\x9b31m\u202egpj.exe\u2066\u200b\u200d" in done["wait", name].stdout


def test_a_proxy_of_the_environment_is_not_asked_for_a_lab_on_this_machine(lab: RunningLab) -> None:
    proxy = "socks5://127.0.0.1:1"
    status = nightjar(lab.data, "status", ALL_PROXY=proxy, HTTP_PROXY=proxy)
    # It begins with a request that is refused, and so ends.
    events = nightjar(lab.data, "events", "--type", "none", ALL_PROXY=proxy, HTTP_PROXY=proxy)

    assert status.returncode == 0, status.stderr
    assert "there are no events of type" in events.stderr


def test_redis_and_python_m_state_reach_the_lab_s_own_server(lab: RunningLab) -> None:
    done = nightjar(lab.data, "redis", "HGET", "{lab}:tags:cli", "branch")
    refused = nightjar(lab.data, "redis", "HGET", "{lab}:tags:cli")
    environment = {**os.environ, "NIGHTJAR_DATA": str(lab.data), "COLUMNS": "200"}
    words = [sys.executable, "-P", "-m", "state"]
    keys = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout

    assert done.stdout.strip() == "autoresearch/cli"
    assert (refused.returncode, "wrong number of arguments" in refused.stderr) == (1, True)
    rows = [line.split("│") for line in keys.splitlines() if "│" in line]
    counts = {cells[1].strip(): cells[-2].strip() for cells in rows}
    assert int(counts["{lab}:tags:<tag>"]) == lab.get("report/tags")["total"]
    assert counts["{lab}:gpu_pool:<gpu_id>"] == "1"


def test_config_redacts_secrets(tmp_path: Path) -> None:
    done = nightjar(tmp_path, "config", "--json", NIGHTJAR_REDIS_URL="redis://:hunter2@127.0.0.1:1/0")

    assert done.returncode == 0
    assert json.loads(done.stdout)["port"] == 3111
    assert "hunter2" not in done.stdout + nightjar(tmp_path, "config").stdout


def test_a_data_directory_that_is_not_there_is_no_other_lab_s(lab: RunningLab, tmp_path: Path) -> None:
    port, none = str(lab.port), tmp_path / "none"

    mistyped = nightjar(none, "call", "tag::pause", "--tag", "t", NIGHTJAR_PORT=port)
    named = nightjar(none, "status", NIGHTJAR_URL=f"http://127.0.0.1:{port}")

    assert mistyped.returncode == 1
    assert f"there is no data directory {none}" in mistyped.stderr
    assert "--data" in mistyped.stderr
    assert named.returncode == 0


def test_without_a_lab_every_command_says_how_to_start_one(tmp_path: Path) -> None:
    environment = {"NIGHTJAR_PORT": "1"}
    for words in (
        ("status",),
        ("redis", "PING"),
        ("call", "report::tags"),
        ("worker", "--repo", str(tmp_path)),
    ):
        done = nightjar(tmp_path / "none", *words, **environment)

        assert done.returncode == 1, words
        assert "->" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_a_bind_beyond_loopback_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with reserved_port() as free:
        port = str(free.getsockname()[1])
        done = nightjar(tmp_path / "data", "up", NIGHTJAR_HOST="0.0.0.0", NIGHTJAR_PORT=port)

    assert done.returncode == 1
    assert "ssh -L" in done.stderr


def test_doctor_finds_a_lab_in_order_and_reports_what_the_audit_finds(lab: RunningLab) -> None:
    well = nightjar(lab.data, "doctor", "--json")
    lab.setup("wounded")
    nightjar(lab.data, "redis", "HINCRBY", "{lab}:tags:wounded", "kept", "1")
    ill = nightjar(lab.data, "doctor", "--json")
    nightjar(lab.data, "redis", "HINCRBY", "{lab}:tags:wounded", "kept", "-1")

    found = {f["what"]: f for f in json.loads(well.stdout)}
    assert well.returncode == 0, well.stdout
    assert found["audit"]["state"] == "ok"
    assert "appendfsync everysec" in found["durability"]["found"]
    wrong = [f["found"] for f in json.loads(ill.stdout) if f["state"] == "error"]
    assert ill.returncode == 1
    assert "wounded: the counter kept says 1, the records 0" in wrong


def test_doctor_tries_the_archive(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()

    found = {}
    for place in ("old", "none"):
        done = nightjar(tmp_path / "data", "doctor", "--json", NIGHTJAR_ARCHIVE=str(tmp_path / place))
        found[place] = next(f for f in json.loads(done.stdout) if f["what"] == "archive")

    assert found["old"]["state"] == "ok"
    assert found["none"]["state"] == "error"
    assert "does not take a patch" in found["none"]["found"]
