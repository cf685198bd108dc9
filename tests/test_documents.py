"""What README, docs/, AGENTS.md, .env.example and Procfile say is so."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import get_args

import click
import pytest
from pydantic import AliasChoices

from functions.__main__ import markdown
from functions.branches.rules.schedulers import SCHEDULERS, checked_params
from functions.experiments.entering import Submit
from functions.experiments.reading import best
from functions.experiments.rules.opening import swarm_policy
from functions.experiments.setup import OpenTag
from functions.formats.metrics_block import FailureKind
from functions.kernel.contract import Cron, Every, On, function
from functions.kernel.table import check, table
from functions.runs.rules.time_limits import default_timeout_s
from state.policy import Policy, names
from state.records import RETESTED, ROLES, STATUSES
from state.settings import WITHOUT_COUNTERPART, Settings
from triggers.cli.__main__ import COMMANDS, nightjar
from triggers.cli.output import BY_STATUS, EXIT_CODES
from triggers.cli.worker import join_command as join
from workers.join import main as joined
from workers.supervisor import main as supervised

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
AGENTS = (ROOT / "AGENTS.md").read_text()
PAGES = {page.stem: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
DOCUMENTS = "\n".join((README, *PAGES.values()))
"""What users read."""
OUR_WORDS = ("keep", "lease", "fence", "trace", "provisional", "tag")
MOST_WORDS = 900
"""Of README: what is longer is not read."""
BENCH = (ROOT / "bench" / "README.md").read_text()
ENV = (ROOT / ".env.example").read_text()
LINKING = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "bench/README.md",
    *(ROOT / "skills").rglob("*.md"),
]


@pytest.mark.parametrize("page", ["README", *PAGES])
@pytest.mark.parametrize("word", OUR_WORDS)
def test_each_of_our_words_is_explained_where_a_page_first_uses_it(page: str, word: str) -> None:
    text = re.sub(
        r"```.*?```|`[^`]*`|\[[^\]]*\]\([^)]*\)|^#[^\n]*$",
        "",
        {"README": README, **PAGES}[page],
        flags=re.DOTALL | re.MULTILINE,
    )

    uses = re.findall(rf"(\**)\b{word}s?\b", text)

    assert not uses or uses[0] == "**"


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    assert len(README.split()) <= MOST_WORDS
    assert set(re.findall(r"\]\(docs/([\w-]+)\.md\)", README)) == set(PAGES)


def test_the_function_table_is_as_it_is() -> None:
    assert markdown() in PAGES["functions"], (
        "run: python -m functions --markdown, and paste it into docs/functions.md"
    )


def test_every_setting_stands_in_the_env_example_and_on_a_page_and_every_variable_of_a_page_is_one() -> None:
    shown = dict(re.findall(r"^# (NIGHTJAR_\w+)=(.*)$", ENV, re.MULTILINE))
    expected = {
        f"NIGHTJAR_{name.upper()}": "" if info.default is None else str(info.default)
        for name, info in Settings.model_fields.items()
    }
    assert shown == expected
    for name, info in Settings.model_fields.items():
        alias = info.validation_alias
        names = [
            *map(str, alias.choices if isinstance(alias, AliasChoices) else []),
            f"NIGHTJAR_{name.upper()}",
        ]
        assert any(re.search(rf"\b{known}\b", "\n".join(PAGES.values())) for known in names), name
    assert set(re.findall(r"NIGHTJAR_[A-Z_]+", DOCUMENTS)) - expected.keys() <= {
        *("NIGHTJAR_BUDGET_S", "NIGHTJAR_COMPLETE", "NIGHTJAR_HIDDEN_FD", "NIGHTJAR_NAME", "NIGHTJAR_SEED"),
        "NIGHTJAR_TAG",
    }


def test_every_command_in_the_documents_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("my-project", ".cache/data", "hidden"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("train.py", "dimensions.toml", "results.tsv"):
        (tmp_path / file).touch()
    used = set(re.findall(r"/nightjar ([a-z]+[^`\n]*)", DOCUMENTS + AGENTS))
    for line in used:
        check_command(line.replace("~", str(tmp_path)))

    assert {line.split()[0] for line in used} >= {"up", "demo", "test", "doctor", "backup", "worker"}


def check_command(line: str) -> None:
    """Refuse what `nightjar` would refuse of these words; what a shell does with its output is left out."""
    words = re.split(r" (?:\\?\||>|#) ", line)[0]
    name, *rest = shlex.split(words, comments=True) if "..." not in words else words.split()[:1]
    command = _command(name)
    while isinstance(command, click.Group) and name != "call" and rest:
        name, *rest = rest
        command = command.commands[name]
    if rest and name != "call":
        command.make_context(name, rest)


def _command(name: str) -> click.Command:
    """A command by its name; the worker's own where it is the one that reads the words."""
    found = {"join": joined, "worker": supervised}.get(name)
    found = found or nightjar.get_command(nightjar.make_context("nightjar", ["status"]), name)
    assert found is not None, name
    return found


@pytest.mark.parametrize(
    ("page", "begin", "command"),
    [
        ("agents", "| option |", "agent"),
        ("export", "| option |", "export"),
        ("organiser", "| option | sets |", "simulate"),
    ],
)
def test_a_table_of_options_shows_every_option_of_its_command(page: str, begin: str, command: str) -> None:
    table = PAGES[page].split(begin)[1].split("\n\n")[0]
    shown = set(re.findall(r"`(--?[a-z-]+)`", table))
    assert shown == {
        name for option in _command(command).params for name in option.opts if name.startswith("-")
    }


def test_every_option_of_join_on_the_worker_s_page_exists() -> None:
    section = PAGES["workers"].split("## In a swarm")[1].split("\n## ")[0]
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section)) <= {
        option for parameter in (*_command("join").params, *join.params) for option in parameter.opts
    }
    assert "`from worker.report import report`" in section


def test_every_call_in_the_documents_names_a_function_and_its_fields() -> None:
    calls = re.findall(r"\./nightjar (call [^`\n]+)", DOCUMENTS)
    assert calls
    for call in calls:
        _, name, *words = shlex.split(call)
        if name == "hello::greet":  # of functions-of-your-own.md, which test_wheel.py runs
            continue
        fields = table()[name].request.model_fields
        named = {w[2:].replace("-", "_") for w in words if w.startswith("--")}
        assert named <= set(fields), call
        assert named >= {field for field, info in fields.items() if info.is_required()}, call


def test_every_policy_in_the_documents_is_one_and_every_scheduler_is_named() -> None:
    policies = re.findall(r"--policy '([^']+)'", DOCUMENTS)
    assert policies
    for text in policies:
        traces = Policy().changed(json.loads(text)).traces
        checked_params(traces.scheduler, SCHEDULERS[traces.scheduler], traces.scheduler_params)

    row = next(line for line in PAGES["traces"].splitlines() if "which trace grows next" in line)
    assert re.findall(r"`(\w+)`", row) == list(SCHEDULERS)


def test_the_organiser_s_table_shows_a_swarm_s_policy_as_it_begins() -> None:
    table = PAGES["organiser"].split("| field | in a swarm | says |")[1].split("\n\n")[0]
    shown = {
        name: json.loads(default)
        for name, default in re.findall(r"^\| `([\w.]+)` \| `(.+?)` \|", table, re.M)
    }

    begins = swarm_policy(Policy()).model_dump()

    assert len(shown) == table.count("\n") - 1
    assert shown == {name: _within(begins, name) for name in shown}
    differs = {name for name, value in begins.items() if value != Policy().model_dump()[name]}
    assert differs - {"baseline_first"} <= {name.partition(".")[0] for name in shown}


def _within(policy: object, name: str) -> object:
    for part in name.split("."):
        assert isinstance(policy, dict)
        policy = policy[part]
    return policy


def test_the_operator_s_page_has_every_setting_of_a_swarm_and_what_sets_nothing() -> None:
    section = PAGES["operator"].split("## A swarm's settings")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    settings = [f"NIGHTJAR_{name.upper()}" for name in Settings.model_fields if name.startswith("swarm_")]
    assert named == [*settings, *WITHOUT_COUNTERPART]


def test_every_role_in_the_documents_may_call_what_stands_beside_it() -> None:
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (.+::.+) \|$", PAGES["tokens"].split("| role | may |")[1], re.MULTILINE)
    )
    assert set(rows) == set(ROLES)
    for role in ROLES:
        may, _, may_not = rows[role].partition("; not ")
        for name in re.findall(r"`(\w+::\w+)`", may):
            assert table()[name].allows(role), (role, name)
        for name in re.findall(r"`(\w+::\w+)`", may_not):
            assert not table()[name].allows(role), (role, name)


def test_the_documents_show_the_exit_codes_as_they_are() -> None:
    shown = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    assert f"wait` above all: {shown}." in " ".join(PAGES["operator"].split())
    assert set(BY_STATUS) == {*STATUSES, RETESTED}
    assert set(BY_STATUS.values()) <= set(EXIT_CODES)


def test_every_trigger_in_the_documents_can_be_declared() -> None:
    page = PAGES["add-a-function"]
    shown = re.findall(r"`((?:On|Every|Cron)\(.*?\))`", page)
    assert len(shown) == 4
    for text in shown:
        trigger = eval(text, {"On": On, "Every": Every, "Cron": Cron})
        check({"probe::shown": function("probe::shown", trigger, role="operator")(best.handler)})
    ticks = {"scheduled", "fired", "missed"}
    assert ticks <= set(re.findall(r"`(\w+)`", page))


def test_every_route_in_the_documents_is_a_function_s() -> None:
    routes = {door.path for declared in table().values() for door in declared.doors} | {"/api/events"}
    patterns = [re.compile(re.sub(r"{\w+}", "[^/?]+", route)) for route in routes]
    used = re.findall(r"127\.0\.0\.1:3111(/api/[^\s\"'?`]+)", DOCUMENTS)
    assert used
    for path in used:
        assert any(p.fullmatch(path) for p in patterns), path


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in LINKING])
def test_every_file_and_heading_that_a_page_links_exists(page: str) -> None:
    here = ROOT / page
    for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", here.read_text()):
        file = here.parent / target if target else here
        assert file.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert heading in {_anchor(found) for found in headings}, (target, heading)


def _anchor(heading: str) -> str:
    """As GitHub makes it: without punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_room_stands_in_the_agents_list_with_places_that_exist() -> None:
    listed = AGENTS.partition("## Rooms")[2].partition("## ")[0]
    rooms = {
        f"{house}/{room.parent.name}/"
        for house in ("functions", "triggers", "workers")
        for room in (ROOT / house).glob("*/__init__.py")
    }
    places = re.findall(r"`([\w/]+\.\w+)(?::(\w+))?`", listed)

    assert {*re.findall(r"^\| `(\w+/\w+/)`", listed, re.MULTILINE)} == rooms
    assert len(places) > 20
    for file, name in places:
        assert name in (ROOT / file).read_text(), f"{file}:{name}"


def test_every_benchmark_stands_in_its_readme_with_a_command_that_exists() -> None:
    modules = {file.stem for file in (ROOT / "bench").glob("[!_]*.py")}

    shown = set(re.findall(r"^\| `\.venv/bin/python -P -m bench\.(\w+)`", BENCH, re.MULTILINE))

    assert shown == modules
    for name in modules:
        command = importlib.import_module(f"bench.{name}").main
        assert isinstance(command, click.Command)
        options = re.findall(
            r"`(--[a-z-]+)", next(row for row in BENCH.splitlines() if f"bench.{name}`" in row)
        )
        assert set(options) <= {option for parameter in command.params for option in parameter.opts}, name


def test_every_process_of_the_procfile_is_a_module_of_this_checkout() -> None:
    lines = (ROOT / "Procfile").read_text().splitlines()
    modules = {line.partition(": ")[0]: line.split()[-1] for line in lines}
    assert set(modules) == {"web", "events", "clock", "worker", "pi"}
    for module in (*modules.values(), "functions.fold", "state.keys"):
        found = importlib.util.find_spec(module)
        assert found is not None
        assert Path(str(found.origin)).is_relative_to(ROOT)


def test_every_command_and_option_has_help() -> None:
    context = nightjar.make_context("nightjar", ["status"], resilient_parsing=True)
    found = {name: nightjar.get_command(context, name) for name in COMMANDS}
    todo = [*(found | {"join": joined, "worker": supervised}).items()]  # what answers --help
    for name, command in todo:
        assert command is not None
        assert command.help, name
        if isinstance(command, click.Group) and name != "call":  # those of `call` are the lab's
            todo += [(f"{name} {each}", its) for each, its in command.commands.items()]
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert [one.opts for one in options if not one.help] == [], name
    for workers_own in (joined, supervised):
        assert workers_own.context_settings["help_option_names"] == ["-h", "--help"]


def test_the_troubleshooting_page_has_a_row_for_each_way_to_fail() -> None:
    rows = PAGES["troubleshooting"].split("| `error_kind` | do |")[1].split("\n\n")[0]
    assert {*get_args(FailureKind)} <= {*re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)}


def test_the_table_of_defaults_shows_the_values_of_the_code() -> None:
    rows = re.findall(r"^\| .+ \| `(.+)` \| (\w+) `(.+)` \|$", PAGES["defaults"], re.MULTILINE)
    assert len(rows) == sum(line.startswith("| ") for line in PAGES["defaults"].splitlines()) - 1
    for shown, kind, name in rows:
        assert shown == _default(kind, name), (kind, name)
    named = {name for _, kind, name in rows if kind == "policy"}
    assert named == {*names()}


def _default(kind: str, name: str) -> str:
    value: object
    match kind:
        case "policy":
            value = _within(Policy().model_dump(), name)
        case "setup":
            value = _within(OpenTag(tag="t").model_dump(), name)
        case "submit":
            assert name in Submit.model_fields
            value = default_timeout_s(Policy().budgets.base_s)
        case "setting":
            value = Settings.model_fields[name.removeprefix("NIGHTJAR_").lower()].default
        case _:
            command, option = name.split()
            found = nightjar.get_command(nightjar.make_context("nightjar", ["status"]), command)
            assert found is not None
            value = next(parameter.default for parameter in found.params if option in parameter.opts)
    return value if isinstance(value, str) else json.dumps(value)


def test_no_two_classes_of_the_product_have_one_name() -> None:
    sources = (
        path.read_text()
        for top in ("functions", "state", "triggers", "workers")
        for path in sorted((ROOT / top).rglob("*.py"))
    )
    names = Counter(
        name for source in sources for name in re.findall(r"^class ([A-Z]\w*)", source, re.MULTILINE)
    )

    assert [name for name, times in names.items() if times > 1] == []
