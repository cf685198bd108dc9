"""The lines of `up` for a run that starts and ends."""

from __future__ import annotations

import httpx

from functions.kernel.process.lifecycle import Process
from state.experiments import Experiments
from tests.labs import crashed, open_tag, told, tried
from triggers.cli.up import WIDTH, begun, line


async def test_lines_of_runs_have_their_place_value_gain_seconds_and_description(
    client: httpx.AsyncClient, process: Process
) -> None:
    experiments = Experiments(process.lab)
    await open_tag(client, policy={"budgets.base_s": 60})
    await tried(client, 1.0, gpu_id="box:0", description="WIDTH 48")
    await tried(client, 0.9, result={"training_seconds": 301.2}, description="WIDTH 48 -> 96")
    await crashed(client, kind="oom")
    begins = begun(await experiments.shown("mar11-1"), "box:0")
    lines = [line(await experiments.shown(f"mar11-{nth}")) for nth in (2, 3)]
    again = await told(client, "/api/experiment/retest", experiment_id="mar11-1", train=False)
    await told(client, "/api/experiment/complete", experiment_id=again["retest_id"], val_bpb=1.002)
    noise = await experiments.spread(await experiments.get("mar11-1"))
    by_noise = [line(await experiments.shown(f"mar11-{nth}"), noise).split() for nth in (1, 2)]

    assert begins == "mar11-1   starts on box:0, budget 60 s  WIDTH 48"
    assert lines[0].split() == [
        "mar11-2",
        "keep",
        "0.900000",
        "+0.100000",
        *["301", "s", "WIDTH", "48", "->", "96"],
    ]
    assert lines[1].split()[:3] == ["mar11-3", "crash", "(oom)"]
    assert by_noise[0][:3] == ["mar11-1", "first", "1.0000"]
    assert by_noise[1][:4] == ["mar11-2", "keep", "0.9000", "+0.1000"]


async def test_what_an_agent_wrote_stays_on_its_line_and_commands_no_terminal(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    await tried(client, 1.0, description="wider\x1b]0;owned\x07\nready: http://evil.example " + "x" * 500)

    said = line(await Experiments(process.lab).shown("mar11-1"))

    assert said.isprintable()
    assert len(said) == WIDTH
