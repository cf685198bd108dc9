"""The function table and the scripts: what is declared is what is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import state
from functions.kernel.contract import (
    BadTable,
    Call,
    Cron,
    Every,
    Function,
    Http,
    On,
    Request,
    Response,
    function,
)
from functions.kernel.invoke import Invoker
from functions.kernel.rules.access import Caller
from functions.kernel.table import HOMES, check, table
from state.errors import Forbidden, Invalid
from state.events import CATALOGUE
from state.records import Role

STATE = Path(state.__file__).parent
FUNCTIONS = STATE.parent / "functions"
LUA = Path(state.__file__).parent / "lua"


class Ask(Request):
    name: str = "x"


class Told(Response):
    name: str


class Telephone:
    """Something that no process provides."""


@dataclass(frozen=True)
class Desk:
    """A bundle."""

    telephone: Telephone


@function("noun::verb", role="agent")
async def verb(request: Ask) -> Told:
    """Answer."""
    return Told(name=request.name)


def declared(**changes: Any) -> Function[Any, Any]:
    return Function(**{**vars(verb), **changes})


# -- declarations


def test_the_table_is_sorted_described_and_named_after_its_files() -> None:
    found = table()
    check(found)
    assert list(found) == sorted(found)
    assert all(f.description for f in found.values())
    with pytest.raises(BadTable, match=r"'noun::verb' is declared in the file of 'noun::other'"):
        check({"noun::other": verb})


def test_every_file_that_declares_functions_is_a_home_of_its_nouns() -> None:
    declaring = {
        (".".join(file.relative_to(FUNCTIONS).with_suffix("").parts), noun)
        for file in FUNCTIONS.rglob("*.py")
        for noun in re.findall(r'^@function\(\s*"(\w+)::', file.read_text(), re.MULTILINE)
    }
    assert declaring == {(home, noun) for noun, homes in HOMES.items() for home in homes}


@pytest.mark.parametrize(
    ("triggers", "problem"),
    [
        ((On("experiment.celebrated"),), r"experiment\.celebrated"),
        ((Every(1), Cron("* * * * *")), "two triggers of the clock"),
        ((Every(0),), "an interval of 0 s is too short"),
        ((Every(float("nan")),), "NaN"),
        ((Every("sleep_s"),), "no setting 'sleep_s'"),
        ((Every(5, jitter_s=5),), "a jitter of 5 s is no part of an interval of 5 s"),
        ((Every(5, jitter_s=-1),), "a jitter of -1 s is no part of an interval of 5 s"),
        ((Cron("* * *"),), "5 or 6"),
        ((Cron("0 0 30 2 *"),), "never comes"),
        ((Cron("0 25 * * *"),), "higher than the maximum"),
        ((Cron("0 3 * * *", "Middle/Earth"),), "no time zone"),
    ],
)
def test_a_trigger_that_cannot_work_is_refused(triggers: tuple[Every | Cron | On, ...], problem: str) -> None:
    with pytest.raises(BadTable, match=problem):
        check({"noun::verb": declared(triggers=triggers)})
    with pytest.raises(BadTable, match="names no role"):
        check({"noun::verb": declared(roles=())})


def test_every_model_of_a_request_or_answer_has_a_name_of_its_own() -> None:
    models: set[type[BaseModel]] = set()
    for found in table().values():
        models |= {*within(found.request), *within(found.response)}
        models |= {*within(found.accept.response)} if found.accept else set()
    named = Counter(model.__name__ for model in models)
    assert [name for name, count in named.items() if count > 1] == []


def within(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, and those of their fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from within(field.annotation)
    for part in get_args(annotation):
        yield from within(part)


def test_a_get_that_writes_is_refused_unless_only_workers_send_it() -> None:
    fetched = (Http("GET", "/api/noun/verb"),)
    for roles in (("agent",), ("operator",), ("agent", "worker"), ("anyone",)):
        with pytest.raises(BadTable, match=r"'noun::verb' writes, but GET /api/noun/verb"):
            check({"noun::verb": declared(triggers=fetched, writes=True, roles=roles)})
    check({"noun::verb": declared(triggers=fetched, writes=True, roles=("worker",))})
    check({"noun::verb": declared(triggers=fetched, writes=False)})


# -- the invoker


async def test_a_bundle_is_made_of_what_is_provided() -> None:
    async def calling(request: Ask, desk: Desk) -> Told:
        return Told(name=type(desk.telephone).__name__)

    invoker = Invoker({"noun::verb": declared(handler=calling, needs={"desk": Desk})}, [Telephone()])
    assert await invoker.call("noun::verb", {"name": "x"}, invoker.system("test")) == Told(name="Telephone")
    for needs in ({"desk": Desk}, {"telephone": Telephone}):
        with pytest.raises(BadTable, match=r"telephone: Telephone, which nobody provides"):
            Invoker({"noun::verb": declared(needs=needs)}, [])


async def test_a_caller_of_another_role_is_refused() -> None:
    invoker = Invoker({"noun::verb": verb}, [])

    strangers: tuple[Role, ...] = ("viewer", "worker")
    friends: tuple[Role, ...] = ("agent", "operator")
    for role in strangers:
        with pytest.raises(Forbidden, match="agent"):
            await invoker.call("noun::verb", {}, Call(Caller("test", role), invoker=invoker))
    for role in friends:
        answer = await invoker.call("noun::verb", {"name": "y"}, Call(Caller("test", role), invoker=invoker))
        assert answer == Told(name="y")


async def test_a_request_that_does_not_validate_names_its_fields_without_their_values() -> None:
    invoker = Invoker({"noun::verb": verb}, [])
    with pytest.raises(Invalid) as refusal:
        await invoker.call("noun::verb", {"name": ["secret"], "x" * 1000: 1}, invoker.system("test"))
    assert "name" in refusal.value.detail
    assert "secret" not in refusal.value.detail
    assert len(refusal.value.detail) < 1000


# -- events


def test_an_event_that_a_source_names_is_in_the_catalogue_and_the_catalogue_has_no_others() -> None:
    """`test_round_trips.py` looks at the names that are put together."""
    sources = [f for kind in ("py", "lua") for f in STATE.rglob(f"*.{kind}") if f.name != "events.py"]
    text = "\n".join(source.read_text() for source in sources)
    emitted = set(re.findall(r"\b(?:emit|append)\(\s*['\"]([a-z]+\.[a-z_]+)['\"]", text))
    named = {name.rpartition(".")[2] for name in re.findall(r"['\"]([a-z_.]+)['\"]", text)}
    assert emitted <= CATALOGUE.keys()
    assert {event.rpartition(".")[2] for event in CATALOGUE} <= named
