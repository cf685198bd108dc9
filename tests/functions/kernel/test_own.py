"""Functions of your own: a file outside Nightjar in the table, over HTTP and MCP, in policies, and its mistakes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from functions.branches.rules import schedulers
from functions.kernel import own, schemas
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.table import OWN, table
from functions.lab.status import _rows
from functions.swarm.rules import sampling
from state.errors import Conflict, Invalid
from state.events import CATALOGUE
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import open_tag, refused, registered, told
from triggers.events import bindings
from triggers.mcp_tools import tools_of
from triggers.openapi import openapi

MINE = """
from typing import Optional

from nightjar import Call, Every, Http, On, Own, Request, Response, function

EVENTS = {"mine.alarm": "something was noted"}

class Note(Request):
    name: str = "x"
    text: str = ""

class Noted(Response):
    text: str
    '''What stands there.'''

@function("mine::note", role="agent", writes=True, mcp=True)
async def note(request: Note, own: Own) -> Noted:
    \"\"\"Keep a text.\"\"\"
    await own.set(request.name, request.text)
    await own.emit("mine.alarm", request.name, {"text": request.text})
    return Noted(text=request.text)

@function("mine::read", Http("GET", "/api/mine/{name}"), On("mine.alarm", max_deliveries=1), role="viewer")
async def read(request: Note, own: Own, call: Call) -> Noted:
    if request.name == "exit":
        raise SystemExit(3)
    tags = await call.invoke("report::tags", {})
    return Noted(text=f"{await own.get(request.name, 'none')} in {len(tags['tags'])}")

@function("mine::forget", role="viewer")
async def forget(request: Note) -> Noted:
    return {"text": "x"} if request.text else None

@function("mine::may", role="viewer")
async def may(request: Note) -> Optional[Noted]:
    return None

@function("mine::drop", role="operator", writes=True)
async def drop(request: Note, own: Own) -> None:
    await own.delete(request.name)
"""
RULES = """
from nightjar import ConfigProposal, ConfigSampler, Parameter, Ranked, TraceScheduler, drawn_proposal

class Longest(TraceScheduler):
    parameters = {"bonus": Parameter(0.0, 0.0, 10.0)}

    def rank(self, forest):
        lengths = {t.trace_id: t.length + forest.params["bonus"] for t in forest.traces}
        return [Ranked(i, lengths[i]) for i in sorted(lengths, key=lambda i: -lengths[i])]

class Forgetful(TraceScheduler):
    def rank(self, forest):
        return []

class Steady(ConfigSampler):
    def propose(self, dimensions, observations, shape, count, rng):
        return [drawn_proposal(dimensions, shape, rng, "steady") for _ in range(count)]

class Wild(ConfigSampler):
    def propose(self, dimensions, observations, shape, count, rng):
        return [ConfigProposal({"NONE": 1}, 0.5, "wild")]
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """A test begins with empty caches and leaves nothing that it loaded."""
    ours = {*CATALOGUE}
    forget()
    yield
    for event in {*CATALOGUE} - ours:
        del CATALOGUE[event]
    forget()


def forget() -> None:
    OWN.clear()
    schedulers.OWN.clear()
    sampling.OWN.clear()
    for name in [n for n in sys.modules if n.partition(".")[0] in (own.PACKAGE, "nightjar")]:
        del sys.modules[name]
    schemas._made.clear()
    schemas._texts_of_module.cache_clear()
    table.cache_clear()
    _rows.cache_clear()


def loaded(settings: Settings, folder: Path, **files: str) -> Settings:
    """Settings with a folder of these files, which are loaded."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    changed = settings.model_copy(update={"functions": folder})
    own.load(changed)
    return changed


async def test_your_own_file_keeps_values_calls_ours_and_emits(settings: Settings, tmp_path: Path) -> None:
    async with opened("web", loaded(settings, tmp_path, mine=MINE)) as process, http_client(process) as http:
        await told(http, "/api/mine/note", name="a", text="one")
        found = (await http.get("/api/mine/a")).json()
        nothing = await http.post("/api/mine/drop", json={"name": "a"})
        dropped = (await http.get("/api/mine/a")).json()
        listed = await told(http, "/api/event/list", types=["mine.alarm"])
        rows = await told(http, "/api/function/list")
        receiver = {"url": "https://93.184.216.34/", "types": ["mine.alarm"]}
        webhook = await told(http, "/api/webhook/add", **receiver)
        webhooks = await told(http, "/api/webhook/list")
        names = {binding.name for binding in bindings(table(), process)}

    assert (found, nothing.status_code, dropped) == ({"text": "one in 0"}, 204, {"text": "none in 0"})
    assert [(e["type"], e["subject"], e["data"]) for e in listed["events"]] == [
        ("mine.alarm", "a", {"text": "one"})
    ]
    assert {"mine::note", "mine::read"} <= {row["name"] for row in rows["functions"]}
    assert [w["types"] for w in webhooks["webhooks"]] == [["mine.alarm"]], webhook

    document = openapi(table())
    assert document["paths"]["/api/mine/{name}"]["get"]["x-role"] == ["viewer"]
    assert document["components"]["schemas"]["mine_Noted-answer"]["properties"]["text"]["description"] == (
        "What stands there."
    )
    assert "mine_note" in tools_of(table())
    assert "mine_read" not in tools_of(table())
    assert "mine::read" in names


async def test_values_are_bounded_and_only_writers_write_them(process: Process, settings: Settings) -> None:
    from state.own import MOST_BYTES, SIZE, Own

    values = Own(process.lab).of("mine", writes=True)
    await values.set("a", {"b": [1.5, None]})
    await values.set("big", "x" * (MOST_BYTES - 100))
    with pytest.raises(Conflict, match="may take 1048576"):
        await values.set("more", "x" * 100)
    await values.delete("big")
    await values.delete("big")
    await values.set("a", "é")

    assert await values.all() == {"a": "é"}
    assert await process.lab.hash(process.lab.keys("own", "mine")) == {"a": '"é"', SIZE: "5"}
    with pytest.raises(TypeError, match="writes=True"):
        await Own(process.lab).of("mine", writes=False).set("a", 1)
    with pytest.raises(Invalid, match="no event of 'mine'"):
        await values.emit("best.changed", "a", {})


async def test_an_exception_in_a_handler_is_a_500_and_no_end(settings: Settings, tmp_path: Path) -> None:
    async with opened("web", loaded(settings, tmp_path, mine=MINE)) as process, http_client(process) as http:
        broken = await http.get("/api/mine/exit")
        fine = await http.get("/api/mine/a")

        wrong = [await http.post("/api/mine/forget", json={"text": text}) for text in ("x", "")]
        empty = await http.post("/api/mine/may", json={})

    assert (broken.status_code, fine.status_code) == (500, 200)
    assert [answer.status_code for answer in (*wrong, empty)] == [500, 500, 204]
    assert broken.json()["detail"] == "GET /api/mine/exit failed: a fault of a function of your own"


BEGIN = "from nightjar import *\n\nclass Ask(Request):\n    pass\n\nclass Said(Response):\n    pass\n\n"
HANDLER = "async def f(request: Ask) -> Said:\n    return Said()\n"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("x = (\n", 1, "SyntaxError"),
        ("\nimport nothing_of_that_name\n", 2, "ModuleNotFoundError"),
        (f"{BEGIN}@function('a::b', On('no.event'), role='agent')\n{HANDLER}", 9, "'no.event'"),
        (f"{BEGIN}@function('best::b', role='agent')\n{HANDLER}", 9, "is that of Nightjar"),
        (f"{BEGIN}@function('a::b', role='boss')\n{HANDLER}", 9, "no role 'boss'"),
        (f"{BEGIN}@function('a::b', Http('GET', '/api/lab/x'), role='agent')\n{HANDLER}", 9, "/api/a/"),
        (f"{BEGIN}@function('a::b', role='agent')\nasync def f(request: Ask):\n    pass\n", 9, "'return'"),
        (f"{BEGIN}@function('a::b', role='agent')\n{HANDLER.replace('async ', '')}", 9, "async def"),
        (f"{BEGIN}@function('a::b')\n{HANDLER}", 9, "role"),
        (f"{BEGIN}{HANDLER}\nEVENTS = {{'a.b': 'x'}}\n", 12, "noun of this file"),
        (f"{BEGIN}class Wrong(ConfigSampler):\n    pass\n", 9, "abstract"),
        ("from nightjar import Requset\n", 1, "'Requset' from 'nightjar'"),
        ("import mine\n", 1, "import a file beside it as .mine"),
        (
            f"{BEGIN}@function('a::b', role='agent')\n{HANDLER}@function('a::b', role='agent')\n"
            f"{HANDLER.replace('def f', 'def g')}",
            12,
            "declared twice",
        ),
        (
            f"{BEGIN}@function('a::b', Http('GET', '/api/a/{{x}}/y'), role='agent')\n"
            "async def f(request: Ask) -> Said:\n    pass\n",
            9,
            "has no field 'x'",
        ),
    ],
)
def test_a_mistake_names_its_file_and_line(
    settings: Settings, tmp_path: Path, text: str, line: int, problem: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        loaded(settings, tmp_path, mine=text)
    assert refusal.value.detail.startswith(f"{tmp_path / 'mine.py'}:{line}: ")
    assert problem in refusal.value.detail


def test_models_of_your_own_may_have_the_names_of_ours(settings: Settings, tmp_path: Path) -> None:
    models = "class Said(Response):\n    y: int = 1\nclass Policy(Request):\n    x: Said\n"
    one = (
        f"from nightjar import *\n{models}@function('a::b', role='agent')\n{HANDLER.replace('Ask', 'Policy')}"
    )
    loaded(settings, tmp_path, one=one, two=one.replace("a::b", "c::d"))

    schemas = openapi(table())["components"]["schemas"]

    assert {"Policy", "one_Policy-request", "two_Policy-request", "two_Said-request", "two_Said-answer"} <= {
        *schemas
    }


def test_an_installed_package_brings_functions(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alarms_of_a_test.py").write_text(MINE)
    info = tmp_path / "alarms_of_a_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: alarms-of-a-test\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[nightjar.functions]\nalarms = alarms_of_a_test\n")
    monkeypatch.syspath_prepend(tmp_path)

    own.load(settings)

    assert "mine::note" in table()


async def test_a_policy_names_schedulers_and_samplers_of_your_own(settings: Settings, tmp_path: Path) -> None:
    policy = {
        "traces": {"mode": "multi", "target_traces": 2, "max_parallel": 9, "scheduler": "rules.Longest"}
    }
    async with (
        opened("web", loaded(settings, tmp_path, rules=RULES)) as process,
        http_client(process) as http,
    ):
        await open_tag(http, policy=policy)

        async def grown(**asked: str) -> str:
            chosen = await told(http, "/api/trace/select", tag="mar11", **asked)
            name = await registered(http, selection_id=chosen["selection_id"])
            await told(http, "/api/experiment/complete", experiment_id=name, val_bpb=1.0)
            return str(chosen["trace_id"])

        async def policy_refused(**values: object) -> str:
            problem = await refused(http, 422, "/api/search/set-policy", tag="mar11", policy=values)
            return str(problem["detail"])

        _, second = await grown(), await grown()
        await grown(trace_id=second)
        chosen = [await grown() for _ in range(3)]
        await told(
            http, "/api/search/set-policy", tag="mar11", policy={"traces.scheduler": "rules.Forgetful"}
        )
        broken = await refused(http, 409, "/api/trace/select", tag="mar11")
        await told(http, "/api/search/set-policy", tag="mar11", policy={"sampler": "rules.Steady"})

        assert "no sampler" in await policy_refused(sampler="rules.None")
        assert "no scheduler" in await policy_refused(traces={"scheduler": "rules.Steady"})
        assert "no parameter 'eps'" in await policy_refused(
            traces={"scheduler": "rules.Longest", "scheduler_params": {"eps": 1}}
        )

    assert chosen == [second] * 3
    assert "not every trace once" in broken["detail"]
