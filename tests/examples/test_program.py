"""program.md cannot lie: every command in it is run, in order, as an agent would run it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.formats.program_document import FILES, DocumentReader, charter
from functions.kernel.process.lifecycle import Process
from tests.examples.standin import ROOT, git, git_env, standing_in
from tests.labs import told

PROGRAM = (ROOT / FILES[0]).read_text()
WHOLE = "".join((ROOT / name).read_text() for name in FILES)
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRY = "./nightjar try "
"""Start of the one command that replaces the steps by curl."""
BLOCKS = [block for block in BLOCK.findall(WHOLE) if not block.startswith(TRY)]
START, END = "<!-- NIGHTJAR_MUTABLE_START -->", "<!-- NIGHTJAR_MUTABLE_END -->"

# Refusals end curl with an error, and every status is told on standard error.
CURLRC = 'fail-with-body\nshow-error\nwrite-out = "\\n%{stderr}HTTP %{http_code} %{url}\\n"\n'


def test_it_names_its_parts_shows_the_one_command_first_and_has_no_block_that_is_not_run_here() -> None:
    loop = PROGRAM.partition("## The loop")[2]
    assert all(f"`{name}`" in PROGRAM for name in FILES[1:])
    assert 0 < loop.index(TRY) < loop.index("curl")
    assert WHOLE.count("```") == 2 * (len(BLOCKS) + 1)
    assert len(BLOCKS) >= 10


def test_it_is_made_out_to_one_agent() -> None:
    reader = DocumentReader(
        "https://lab.example", "jul4", "ada", "/opt/night jar/nightjar", "/home/a b/.nightjar/auth"
    )

    made_out = "".join(charter((ROOT / name).read_text(), reader) for name in FILES)

    assert not re.search(r"mar11|alice|127\.0\.0\.1|\./nightjar", made_out)
    assert "\n'/opt/night jar/nightjar' try \"The model is" in made_out
    calls = made_out.count("curl -s ")
    assert calls == WHOLE.count("curl -s ") > 15
    assert made_out.count("curl -s -H @'/home/a b/.nightjar/auth' ") == calls


def test_no_command_has_a_token_in_its_words() -> None:
    assert "Bearer" not in "".join(BLOCKS)


@pytest.mark.process
@pytest.mark.usefixtures("curl")
async def test_every_command_succeeds_in_the_order_given(
    web: str, process: Process, project: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "alice"
    git(tmp_path, "clone", "--quiet", str(project), str(clone))
    (tmp_path / ".curlrc").write_text(CURLRC)
    answers: list[dict[str, Any]] = []
    async with httpx.AsyncClient(base_url=web, timeout=60) as http:
        shown = [(await http.get(f"/{name}?tag=mar11&name=alice")).text for name in FILES]
    blocks = [block for block in BLOCK.findall("".join(shown)) if not block.startswith(TRY)]

    async with standing_in(process, web, project, wider_is_better, gpu="lab:0"):
        for block in blocks:
            answers += await run(block, clone, home=tmp_path)

    outcomes = {a["experiment_id"]: (a["status"], a["action"]) for a in answers if a.get("action")}
    assert outcomes == {
        "mar11-2": ("keep", "keep_commit"),
        "mar11-3": ("discard", "git_reset"),
        "mar11-4": ("crash", "git_reset"),
    }
    (lease,) = [a for a in answers if "acquired" in a]
    (alive,) = [a for a in answers if "ok" in a]
    assert (lease["gpu_id"], lease["fence"], alive["fence"]) == ("box:0", 3, 3)
    assert [a["experiment_id"] for a in answers if "duplicate_of" in a] == [f"mar11-{n}" for n in (2, 3, 4)]
    async with httpx.AsyncClient(base_url=web, timeout=60) as http:
        baseline = (await http.get("/api/experiment/mar11-1")).json()["experiment"]
    assert (baseline["baseline"], baseline["status"]) == (True, "keep")
    assert len(blocks) == len(BLOCKS)
    assert "WIDTH = 96" in git(clone, "show", "HEAD:train.py")
    assert git(clone, "rev-parse", "HEAD~1") == git(clone, "rev-parse", "mar11-base")


@pytest.mark.process
@pytest.mark.usefixtures("curl")
async def test_a_worker_sends_every_request_of_its_program_in_the_order_given(
    web: str, process: Process, tmp_path: Path
) -> None:
    async with httpx.AsyncClient(base_url=web, timeout=60) as http:
        joined = await told(http, "/register", worker_id="h100-3", gpu_type="H100", baseline_bpb=2.7)
        program = (await http.get("/program.md?name=h100-3")).text
    (tmp_path / ".curlrc").write_text(CURLRC)
    (tmp_path / "worker.header").write_text(f"X-Worker-Token: {joined['worker_token']}\n")
    blocks = BLOCK.findall(program)

    given, ticked, result, synced = [a for b in blocks for a in await run(b, tmp_path, home=tmp_path)]

    assert (given["exp_id"], ticked, synced["experiment_count"]) == ("swarm-1", {}, 1)
    assert result == {"ok": True, "total_experiments": 1}
    assert program.count("```") == 2 * len(blocks)


async def run(block: str, clone: Path, home: Path, **environment: str) -> list[dict[str, Any]]:
    """Run one block as a script; answers the JSON that it has printed."""
    child = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", block),
        cwd=clone,
        env=git_env() | {"HOME": str(home), "CURL_HOME": str(home)} | environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = [stream.decode() for stream in await child.communicate()]
    assert child.returncode == 0, (block, printed, errors)
    statuses = re.findall(r"^HTTP (\d+)", errors, re.MULTILINE)
    assert len(statuses) == len(re.findall(r"\bcurl\b", block)), errors
    assert set(statuses) <= {"200", "202"}, errors
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def wider_is_better(constants: Mapping[str, object]) -> float:
    width = constants["WIDTH"]
    assert isinstance(width, int)
    return 2.9 - width / 500
