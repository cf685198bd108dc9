"""program-worker.md cannot lie: a worker sends every request in it, in order, as the lab made it out to it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from tests.examples.test_program import BLOCK, CURLRC, run
from tests.labs import told


@pytest.mark.process
@pytest.mark.usefixtures("curl")
async def test_every_command_succeeds_in_the_order_given(web: str, process: Process, tmp_path: Path) -> None:
    async with httpx.AsyncClient(base_url=web, timeout=60) as http:
        joined = await told(http, "/register", worker_id="h100-3", gpu_type="H100", baseline_bpb=2.7)
        program = (await http.get("/program.md?name=h100-3")).text
    (tmp_path / ".curlrc").write_text(CURLRC)
    (tmp_path / "worker.header").write_text(f"X-Worker-Token: {joined['worker_token']}\n")
    blocks = BLOCK.findall(program)

    answers = [answer for block in blocks for answer in await run(block, tmp_path, home=tmp_path)]

    given, ticked, result, synced = answers
    assert given["exp_id"] == "swarm-1"
    assert ticked == {}
    assert result == {"ok": True, "total_experiments": 1}
    assert synced["experiment_count"] == 1
    assert program.count("```") == 2 * len(blocks)
