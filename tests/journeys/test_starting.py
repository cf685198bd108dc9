"""`nightjar up` refuses bad settings before it starts or writes anything, in one line with a remedy."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.commands import command_line, nightjar
from tests.journeys.running import FAST, running_lab
from tests.workers.repository import Repository

GIT = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Repository(tmp_path / "project").path


def refused(data: Path, *words: str) -> list[str]:
    """The lines of a refusal."""
    done = nightjar(data, "up", *words)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("nightjar: ")
    assert lines[1].startswith("  -> ")
    return lines


def test_a_data_directory_in_the_project_is_refused_before_anything_lies_there(project: Path) -> None:
    before = sorted(project.iterdir())

    for data in (project, project / "labs"):
        said, remedy = refused(data, "--repo", str(project))

        assert f"the data directory {data} lies in the repository {project}" in said
        assert "name another --data" in remedy
    assert sorted(project.iterdir()) == before


def test_a_repository_that_cannot_be_trained_is_refused(project: Path, tmp_path: Path) -> None:
    data, plain, without = tmp_path / "data", tmp_path / "plain", tmp_path / "without"
    for folder in (plain, without):
        folder.mkdir()
    subprocess.run([*GIT, "init", "--quiet"], cwd=without, check=True)

    assert f"{plain} is not a git repository" in refused(data, "--repo", str(plain))[0]
    assert f"{without} has no commit yet" in refused(data, "--repo", str(without))[0]
    begin = ("commit", "--quiet", "--allow-empty", "--message", "Begin")
    subprocess.run([*GIT, *begin], cwd=without, check=True)
    assert f"{without} has no train.py" in refused(data, "--repo", str(without))[0]
    (without / "src").mkdir()
    said, remedy = refused(data, "--repo", str(without / "src"), "--command", "python train.py")
    assert f"{without / 'src'} is a folder of the git repository {without}" in said
    assert f"--repo {without}" in remedy
    assert not data.exists()


def test_an_environment_that_cannot_be_used_is_refused_and_found_by_doctor(
    project: Path, tmp_path: Path
) -> None:
    python = project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "removed" / "python3")

    said, remedy = refused(tmp_path / "data", "--repo", str(project))
    done = nightjar(tmp_path / "data", "doctor", "--json", "--repo", str(project))

    assert said == f"nightjar: {python} cannot be used: No such file or directory"
    assert "or name another with --python" in remedy
    assert not (tmp_path / "data").exists()
    absent = refused(tmp_path / "data", "--repo", str(project), "--python", "/no/such/python")
    assert "--python '/no/such/python' is no program that can be run" in absent[0]
    (found,) = (f for f in json.loads(done.stdout) if f["what"] == "project")
    assert (found["state"], found["found"]) == ("error", said.removeprefix("nightjar: "))


def test_doctor_names_the_train_py_of_a_folder_and_who_has_no_name_for_git(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    nobody = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "none")}
    repo = Repository(tmp_path / "repo")

    def findings(*words: str) -> list[tuple[str, str, str]]:
        done = nightjar(repo.path / "data", "doctor", "--json", *words, **nobody)
        found = [f for f in json.loads(done.stdout) if f["what"] == "project"]
        return [(f["state"], f["found"], f["remedy"]) for f in found]

    state, said, remedy = findings("--python", sys.executable)[1]
    assert (state, said) == ("warning", "git does not know who you are: it makes no commit")
    assert remedy.startswith("git config --global user.name ")
    (repo.path / "src").mkdir()
    repo.git("mv", "train.py", "src/train.py")
    repo.commit({})
    assert findings() == [
        (
            "warning",
            f"none here: {repo.path} has no train.py of its own",
            f"--repo {repo.path} --command 'python src/train.py'",
        )
    ]


def test_a_lab_without_slots_of_its_own_becomes_ready(tmp_path: Path) -> None:
    with running_lab(tmp_path / "lab", FAST) as lab:
        lab.start("--cpu", "0")

        assert lab.get("pool/list")["total"] == 0
        warning = "warning: no GPU is seen and no CPU slot is asked for: this worker serves nothing"
        lab.until(lambda: warning in lab.output(), "the warning of a worker without slots")


def test_a_port_in_use_is_refused(project: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        said, remedy = refused(tmp_path / "data", "--repo", str(project), "--port", str(port))

    assert f"port {port} is taken" in said
    assert "--port" in remedy


@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_data_directory_that_cannot_be_written_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("")

    done = nightjar(tmp_path / "lab", command, "--data", str(tmp_path / "file" / "lab"), "--port", "0")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        f"nightjar: the data directory {str(tmp_path / 'file' / 'lab')!r} cannot be used: Not a directory",
        "  -> choose another with --data",
    ]


def test_up_takes_any_free_port_where_none_is_meant_and_says_which(tmp_path: Path) -> None:
    data = tmp_path / "data"
    lab = subprocess.Popen(
        command_line("up", "--port", "0", "--data", str(data)),
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"NIGHTJAR_PORT": "1"},
    )
    assert lab.stderr is not None
    [url] = re.findall(r"ready: (http://127.0.0.1:\d+) ", lab.stderr.readline())
    ready = httpx.get(f"{url}/readyz", timeout=60)
    known = json.loads((data / "web.json").read_text())
    lab.send_signal(signal.SIGINT)
    lab.communicate(timeout=60)

    assert (ready.status_code, known["url"], lab.returncode) == (200, url, 0)
