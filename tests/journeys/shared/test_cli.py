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


def test_call_prints_the_json_answer_of_a_function(lab: RunningLab) -> None:
    done = started_nightjar(lab.data, "call", "search::strategy", "--tag", "cli")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mode"] == "explore"


def test_call_says_where_a_field_is_not_json(lab: RunningLab) -> None:
    done = nightjar(lab.data, "call", "search::set_policy", "--tag", "cli", "--policy", "{crash_limit: 7}")

    assert done.returncode == 2
    assert "policy is not JSON: Expecting property name enclosed in double quotes" in done.stderr


def test_call_takes_the_lab_s_directory_before_and_after_the_function(
    lab: RunningLab, tmp_path: Path
) -> None:
    words = ("call", "report::tags", "--data", str(lab.data))

    done = nightjar(tmp_path / "nowhere", *words)

    assert "cli" in [tag["name"] for tag in json.loads(done.stdout)["tags"]], done.stderr


def test_a_part_of_the_path_that_is_not_given_is_what_it_is_by_default(lab: RunningLab) -> None:
    words = command_line("call", "--data", str(lab.data), "report::progress", "--tag", "cli")

    done = subprocess.run(words, capture_output=True, check=True)

    assert done.stdout.startswith(b"\x89PNG")


def imported_by(*words: str, **environment: str) -> set[str]:
    """The modules that a command imports."""
    watched = (sys.executable, "-X", "importtime", "-P", "-m", "triggers.cli", *words)
    env = {**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__", **environment}
    done = subprocess.run(watched, capture_output=True, text=True, check=True, env=env)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_a_command_that_asks_the_lab_imports_no_function_record_or_settings_of_its_processes(
    lab: RunningLab,
) -> None:
    imported = imported_by("call", "report::tags", NIGHTJAR_DATA=str(lab.data))

    assert "triggers.cli.lab_http" in imported
    heavy = {
        *(
            "functions.kernel.table",
            "functions.people",
            "functions.kernel.contract",
            "redis",
            "httpx",
            "numpy",
            "difflib",
        ),
        *("state.settings", "state.records", "state.policy", "rich.console"),
    }
    assert not imported & heavy


def test_what_needs_no_lab_reads_no_settings() -> None:
    imported = imported_by("--help")

    assert "click" in imported
    assert not imported & {
        "state.client_settings",
        "pydantic",
        "rich",
        "asyncio",
        "functions.kernel.table",
        "redis",
    }


def test_the_lab_s_status_is_shown_without_records_or_policy() -> None:
    imported = imported_by("status", "--help")

    assert "triggers.cli.lab_http" in imported
    assert not imported & {"state.records", "state.policy", "state.settings", "redis", "rich.console"}


def test_the_settings_are_shown_without_redis_or_the_checks_of_doctor() -> None:
    imported = imported_by("config")

    assert "state.settings" in imported
    assert not imported & {"redis", "httpx", "state.records", "triggers.cli.doctor", "triggers.cli.lab_http"}


def test_without_a_lab_call_says_what_this_checkout_can_do(tmp_path: Path) -> None:
    shown = nightjar(tmp_path / "data", "call", "experiment::wait", "--help")
    called = nightjar(tmp_path / "data", "call", "experiment::best", "--tag", "t", NIGHTJAR_PORT="1")

    assert "--until change|finished" in shown.stdout
    assert called.returncode == 1
    assert "no lab answers" in called.stderr


def test_a_wrong_field_is_a_usage_error(lab: RunningLab) -> None:
    missing = nightjar(lab.data, "call", "experiment::best")
    wrong = nightjar(lab.data, "call", "experiment::history", "--tag", "cli", "--limit", "many")
    unknown = nightjar(lab.data, "call", "no::such")

    assert [missing.returncode, wrong.returncode, unknown.returncode] == [2, 2, 2]
    assert "limit" in wrong.stderr


def test_a_problem_of_the_lab_is_told_with_its_hint(lab: RunningLab) -> None:
    done = nightjar(lab.data, "call", "experiment::best", "--tag", "nowhere")

    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert "-> create it with" in done.stderr


def test_waiting_exits_with_the_outcome(lab: RunningLab) -> None:
    def wait(experiment: str, timeout: str = "50") -> int:
        words = ("--experiment-id", experiment, "--timeout", timeout, "--until", "finished")
        return nightjar(lab.data, "call", "experiment::wait", *words).returncode

    running = lab.submit("cli", config_delta={"SECONDS": 600.0})
    assert wait(running, "0.1") == 5
    lab.post("experiment/stop", experiment_id=running)
    assert wait(running) == 8


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


def test_status_shows_processes_slots_and_tags(lab: RunningLab) -> None:
    plain = nightjar(lab.data, "status")
    machine = nightjar(lab.data, "status", "--json")

    assert re.search(r"\d web;", plain.stdout), "others may have been killed just now"
    assert "cpu0" in plain.stdout
    assert json.loads(machine.stdout)["status"]["counts"]["keeper"] == 1


def test_a_gpu_s_name_is_text_and_nothing_else(lab: RunningLab) -> None:
    gpu = {"gpu_id": "other:gpu0", "gpu_index": 0, "vram_mb": 1.0}
    lab.post("pool/register", **gpu, gpu_name="[/red][link=x]\x1b[31mnamed")

    done = nightjar(lab.data, "status")
    lab.post("pool/drain", gpu_id="other:gpu0")
    lab.post("pool/deregister", gpu_id="other:gpu0")

    assert done.returncode == 0, done.stderr
    assert r"[/red][link=x]\x1b[31mnamed" in done.stdout


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


def test_redis_reaches_the_lab_s_own_server(lab: RunningLab) -> None:
    done = nightjar(lab.data, "redis", "HGET", "{lab}:tags:cli", "branch")
    refused = nightjar(lab.data, "redis", "HGET", "{lab}:tags:cli")

    assert done.stdout.strip() == "autoresearch/cli"
    assert refused.returncode == 1
    assert "wrong number of arguments" in refused.stderr


def test_python_m_state_counts_the_keys_of_the_running_lab(lab: RunningLab) -> None:
    environment = {**os.environ, "NIGHTJAR_DATA": str(lab.data), "COLUMNS": "200"}

    done = subprocess.run(
        [sys.executable, "-P", "-m", "state"], capture_output=True, text=True, check=True, env=environment
    )

    rows = {
        line.split("│")[1].strip(): line.split("│")[-2].strip()
        for line in done.stdout.splitlines()
        if "│" in line
    }
    assert int(rows["{lab}:tags:<tag>"]) == lab.get("report/tags")["total"]
    assert rows["{lab}:gpu_pool:<gpu_id>"] == "1"


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


def test_doctor_finds_a_running_lab_in_order(lab: RunningLab) -> None:
    done = nightjar(lab.data, "doctor", "--json")

    found = {f["what"]: f for f in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert found["audit"]["state"] == "ok"
    assert "appendfsync everysec" in found["durability"]["found"]


def test_doctor_tries_the_archive(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()

    found = {}
    for place in ("old", "none"):
        done = nightjar(tmp_path / "data", "doctor", "--json", NIGHTJAR_ARCHIVE=str(tmp_path / place))
        found[place] = next(f for f in json.loads(done.stdout) if f["what"] == "archive")

    assert found["old"]["state"] == "ok"
    assert found["none"]["state"] == "error"
    assert "does not take a patch" in found["none"]["found"]


def test_doctor_reports_what_the_audit_finds(lab: RunningLab) -> None:
    lab.setup("wounded")
    nightjar(lab.data, "redis", "HINCRBY", "{lab}:tags:wounded", "kept", "1")

    done = nightjar(lab.data, "doctor", "--json")

    nightjar(lab.data, "redis", "HINCRBY", "{lab}:tags:wounded", "kept", "-1")
    wrong = [f for f in json.loads(done.stdout) if f["state"] == "error"]
    assert done.returncode == 1
    assert "wounded: the counter kept says 1, the records 0" in {f["found"] for f in wrong}
