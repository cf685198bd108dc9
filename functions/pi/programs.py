"""A tag's program: read, compared, refreshed and written."""

from __future__ import annotations

import asyncio
import logging
from asyncio import gather
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import Annotated, Literal

from pydantic import Field

from functions.formats.authored import ProgramUpdate
from functions.formats.program_document import PARTS, DocumentReader, charter, charter_of
from functions.kernel.contract import (
    CATEGORIES,
    Call,
    Command,
    Every,
    Http,
    OfSwarm,
    On,
    Response,
    Text,
    function,
)
from functions.kernel.lanes import Author, Commission
from functions.pi.rules.findings import (
    TEMPLATES,
    Findings,
    ProgramStep,
    findings_of,
    next_step,
    patience_s,
    program_update,
    reason_due,
    strategy_of,
)
from functions.pi.views import block_of, charter_for, composed, document_for, findings_text
from functions.trust.rules.guarding import in_words
from state.client_settings import host_name
from state.errors import NightjarError
from state.ids import Id
from state.ids import Tag as TagName
from state.presence import Presence
from state.program_facts import DueFacts, ProgramAsk, ProgramVersion
from state.programs import FOLDER, Programs, base_of, read_charter, read_charters
from state.records import stamp, view_of
from state.settings import Settings
from state.train_queue import PiQueue

log = logging.getLogger(__name__)

# -- Asking a language model for texts: the queue of the lane `pi`, and a version of a program.


async def authored(
    author: Author | None, task: str, findings: Findings, due: DueFacts, *, reason: str
) -> ProgramVersion:
    """The version after `due`, by author or templates. Its strategy is that of most workers, not of a draft."""
    update, name = None, TEMPLATES
    if author is not None:
        update = await author.write(ProgramUpdate, Commission(task, findings_text(findings)))
        name = TEMPLATES if update is None else author.name
    update = update or program_update(findings)
    return ProgramVersion(
        number=due.number,
        at=due.now,
        author=name,
        reason=reason,
        results=due.tag.results,
        strategy=strategy_of(due),
        block=block_of(update, author=name, results=due.tag.results),
        base_digest="" if due.base is None else due.base.digest,
    )


@dataclass(frozen=True)
class ProgramStores:
    programs: Programs
    presence: Presence
    queue: PiQueue


# -- Writing a version of a program from charter and findings, by a language model or by templates.

FUNCTION = "program::write"
TASK = (
    "Write the part of program.md that changes with the evidence. Its readers are coding agents and workers that"
    " train what they are told to; they act on it at once. Say what the findings support and no more; where they"
    " decide nothing, say what would. Do not repeat the findings' tables."
)


async def advanced(
    due: DueFacts, step: ProgramStep, stores: ProgramStores, settings: Settings
) -> Literal["written", "asked"]:
    """Take a step other than `nothing`; another process may already have taken it."""
    if due.base is None:
        await rebased(stores.programs, settings)
        due = replace(due, base=await stores.programs.base())
    if step.what == "templates":
        await written(due, step.reason, stores, None)
        return "written"
    if step.what == "ask":
        ask = ProgramAsk(due.number, step.attempt, due.now, step.reason)
        await stores.programs.ask(due.tag.name, ask)
    longest_s = settings.llm_timeout_s
    await stores.queue.enqueue(FUNCTION, due.tag.name, due.number, attempt=step.attempt, longest_s=longest_s)
    return "asked"


async def written(
    due: DueFacts, reason: str, stores: ProgramStores, author: Author | None
) -> ProgramVersion | None:
    """The next version, by the author or, without a usable text, the templates; None: another one was written."""
    facts = await stores.programs.findings_facts(due.tag.name, is_swarm=due.is_swarm)
    # in a thread: with a thousand runs it takes tens of milliseconds
    findings = await asyncio.to_thread(findings_of, facts, CATEGORIES)
    version = await authored(author, TASK, findings, due, reason=reason)
    return version if await stores.programs.write(due.tag.name, version) else None


async def rebased(programs: Programs, settings: Settings) -> bool:
    """Store the charter of the file if it has changed; an unusable one is logged and changes nothing."""
    try:
        text, workers = await asyncio.to_thread(read_charters, settings)
        charter_of(text)
    except NightjarError as problem:
        log.error("the charter stays as it was: %s (%s)", problem.detail, problem.hint)
        return False
    return await programs.set_base(text, host_name(), workers)


class ReadProgram(OfSwarm):
    name: Id | None = Field(None, description="who reads it: the name in its commands", examples=["h100-3"])
    part: Literal["traces", "training"] | None = Field(
        None, description="a part that the agents' charter names", examples=["traces"]
    )


@function(
    "program::current",
    Http("GET", "/program.md", has_etag=True),
    Http("GET", "/program-{part}.md", has_etag=True),
    role="viewer",
    is_public=True,
)
async def current(request: ReadProgram, call: Call, programs: Programs, settings: Settings) -> Text:
    """The charter of a swarm's workers, or of agents, with this lab's address and the newest version in it."""
    served = await programs.served(request.tag_in(settings))
    reader = DocumentReader(
        call.lab_url(settings),
        request.tag or (settings.swarm_tag if served.is_swarm else None),
        request.name,
        is_worker=served.is_swarm,
    )
    if request.part is not None:
        part = await asyncio.to_thread(read_charter, FOLDER / PARTS[request.part])
        return Text(content=charter(part, reader))
    base = served.base or base_of(*await asyncio.to_thread(read_charters, settings))
    text = charter_for(base, reader) if served.current is None else composed(base, served.current, reader)
    guards = "".join(f"- {each}.\n" for each in in_words(served.guards, served.direction))
    return Text(
        content=f"{text}\n## Guards\n\nA run that breaks one is a discard:\n\n{guards}" if guards else text
    )


class DiffPrograms(OfSwarm):
    number: int | None = Field(None, ge=1, description="the later version; default: the newest", examples=[7])
    against: int | None = Field(
        None, ge=0, description="the earlier one, 0 for none; default: the one before", examples=[3]
    )


class ProgramDiff(Response):
    tag: str
    number: int
    """0: none was written yet."""
    against: int
    diff: str
    """A unified diff of the whole documents, the charter included; empty where they are the same."""


@function("program::diff", role="viewer")
async def diff(request: DiffPrograms, call: Call, programs: Programs, settings: Settings) -> ProgramDiff:
    """What a version of the program changed, as a unified diff."""
    tag = request.tag_in(settings)
    number = request.number
    if number is None:
        number = await programs.count(tag)
    against = max(number - 1, 0) if request.against is None else request.against
    found = await programs.with_bases(tag, [n for n in dict.fromkeys((number, against)) if n])
    url = call.lab_url(settings)
    texts = {0: ""} | {
        n: document_for(s, DocumentReader(url, tag, is_worker=s.is_swarm)) for n, s in found.items()
    }
    lines = unified_diff(
        texts[against].splitlines(keepends=True),
        texts[number].splitlines(keepends=True),
        f"program.md version {against}",
        f"program.md version {number}",
    )
    return ProgramDiff(tag=tag, number=number, against=against, diff="".join(lines))


class ListPrograms(OfSwarm):
    limit: int = Field(20, ge=1, le=200, description="most versions of the answer")
    offset: int = Field(0, ge=0, le=10**9, description="newer versions to pass over")


class ProgramView(Response):
    number: int
    written_at: str
    author: str
    """`templates`, or the provider and model that wrote it."""
    reason: str
    results: int
    """Results of the tag at that time."""
    strategy: str
    text: str
    """The text between the markers."""


class ListedPrograms(Response):
    tag: str
    count: int
    """Number of all versions."""
    versions: list[ProgramView]
    """The newest first."""


@function("program::list", role="viewer")
async def list_programs(request: ListPrograms, programs: Programs, settings: Settings) -> ListedPrograms:
    """Versions of a tag's program, the newest first, with who wrote each, when and why."""
    tag = request.tag_in(settings)
    versions, count = await programs.versions(tag, request.offset, request.limit)
    return ListedPrograms(
        tag=tag,
        count=count,
        versions=[view_of(ProgramView, v, written_at=stamp(v.at), text=v.block) for v in versions],
    )


REFRESH_S = 30.0


class RefreshProgram(Command):
    tag: TagName | None = Field(
        None, description="only this tag; else every tag of which a version was asked for", examples=["swarm"]
    )


class RefreshedProgram(Response):
    rebased: bool
    """Whether the charter's file has changed."""
    steps: dict[str, str]
    """Tags whose next version was due: `written`, or a language model was `asked`."""


@function(
    "program::refresh",
    On("experiment.finished", "strategy.changed", debounce="tag"),
    Every(REFRESH_S),
    role="operator",
    writes=True,
)
async def refresh(request: RefreshProgram, stores: ProgramStores, settings: Settings) -> RefreshedProgram:
    """Read the charter again and write each version that is due. Safe to run twice."""
    changed = request.tag is None and await rebased(stores.programs, settings)
    tags = [request.tag] if request.tag is not None else await stores.programs.asked()
    found = {tag: step for tag in tags if (step := await _refreshed(tag, stores, settings)) is not None}
    return RefreshedProgram(rebased=changed, steps=found)


async def _refreshed(tag: str, stores: ProgramStores, settings: Settings) -> str | None:
    due = await stores.programs.due_facts(tag)
    if due.ask is None and reason_due(due) is None:
        return None
    has_author = await stores.presence.author(settings.stale_s) is not None
    step = next_step(due, has_author=has_author, answered_s=patience_s(settings.llm_timeout_s))
    return None if step.what == "nothing" else await advanced(due, step, stores, settings)


class WriteProgram(Command):
    tag: TagName
    reason: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        "an operator asked for it",
        description="why, for the list of versions",
        examples=["the plan has changed"],
    )
    number: int | None = Field(
        None, ge=1, description="the version that was asked for; callers leave it out", examples=[7]
    )


class ProgramBegun(Response):
    tag: str
    number: int
    """Number of the version."""
    became: Literal["written", "asked"]
    """written: by the templates, now. asked: a language model writes it, which may take minutes."""


class WrittenProgram(Response):
    tag: str
    number: int
    """Number of the newest version."""
    author: str | None
    """Who wrote it; null: another process has, or it was no longer wanted."""


@function("program::write", role="operator", writes=True, keeps_answer=False)
async def accept(request: WriteProgram, stores: ProgramStores, settings: Settings) -> ProgramBegun:
    """Write a version now, or ask the lane `pi` for it."""
    due, found = await gather(
        stores.programs.due_facts(request.tag), stores.presence.author(settings.stale_s)
    )
    has_author = found is not None
    answered_s = patience_s(settings.llm_timeout_s)
    step = next_step(due, has_author=has_author, on_demand=request.reason, answered_s=answered_s)
    became = await advanced(due, step, stores, settings)
    return ProgramBegun(tag=request.tag, number=due.number, became=became)


@function("program::write", role="operator", lane="pi", writes=True, keeps_answer=False, accept=accept)
async def write(request: WriteProgram, call: Call, stores: ProgramStores, author: Author) -> WrittenProgram:
    """Write the next version of a tag's program, by a language model if there is one, else by the templates.

    With a language model the answer is 202, and program::list shows the version later.
    """
    due = await stores.programs.due_facts(request.tag)
    newest = due.number - 1
    if due.ask is None or request.number != due.number:
        return WrittenProgram(tag=request.tag, number=newest, author=None)
    version = await written(due, due.ask.reason, stores, author)
    if version is None:
        return WrittenProgram(tag=request.tag, number=due.number, author=None)
    return WrittenProgram(tag=request.tag, number=version.number, author=version.author)
