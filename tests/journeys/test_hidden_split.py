"""A tag with a hidden split through a whole lab: its number is in nothing that an agent or a worker can read."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from functions.kernel.table import table
from tests.commands import nightjar
from tests.journeys.running import RunningLab, running_lab
from tests.workers.tiers import needs

NUMBER = 0.7219183645
DIGITS = "0.72191836"
EVALUATOR = """
import struct, time
from nightjar_evaluator import Predictor, measure_hidden

def asked(word):
    with Predictor("train.py", "--predict") as ask:
        return ask(word, (1,))[0]

def hidden(split, folder):
    gain = asked(b"hidden") - 1.0
    return float((folder / "hidden.txt").read_text()) + gain

if __name__ == "__main__":
    print(f"val_bpb: {asked(b'visible')}", flush=True)
    measure_hidden(hidden)
"""
TRAIN = """
import sys, time
VALUE = 1.0
HIDDEN = 0.0
if "--predict" in sys.argv:
    import array
    from nightjar_predict import serve
    serve(lambda question: array.array("d", [VALUE if bytes(question) == b"visible" else 1.0 + HIDDEN]))
    raise SystemExit
print("val_bpb: 0.3")
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    tier, folder = needs("landlock"), tmp_path_factory.mktemp("lab")
    apart = tmp_path_factory.mktemp("hidden")
    (apart / "hidden.txt").write_text(repr(NUMBER))
    with running_lab(folder) as found:
        found.base = found.commit({"prepare.py": EVALUATOR, "train.py": TRAIN})
        found.start("--isolation", tier, "--hidden-data", str(apart))
        yield found


SCORED = {"evaluator_command": "python prepare.py", "hidden_split": True}


def tried(lab: RunningLab, tag: str, value: float, hidden: float) -> str:
    return lab.submit(tag, config_delta={"VALUE": value, "HIDDEN": hidden})


def test_only_what_holds_on_the_hidden_split_is_kept_and_its_number_is_nowhere(lab: RunningLab) -> None:
    lab.setup("judged", SCORED)
    lab.until_status(tried(lab, "judged", 1.0, 0.0), "keep")

    worse = lab.until_status(tried(lab, "judged", 0.9, 0.1), "discard")["experiment"]
    better = lab.until_status(tried(lab, "judged", 0.9, -0.1), "keep")["experiment"]

    assert (worse["hidden_refused"], better["hidden_refused"]) == (True, False)
    lab.until_followed()
    lab.until_idle()
    lab.post("token/issue", name="root", role="operator")
    issued = {
        role: lab.post("token/issue", name=f"{role}-1", role=role)["token"] for role in ("agent", "worker")
    }
    numbers = (DIGITS, "0.82191836", "0.62191836")
    for token in issued.values():
        for place, text in answers(lab, token):
            assert not any(number in text for number in numbers), place
    file = lab.data.parent / "lab.nightjar"
    nightjar(lab.data, "backup", str(file))
    for found in (each for each in file.parent.rglob("*") if each.is_file() and not each.is_symlink()):
        if "redis" in str(found.relative_to(file.parent)):  # the lab's own database; no run reads it
            continue
        raw = found.read_bytes()
        text = (gzip.decompress(raw) if found == file else raw).decode("latin-1")
        assert not any(number in text for number in numbers), found
    night = nightjar(lab.data, "report", "judged", "--shrinkage")
    assert "hidden split: 0% of the visible gain is missing there (0.1 visible, 0.1 hidden" in night.stderr


def answers(lab: RunningLab, token: str) -> Iterator[tuple[str, str]]:
    """Answers to this token of every function that reads, of the event stream and of the fixed routes."""
    named = {
        "tag": "judged",
        "experiment_id": "judged-2",
        "experiment_a": "judged-1",
        "experiment_b": "judged-2",
    }
    with httpx.Client(
        base_url=lab.http.base_url, headers={"Authorization": f"Bearer {token}"}, timeout=60.0
    ) as http:
        for function in table().values():
            if function.writes and function.name != "report::brief":
                continue
            fields = {name: value for name, value in named.items() if name in function.request.model_fields}
            for door in (door for door in function.doors if door.method == "POST" and "{" not in door.path):
                answer = http.post(door.path, json=fields)
                yield function.name, answer.text
        for path in ("experiment/judged-2", "experiment/judged-2/wait?timeout=0", "experiment/judged-2/log"):
            yield path, http.get(f"/api/{path}").text
        for path in ("/metrics", "/openapi.json", "/", "/program.md"):
            yield path, http.get(path).text
        with http.stream("GET", "/api/events?since=0", timeout=3.0) as stream:
            yield "events", "\n".join(until_silent(stream))


def until_silent(stream: httpx.Response) -> Iterator[str]:
    with suppress(httpx.ReadTimeout):
        yield from stream.iter_lines()


def test_a_worker_killed_between_scoring_and_report_loses_and_doubles_nothing(lab: RunningLab) -> None:
    lab.setup("killed", SCORED)
    lab.until_status(tried(lab, "killed", 1.0, 0.0), "keep")
    lab.until_idle()
    name = lab.submit("killed", config_delta={"VALUE": 0.9, "HIDDEN": -0.1})
    lab.process("score.py", "--evaluate")
    web = lab.process("-m triggers.web")
    web.send_signal(signal.SIGSTOP)  # the lab takes no report
    spool = lab.data / "spool"

    def spooled() -> list[Path]:
        return [file for file in spool.rglob("*.json") if file.name.startswith(f"{name}-")]

    [kept] = lab.until(spooled, "the result waits on the disk")
    assert json.loads(kept.read_text())["request"]["hidden"] == pytest.approx(NUMBER - 0.1)
    assert kept.stat().st_mode & 0o077 == 0
    for process in lab.processes("workers."):
        process.kill()
    with suppress(psutil.NoSuchProcess):  # it was silent for so long that another has taken its place
        web.send_signal(signal.SIGCONT)

    e = lab.until_status(name, "keep")["experiment"]

    lab.until_idle()
    assert e["hidden_refused"] is False
    lab.until(lambda: not spooled(), "the result is handed in")
    events = lab.post("event/list", tag="killed", limit=500)["events"]
    ends = [each for each in events if each["type"] == "experiment.finished" and each["subject"] == name]
    assert len(ends) == 1
    assert lab.post("lab/audit")["violations"] == []
