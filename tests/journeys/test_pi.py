"""A lab with a language model: `up` starts the process of its lane, and it may be killed in the middle."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.functions.pi.test_programs_by_models import SAID, WRITTEN
from tests.journeys.running import RunningLab, running_lab
from tests.workers.author.provider import KEY, Act, Silence, Stage


@contextmanager
def stage_of(*acts: Act) -> Iterator[Stage]:
    """A provider in a thread of its own."""
    stage, loop, over = Stage(*acts), asyncio.new_event_loop(), asyncio.Event()
    begun = threading.Event()

    async def play() -> None:
        async with stage.open():
            begun.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(play()))
    thread.start()
    begun.wait()
    try:
        yield stage
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def versions(lab: RunningLab) -> list[str]:
    return [v["author"] for v in lab.post("program/list", tag="t")["versions"]]


def test_a_model_writes_the_program_also_after_a_kill_and_a_lab_ends_while_it_does_not_answer(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        stage = stack.enter_context(stage_of(WRITTEN, Silence(), WRITTEN, Silence()))
        keys = {"ANTHROPIC_API_KEY": KEY, SAID.base_url: SAID.at(stage.url)}
        # the templates write once no process with a model was heard of for so long: a restart takes less
        lab = stack.enter_context(running_lab(tmp_path, **keys))
        lab.start()
        lab.setup()
        assert KEY in lab.process("workers.pi").environ().values()
        supervisor = lab.process("workers.supervisor")
        assert KEY not in supervisor.environ().values()
        lab.post("program/write", tag="t")
        lab.until(lambda: len(versions(lab)) == 1, "the model has written version 1")

        lab.post("program/write", tag="t")
        lab.until(lambda: len(stage.received) == 2, "the model is asked for version 2")
        lab.process("workers.pi").send_signal(signal.SIGKILL)
        lab.until(lambda: len(versions(lab)) == 2, "version 2 is written after all")

        assert len(stage.received) == 3
        assert all(author.startswith("anthropic") for author in versions(lab))
        lab.until(
            lambda: counted(lab, kind="ProgramUpdate", outcome="written", provider="anthropic") >= 1,
            "/metrics shows that the model has written",
        )

        lab.post("program/write", tag="t")
        lab.until(lambda: len(stage.received) == 4, "the model is asked for version 3")

        assert lab.stop() == 0
        assert "killed" not in lab.output()


def counted(lab: RunningLab, **labels: str) -> float:
    """How often a model was asked, as /metrics shows it."""
    families = text_string_to_metric_families(lab.http.get("/metrics").text)
    samples = [s for family in families for s in family.samples if s.name == "nightjar_author_calls_total"]
    return sum(s.value for s in samples if labels.items() <= s.labels.items())
