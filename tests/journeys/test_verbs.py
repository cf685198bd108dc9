"""The commands for a person's first questions: ls, best, show, diff, report, take, stop, retest."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import nightjar, printed
from tests.journeys.running import RunningLab, git, running_lab
from triggers.cli.looking import SKIPPED, added

SLOW = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A baseline, a keep, a discard and a crash."""
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        found.start()
        found.setup()
        for value, status in (("1.0", "keep"), ("0.5", "keep"), ("0.75", "discard"), ("no", "crash")):
            script = f"print('---')\nprint('val_bpb: {value}')\n"
            commit = found.commit({"train.py": script}) if value != "1.0" else found.base
            patch = git(found.repo, "diff", "--binary", found.base, commit) + "\n"
            fields = {"commit_sha": commit, "diff": patch, "diff_summary": f"value {value}"}
            found.until_status(found.submit(**fields), status)
        yield found


def test_ls_lists_the_newest_first_with_what_came_of_each(lab: RunningLab) -> None:
    lines = [line.split() for line in printed(lab.data, "ls").splitlines() if line.strip().startswith("t-")][
        -4:
    ]

    assert [words[0] for words in lines] == ["t-4", "t-3", "t-2", "t-1"]
    assert [words[1] for words in lines[:3]] == ["crash", "discard", "keep"]
    assert lines[1][2:] == ["0.750000", "-0.250000", "value", "0.75"]


def test_up_prints_a_line_for_each_run_that_starts_and_ends(lab: RunningLab) -> None:
    def lines() -> list[list[str]]:
        return [line.split() for line in lab.output().splitlines() if line.startswith("t-")]

    def told() -> list[list[str]]:
        return [words for words in lines() if words[1] != "starts"]

    lab.until(lambda: len(told()) >= 4, "a line for each")
    begun = lines()[:8:2]
    assert [words[:2] for words in begun] == [[f"t-{nth}", "starts"] for nth in (1, 2, 3, 4)]
    assert begun[1][4:] == ["budget", "20", "s", "value", "0.5"]

    assert [words[:2] for words in told()[:4]] == [
        ["t-1", "first"],
        ["t-2", "keep"],
        ["t-3", "discard"],
        ["t-4", "crash"],
    ]
    number, status, value, gain, seconds, unit, *description = told()[1]
    assert (number, status, value, gain) == ("t-2", "keep", "0.500000", "+0.500000")
    assert (float(seconds) >= 0, unit, description) == (True, "s", ["value", "0.5"])
    assert "(no_metrics)" in told()[3]


def test_ls_best_and_show_tell_of_experiments_as_text_and_as_json(lab: RunningLab) -> None:
    some = ("ls", "t", "--status", "keep", "-n", "1")
    assert [run["experiment_id"] for run in json.loads(printed(lab.data, *some, "--json"))] == ["t-2"]
    assert "1 of 2 experiments" in printed(lab.data, *some)
    assert "t-2  0.500000" in printed(lab.data, "best")
    assert json.loads(printed(lab.data, "best", "t", "--json"))["best"]["experiment_id"] == "t-2"
    shown = printed(lab.data, "show", "t-3")
    for words in ("t-3  discard", "0.750000, -0.250000 beside t-2", "val_bpb: 0.75"):
        assert words in shown
    assert "no_metrics" in printed(lab.data, "show", "t-4")
    assert json.loads(printed(lab.data, "show", "t-3", "--json"))["experiment"]["number"] == 3


def test_diff_prints_a_patch_that_git_applies(
    lab: RunningLab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clone = tmp_path_factory.mktemp("clone") / "repo"
    git(lab.repo, "worktree", "add", "--quiet", "--detach", str(clone), lab.base)

    patch = printed(lab.data, "diff", "t-3")
    subprocess.run(["git", "-C", str(clone), "apply", "-"], input=patch, text=True, check=True)

    assert "0.75" in (clone / "train.py").read_text()
    between = printed(lab.data, "diff", "t-2", "t-3")
    assert "\n-print('val_bpb: 0.5')" in between
    assert "\n+print('val_bpb: 0.75')" in between


def test_the_report_is_written_with_its_plot(lab: RunningLab, tmp_path: Path) -> None:
    file = tmp_path / "night.md"

    assert "# t: val_bpb 1 -> 0.5" in printed(lab.data, "report")
    printed(lab.data, "report", "t", "-o", str(file))

    assert "](night.png)" in file.read_text()
    assert (tmp_path / "night.png").read_bytes().startswith(b"\x89PNG")


def test_take_makes_a_branch_at_the_agent_s_own_commit(lab: RunningLab) -> None:
    commit = json.loads(printed(lab.data, "show", "t-2", "--json"))["experiment"]["commit_sha"]

    told = printed(lab.data, "take", "t-2", "--repo", str(lab.repo))

    assert "git switch nightjar/t-2" in told
    assert git(lab.repo, "rev-parse", "nightjar/t-2") == git(lab.repo, "rev-parse", commit)
    again = nightjar(lab.data, "take", "t-2", "--repo", str(lab.repo))
    assert "name another with --branch" in again.stderr


def test_take_rebuilds_the_code_where_the_commit_is_not_there(lab: RunningLab, tmp_path: Path) -> None:
    outside = nightjar(lab.data, "take", "t-2", "--repo", str(tmp_path))
    git(tmp_path, "init", "--quiet")
    empty = nightjar(lab.data, "take", "t-2", "--repo", str(tmp_path))
    git(tmp_path, "fetch", "--quiet", str(lab.repo), lab.base)
    git(tmp_path, "switch", "--quiet", "--detach", lab.base)

    printed(lab.data, "take", "t-3", "--repo", str(tmp_path), "--branch", "mine")

    assert "is in no git repository" in outside.stderr
    assert (empty.returncode, "nor the tag's base commit" in empty.stderr) == (1, True)
    assert "0.75" in git(tmp_path, "show", "mine:train.py")
    assert git(tmp_path, "rev-parse", "mine^") == lab.base
    assert git(tmp_path, "status", "--porcelain") == ""
    assert "Experiment: t-3" in git(tmp_path, "log", "-1", "--format=%B", "mine")


def test_take_sets_the_constants_that_the_run_was_given(lab: RunningLab) -> None:
    commit = lab.commit({"train.py": "WIDTH = 4\nprint(f'val_bpb: {WIDTH}')\n"})
    wide = lab.submit(commit_sha=commit, config_delta={"WIDTH": 8})
    lab.until_status(wide, "discard")

    printed(lab.data, "take", wide, "--repo", str(lab.repo))

    assert "WIDTH = 8" in git(lab.repo, "show", f"nightjar/{wide}:train.py")
    assert git(lab.repo, "rev-parse", f"nightjar/{wide}^") == git(lab.repo, "rev-parse", commit)


LINES = """
import time
for n in range(40):
    print("line", n, flush=True)
    time.sleep(0.05)
print("---\\nval_bpb: 2.0")
"""


def test_logs_are_printed_and_followed_to_the_end(lab: RunningLab) -> None:
    assert printed(lab.data, "logs", "t-3").splitlines()[-1] == "val_bpb: 0.75"
    talks = lab.submit(commit_sha=lab.commit({"train.py": LINES}))

    done = nightjar(lab.data, "logs", "-f", talks)

    assert done.returncode == 3, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("line")] == [
        f"line {n}" for n in range(40)
    ]
    assert f"{talks}: discard" in done.stderr


@pytest.mark.parametrize(
    ("shown", "lines", "news"),
    [
        ([], ["a", "b"], ["a", "b"]),
        (["a", "b"], ["a", "b", "c"], ["c"]),
        (["a", "b", "c"], ["b", "c", "d", "e"], ["d", "e"]),
        (["a", "step 1"], ["a", "step 2"], ["step 2"]),
        (["step 1"], ["step 2"], ["step 2"]),
        (["a", "b"], ["x", "y"], [SKIPPED, "x", "y"]),
        (["a", "b"], ["a", "b"], []),
    ],
    ids=["first", "longer", "moved on", "written over", "only progress", "skipped", "same"],
)
def test_what_follows_in_a_log_is_what_was_not_shown(
    shown: list[str], lines: list[str], news: list[str]
) -> None:
    assert [*added(shown, lines)] == news


def test_stop_and_retest(lab: RunningLab) -> None:
    slow = lab.submit(commit_sha=lab.commit({"train.py": SLOW}))
    lab.until(lambda: lab.status(slow) == "running", "it runs")

    assert "its worker ends the run" in printed(lab.data, "stop", slow, "--reason", "enough")
    assert lab.until_status(slow, "stopped")["experiment"]["stop_reason"] == "enough"
    assert printed(lab.data, "retest", "t-3").startswith("t-3.2: queued")
    lab.until_status("t-3.2", "measured")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ls", "nix"), "the lab has "),
        (("ls", "--status", "kep"), "'keep'"),
        (("shw", "t-3"), "did you mean show"),
        (("call", "report::sumary"), "did you mean report::summary"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_what_is_mistyped_is_told_what_there_is(lab: RunningLab, words: tuple[str, ...], told: str) -> None:
    done = nightjar(lab.data, *words)

    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
