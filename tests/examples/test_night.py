"""A coding agent's whole night: a script does what program.md says, with the commands that stand in it alone."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.formats.program_document import FILES, DocumentReader, charter
from functions.kernel.process.lifecycle import Process
from state.token_values import Issued
from tests.commands import command_line
from tests.examples.standin import ROOT, git, git_env, standing_in
from tests.labs import told

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

Json = dict[str, Any]


@dataclass(frozen=True)
class Idea:
    """The agent's idea: a new value of a constant, which is not in program.md."""

    name: str
    before: str
    after: str
    category: str = "architecture"

    @property
    def text(self) -> str:
        return f"{self.name} {self.before} -> {self.after}" if self.name else "unchanged"


UNCHANGED = Idea("", "", "", "other")


class Charter:
    """The rendered files: a command of theirs is found by the route that it calls, and noted as used.

    Of commands that are in several, that of the first file counts.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        self.files: dict[str, list[str]] = {
            name: re.findall(r"^```bash\n(.*?)^```$", (folder / name).read_text(), re.M | re.S)
            for name in names
        }
        self.blocks = [block for blocks in self.files.values() for block in blocks]
        self.used: set[int] = set()

    def block(self, words: str) -> str:
        """The first block in which these words stand."""
        place = next(n for n, block in enumerate(self.blocks) if words in block)
        self.used.add(place)
        return self.blocks[place]

    def line(self, words: str) -> str:
        """The one command of a block in which these words stand."""
        commands = self.block(words).replace("\\\n", " ").splitlines()
        return next(command for command in commands if words in command)

    def unused(self, name: str) -> list[str]:
        used = {self.blocks[n] for n in self.used}
        return [block for block in self.files[name] if block not in used]


@dataclass
class CodingAgent:
    """Follows the charter to the letter; between two turns it may forget all that it does not look up."""

    charter: Charter
    clone: Path
    home: Path
    environment: dict[str, str]
    """What `nightjar agent` sets."""
    example: str = "night"
    """The tag of the examples, whose ids stand for those of the answers."""
    log: list[str] = field(default_factory=list)

    # -- commands

    async def run(self, command: str) -> list[Json]:
        """What a command prints, problem documents too."""
        child = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=self.clone,
            env=git_env() | {"HOME": str(self.home)} | self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, errors = [stream.decode() for stream in await child.communicate()]
        assert "token" not in command.lower(), command
        answers = list(documents(printed))
        assert child.returncode == 0, (command, printed, errors)
        return answers

    async def ask(self, words: str, **own: str) -> Json:
        """The answer to the command with these words, its example's ids replaced by `own`."""
        command = self.charter.line(words)
        for example, mine in own.items():
            assert f"{self.example}-{example}" in command, (example, command)
            command = command.replace(f"{self.example}-{example}", mine)
        (answer,) = await self.run(command.replace('"wait":50', '"wait":1'))  # tests have less time
        return answer

    # -- the night

    async def set_up(self) -> None:
        """Once per clone; a 409 says where the tag's base is."""
        if git(self.clone, "tag", "-l", f"{self.example}-base"):
            return
        (answer,) = await self.run(self.charter.block("experiment/setup"))
        if answer.get("status") == 409:
            base = answer["existing"]["base_commit"]
            git(self.clone, "reset", "--hard", base)
            git(self.clone, "tag", "-f", f"{self.example}-base")

    async def begin(self) -> Json:
        """Step 0: who am I, and what is open?"""
        branch = git(self.clone, "branch", "--show-current")
        assert branch == f"autoresearch/{self.example}-ada"
        brief = await self.ask("report/brief")
        for line in brief["open_experiments"]:
            await self.keep_or_reset(await self.wait(line["experiment_id"]))
        return brief

    async def single(self, ideas: Iterator[Idea]) -> None:
        """The loop, until the ideas or the budget are at an end."""
        while True:
            direction = await self.ask("search/suggest")
            await self.stand_on(direction["base_commit_sha"])
            idea = UNCHANGED if direction["should_abort"] else next(ideas, None)
            if idea is None:
                return
            best = await self.ask("experiment/best")
            parent = best["best"]["experiment_id"] if "best" in best else None
            submitted = await self.submit(idea, f'"parent_id":"{parent}"' if parent else "")
            if submitted is None:
                return
            await self.keep_or_reset(await self.wait(submitted["experiment_id"]))

    async def multi(self, ideas: Iterator[Idea]) -> None:
        """The same where the lab selects a branch for each experiment."""
        while True:
            brief = await self.begin()
            if brief["should_abort"]:
                await self.stand_on(brief["base_commit_sha"])
                submitted = await self.submit(UNCHANGED, f'"parent_id":"{brief["best"]["experiment_id"]}"')
                assert submitted is not None
                await self.wait(submitted["experiment_id"])
                continue
            if (selection := await self.select()) is None:
                return
            name = selection["selection_id"]
            await self.ask("trace/context", s1=name)
            direction = await self.ask('suggest -d \'{"tag":"' + self.example + '","selection_id"', s1=name)
            assert direction["base_commit_sha"] == selection["base_commit_sha"]
            await self.stand_on(selection["base_commit_sha"], selection["base_experiment_id"])
            idea = next(ideas, None)
            if idea is None:
                released = await self.ask("trace/release", s1=name)
                assert released["status"] == "released"
                return
            if (submitted := await self.submit(idea, f'"selection_id":"{name}"')) is None:
                return
            await self.wait(submitted["experiment_id"])

    async def select(self) -> Json | None:
        """A selection; None where the budget is spent."""
        while (found := await self.ask("trace/select"))["status"] != "selected":
            if found["reason"] == "budget":
                self.log.append("budget")
                return None
        return found

    async def try_at_once(self, idea: Idea) -> None:
        """The loop's one command, for an idea that is kept."""
        edit = self.charter.line("perl -pi").replace(
            "WIDTH = 48/WIDTH = 96", f"{idea.name} = {idea.before}/{idea.name} = {idea.after}"
        )
        await self.run(f"{edit}\n{self.charter.line('nightjar try')}")

    async def submit(self, idea: Idea, made_from: str) -> Json | None:
        """Steps 2 and 3; None where the budget is spent."""
        if idea is not UNCHANGED:
            edit = self.charter.block("perl -pi").replace("WIDTH 48 -> 96", idea.text)
            edit = edit.replace(
                "WIDTH = 48/WIDTH = 96", f"{idea.name} = {idea.before}/{idea.name} = {idea.after}"
            )
            await self.run(edit)
        noted = self.charter.block(".git/idea.json <<EOF")
        for example, mine in {
            '"parent_id":"' + self.example + '-1",': made_from + "," if made_from else "",
            "WIDTH 48 -> 96": idea.text,
            "architecture": idea.category,
        }.items():
            assert example in noted
            noted = noted.replace(example, mine)
        await self.run(noted)
        lost, answer = await self.ask("experiment/submit"), await self.ask("experiment/submit")
        assert lost.get("experiment_id") == answer.get(
            "experiment_id"
        )  # under the same key nothing happens twice
        if answer.get("code") == "budget_exhausted":
            self.log.append("budget")
            return None
        assert "experiment_id" in answer, answer
        self.log.append(f"{answer['experiment_id']} {idea.text}")
        return answer

    async def wait(self, experiment_id: str) -> Json:
        while not (outcome := await self.ask("/wait?timeout=50", **{"2": experiment_id}))["finished"]:
            pass
        return outcome

    async def keep_or_reset(self, outcome: Json) -> None:
        """Step 5."""
        self.log.append(f"{outcome['experiment_id']} {outcome['status']}")
        if outcome["action"] == "git_reset":
            await self.stand_on(outcome["base_commit_sha"])

    async def stand_on(self, commit: str, experiment_id: str | None = None) -> None:
        """Reset to a commit; one that is another agent's is rebuilt from its patch."""
        if git(self.clone, "rev-parse", "HEAD") == commit:
            return
        try:
            git(self.clone, "reset", "--hard", commit)
        except AssertionError:
            rebuild = self.charter.block("git apply --index")
            first = "" if experiment_id else self.charter.line("experiment/best")
            if experiment_id is None:
                (answer,) = await self.run(first)
                experiment_id = answer["best"]["experiment_id"]
            commands = "\n".join(line for line in rebuild.splitlines() if "experiment/best" not in line)
            assert await self.run(commands.replace(f"{self.example}-2", str(experiment_id))) == []
            self.log.append(f"rebuilt {experiment_id}")


def documents(printed: str) -> Iterator[Json]:
    """JSON objects one after the other, as several curls print them; other lines are git's."""
    decoder, rest = json.JSONDecoder(), printed
    while (start := rest.find("{")) >= 0:
        found, length = decoder.raw_decode(rest[start:])
        yield found
        rest = rest[start + length :]


@dataclass
class Machine:
    """What the stand-in measures; it may be broken for all runs."""

    broken_for: int = 0
    runs: int = 0

    def __call__(self, constants: Mapping[str, object]) -> float:
        self.runs += 1
        if self.broken_for:
            self.broken_for -= 1
            raise RuntimeError("CUDA driver error")
        width, depth = constants["WIDTH"], constants["DEPTH"]
        assert isinstance(width, int)
        assert isinstance(depth, int)
        if depth > 8:
            raise RuntimeError("out of memory")
        return 2.9 - width / 500 - depth / 1000 - (0.2 if constants["ACTIVATION"] == "gelu" else 0.0)


@pytest.fixture
async def tokens(process: Process) -> dict[str, Issued]:
    operator = await process.tokens.issue(name="olga", role="operator", issued_by="local")
    ada = await process.tokens.issue(name="ada", role="agent", tags=["night"], issued_by="olga")
    return {"olga": operator, "ada": ada}


@pytest.fixture
async def http(web: str, tokens: dict[str, Issued]) -> AsyncIterator[httpx.AsyncClient]:
    """The lab as its operator calls it."""
    operator = {"authorization": f"Bearer {tokens['olga'].text}"}
    async with httpx.AsyncClient(base_url=web, headers=operator, timeout=60) as client:
        yield client


@pytest.fixture
async def machine(
    web: str, process: Process, project: Path, tokens: dict[str, Issued]
) -> AsyncIterator[Machine]:
    """What trains in the lab."""
    measured = Machine()
    async with standing_in(process, web, project, measured, gpu="lab:0", bearer=tokens["olga"].text):
        yield measured


@pytest.fixture
def agent(web: str, tokens: dict[str, Issued], project: Path, tmp_path: Path) -> Callable[..., CodingAgent]:
    """An agent in a clone of its own, with the files that it was handed."""
    if shutil.which("curl") is None:
        pytest.skip("curl is missing")

    def made(*names: str) -> CodingAgent:
        clone = tmp_path / "ada"
        git(tmp_path, "clone", "--quiet", str(project), str(clone))
        handed = clone / ".nightjar"
        handed.mkdir()
        (handed / "auth").write_text(f"Authorization: Bearer {tokens['ada'].text}\n")
        launcher = tmp_path / "nightjar"
        launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command_line())} "$@"\n')
        launcher.chmod(0o755)
        reader = DocumentReader(web, "night", "ada", str(launcher), str(handed / "auth"))
        for name in FILES:
            (handed / name).write_text(charter((ROOT / name).read_text(), reader))
        environment = {"NIGHTJAR_URL": web, "NIGHTJAR_TAG": "night", "NIGHTJAR_NAME": "ada"}
        environment["NIGHTJAR_TOKEN"] = tokens["ada"].text
        return CodingAgent(Charter(handed, *names), clone, tmp_path, environment)

    return made


@pytest.mark.parametrize(
    "on_abort",
    ["advise", pytest.param("block", marks=pytest.mark.long)],  # several branches block, too
)
async def test_a_night_in_a_tag_with_one_branch_goes_by_the_letter(
    http: httpx.AsyncClient,
    machine: Machine,
    project: Path,
    agent: Callable[..., CodingAgent],
    on_abort: str,
) -> None:
    ada = agent("program.md")

    await ada.set_up()
    await told(http, "/api/search/set-policy", tag="night", policy={"on_abort": on_abort})
    await ada.begin()
    await ada.single(iter([Idea("WIDTH", "48", "96"), Idea("DEPTH", "1", "99")]))
    await better_idea_of_another(http, project)
    await ada.begin()  # with nothing in its mind
    await ada.single(iter([Idea("DEPTH", "1", "2")]))
    machine.broken_for = 4
    await ada.single(iter([Idea("DEPTH", "2", n) for n in ("3", "4", "5", "6")]))
    await told(http, "/api/tag/budget", tag="night", runs=machine.runs + 1)
    await ada.single(iter([Idea("DEPTH", "6", "7"), Idea("DEPTH", "7", "8")]))
    await told(http, "/api/tag/budget", tag="night", runs=None)
    await ada.try_at_once(Idea("DEPTH", "7", "8"))
    for route in ("experiment/history", "near-misses", "report/diff"):
        await ada.ask(route)

    assert ada.log == [
        "night-2 WIDTH 48 -> 96",
        "night-2 keep",
        "night-3 DEPTH 1 -> 99",
        "night-3 crash",
        "rebuilt night-4",
        "night-5 DEPTH 1 -> 2",
        "night-5 keep",
        "night-6 DEPTH 2 -> 3",
        "night-6 crash",
        "night-7 DEPTH 2 -> 4",
        "night-7 crash",
        "night-8 DEPTH 2 -> 5",
        "night-8 crash",
        "night-9 unchanged",
        "night-9 crash",
        "night-10 unchanged",
        "night-10 discard",
        "night-11 DEPTH 2 -> 6",
        "night-11 keep",
        "night-12 DEPTH 6 -> 7",
        "night-12 keep",
        "budget",
    ]
    assert ada.charter.unused("program.md") == []
    best = await told(http, "/api/experiment/best", tag="night")
    assert best["best"]["commit_sha"] == git(ada.clone, "rev-parse", "HEAD")
    assert "DEPTH = 8" in git(ada.clone, "show", "HEAD:train.py")


async def test_a_night_in_a_tag_with_several_branches_goes_by_the_letter(
    http: httpx.AsyncClient, machine: Machine, project: Path, agent: Callable[..., CodingAgent]
) -> None:
    ada = agent("program-traces.md", "program.md")
    shared = git(project, "rev-parse", "HEAD")
    branches = {"traces.mode": "multi", "traces.target_traces": 2, "on_abort": "block"}
    await told(http, "/api/experiment/setup", tag="night", base_commit=shared, policy=branches)

    await ada.set_up()
    await ada.multi(iter([Idea("WIDTH", "48", "96"), Idea("DEPTH", "1", "2")]))
    await ada.multi(iter([Idea("LEARNING_RATE", "0.001", "0.002")]))
    await better_idea_of_another(http, project)
    await ada.multi(iter([Idea("INIT_SCALE", "1.0", "0.9")]))
    machine.broken_for = 4
    await ada.multi(iter([Idea("BETA1", "0.9", n) for n in ("0.8", "0.7", "0.6", "0.5")]))
    await told(http, "/api/tag/budget", tag="night", runs=machine.runs + 1)
    await ada.multi(iter([Idea("BETA2", "0.999", "0.99"), Idea("BETA2", "0.999", "0.98")]))

    assert ada.log == [
        "night-2 WIDTH 48 -> 96",
        "night-3 DEPTH 1 -> 2",
        "night-4 LEARNING_RATE 0.001 -> 0.002",
        "night-6 INIT_SCALE 1.0 -> 0.9",
        "rebuilt night-5",
        "night-7 BETA1 0.9 -> 0.8",
        "rebuilt night-5",
        "night-8 BETA1 0.9 -> 0.7",
        "night-9 BETA1 0.9 -> 0.6",
        "rebuilt night-5",
        "night-10 unchanged",
        "rebuilt night-5",
        "night-11 unchanged",
        "rebuilt night-5",
        "night-12 BETA1 0.9 -> 0.5",
        "rebuilt night-5",
        "night-13 BETA2 0.999 -> 0.99",
        "budget",
    ]
    assert ada.charter.unused("program-traces.md") == []


async def better_idea_of_another(http: httpx.AsyncClient, project: Path) -> None:
    """A keep that this agent's clone does not know."""
    clone = project.parent / "other"
    git(project.parent, "clone", "--quiet", str(project), str(clone))
    script = clone / "train.py"
    script.write_text(script.read_text().replace("WIDTH = 48", "WIDTH = 96").replace('"tanh"', '"gelu"'))
    git(clone, "commit", "-qam", "gelu")
    body = {
        "tag": "night",
        "agent": "grace",
        "hypothesis": "gelu is smoother",
        "category": "activation",
        "diff_summary": "gelu",
        "commit_sha": git(clone, "rev-parse", "HEAD"),
        "diff": git(clone, "diff", "--binary", "origin/main", "HEAD") + "\n",
    }
    submitted = await told(http, "/api/experiment/submit", **body)
    outcome = (await http.get(submitted["wait_url"] + "?until=finished&timeout=50")).json()
    assert outcome["status"] == "keep", outcome
