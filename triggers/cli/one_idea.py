"""`nightjar try`: submits the change in an agent's clone, waits for the verdict, and keeps or reverts it.

Each step is noted in the repository's own folder before the next one, so a command that was killed at any moment is
continued by the next one. The code of an experiment stays at `refs/nightjar/ID`.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from functions.experiments.views.hints import HUNG
from functions.formats.metrics_block import deciding_line, remedies_in
from functions.formats.patches import LONGEST_PATCH, in_a_line
from functions.kernel.contract import CATEGORIES
from state.errors import (
    BudgetExhausted,
    Conflict,
    Forbidden,
    Invalid,
    NightjarError,
    NotFound,
    Unauthenticated,
)
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import with_lab
from triggers.cli.output import BY_STATUS, printable, say
from triggers.cli.repository import Git, base_of, scripts_of
from triggers.cli.runs import digits_of, gain_in_words, names_of_tags, outcome, path_of, the_tag
from triggers.cli.wait import WAIT_S, Outcome, is_passing, patiently, waited

BRANCH = "autoresearch/"
"""Prefix of an agent's branch; TAG-NAME follows."""
REFS = "refs/nightjar/"
NO_DATA = "list data and checkpoints in .gitignore"


@dataclass
class Note:
    """The saved progress of an idea."""

    key: str
    body: dict[str, Any] = field(default_factory=dict)
    """Exact body of the submission; empty until it is known."""
    head: str = ""
    """HEAD before `own`."""
    own: str = ""
    """A commit of the files at the start."""
    commit: str = ""
    """The trained commit: `own`, or its change applied to the lab's selected base."""
    is_changed: bool = True
    """Whether it differs from its parent's code."""
    experiment_id: str | None = None
    is_adopted: bool = False
    """Whether the branch was moved to `commit`."""
    is_over: bool = False


class OneIdea:
    """Tries one idea at a time in the clone around a folder. `tag` and `agent` are as given, else found there."""

    def __init__(self, http: LabHttp, here: Path, tag: str | None, agent: str | None) -> None:
        self._http, self._git = http, Git(here)
        self._tag, self._agent = tag, agent
        self._top = Path(self._git("rev-parse", "--show-toplevel").rstrip("\n"))
        self._file = self._git.folder / "nightjar-try.json"

    def tried(self, hypothesis: str, category: str) -> tuple[Outcome, str, str | None]:
        """The verdict on the change in the clone, or on an earlier unfinished one; where the branch is now; and, if
        this hypothesis was not submitted, a message of that.

        Raises:
            NightjarError: the change cannot be submitted, and nothing has moved; or no lab answers.
        """
        with self._alone():
            note = self._noted()
            is_resumed = note is not None and bool(note.body) and not note.is_over
            if note is None or not is_resumed:
                note = self._prepared(hypothesis, category, note)
            self._submit(note, is_resumed=is_resumed)
            self._adopt(note)
            outcome = self._finished(str(note.experiment_id))
            place = self._decided(note, outcome)
            note.is_over = True
            self._write(note)
            is_other = note.body["hypothesis"] != hypothesis
            unsent = f"{hypothesis[:60]!r} was not submitted: {note.experiment_id} came first; try again"
            return outcome, place, unsent if is_other else None

    # -- what is submitted

    def _prepared(self, hypothesis: str, category: str, last: Note | None) -> Note:
        """The note of a new idea, or `last` if nothing has changed. Raises NightjarError: none can be submitted."""
        git = self._git
        git.check_settled()
        tag, agent = self._who()
        brief = self._http.ask("POST", "/api/report/brief", {"tag": tag, "agent": agent})
        base = self._base(tag)
        head = str(git.commit("HEAD"))
        new = git.new_files()
        if large := [name for name in new if os.lstat(self._top / name).st_size > LONGEST_PATCH]:
            raise Invalid(f"the new file {large[0]!r} has over {LONGEST_PATCH >> 20} MiB", hint=NO_DATA)
        tree = git.files()
        own = head if tree == git.tree(head) else git.committed(tree, head, hypothesis)
        if moved := git.submodules_moved(head, own):
            raise Invalid(
                f"the submodule {moved[0]} is at another commit than your branch has",
                hint=f"git submodule update {moved[0]}; or commit it, if that is your change",
            )
        built_on, parent = self._built_on(own, tag, base, brief["best"])
        is_changed = tree != git.tree(built_on)
        decided = last if last and last.is_over and last.is_changed else None
        if not is_changed and decided and decided.body["hypothesis"] == hypothesis:
            return decided
        if not is_changed and not brief["should_abort"]:
            raise Invalid(
                f"nothing has changed since {built_on[:12]}{f' ({parent})' if parent else ''}",
                hint="make the change that the hypothesis is about, then try again",
            )
        note = Note(last.key if last and not last.is_over else str(uuid.uuid4()), is_changed=is_changed)
        made_from = {"parent_id": parent} if parent else {}
        commit = own
        if is_changed and brief["trace_mode"] == "multi":
            self._write(note)
            selection, commit = self._selected(note.key, tag, agent, built_on, own)
            made_from = {"selection_id": selection}
        change = in_a_line(git.diff(built_on, own).decode("utf-8", "replace"))
        note.head, note.own, note.commit = head, own, commit
        note.body = {
            "tag": tag,
            "agent": agent,
            "hypothesis": hypothesis,
            "category": category,
            "commit_sha": commit,
            "diff": self._patch(base, commit),
            "diff_summary": change,
            "description": (own == head and git("log", "-1", "--format=%s", own).strip()) or change,
            "request_id": note.key,
            **made_from,
        }
        if new:
            say(f"new files go along: {', '.join(new)}"[:200])
        self._write(note)
        return note

    def _who(self) -> tuple[str, str | None]:
        """The tag and the agent's name: as given, else from the branch, else the lab's only tag."""
        branch = self._git("rev-parse", "--abbrev-ref", "HEAD").strip()
        name = branch.removeprefix(BRANCH) if branch.startswith(BRANCH) else ""
        tag = self._tag
        if tag is None:
            fitting = [known for known in names_of_tags(self._http) if name.startswith(f"{known}-")]
            tag = max(fitting, key=len) if fitting else the_tag(self._http, None)
        return tag, self._agent or (name.removeprefix(f"{tag}-") if name.startswith(f"{tag}-") else None)

    def _base(self, tag: str) -> str:
        """The tag's base commit in this clone. Raises NotFound: the tag has none, or this clone lacks it."""
        base = base_of(self._http, tag)
        if base is None:
            raise NotFound(f"{tag} has no base commit", hint="open a tag with base_commit: experiment::setup")
        found = self._git.commit(base)
        if found is None:
            raise NotFound(
                f"this clone does not have the commit {base[:12]}, the base of {tag}",
                hint="git fetch, or clone the repository that the lab trains",
            )
        return found

    def _built_on(
        self, commit: str, tag: str, base: str, best: Mapping[str, Any] | None
    ) -> tuple[str, str | None]:
        """The nearest ancestor that is an experiment or the tag's base, and that experiment."""
        git, known = self._git, dict[str, str | None]()
        for line in git("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", REFS).splitlines():
            code, experiment = line.split(" ", 1)
            if experiment.removeprefix(f"{tag}-").isdigit():
                known[code] = experiment
        known[base], ends = None, {base}
        if best is not None:
            known_as = (best["commit"], f"{REFS}{best['experiment_id']}")  # the latter where it was rebuilt
            if own := next(filter(None, map(git.commit, known_as)), None):
                known[own] = best["experiment_id"]
                ends.add(own)
        for found in git("rev-list", "--first-parent", commit).split():
            if found in ends or (found in known and found != commit):
                return found, known[found]
        return base, known[base]

    def _selected(self, key: str, tag: str, agent: str | None, built_on: str, own: str) -> tuple[str, str]:
        """The lab's selection, and the commit of the change on its base.

        Raises:
            Conflict: the change does not apply there. BudgetExhausted: the tag has spent what it may.
        """
        git, told = self._git, ""
        body = {"tag": tag, "agent": agent, "wait": WAIT_S, "request_id": key}
        while (found := self._patiently("/api/trace/select", body))["status"] != "selected":
            if found["reason"] == "budget":
                raise BudgetExhausted(found["hint"])
            if found["hint"] != told:
                say(told := found["hint"])
        selection = found["selection_id"]
        base = self._here(tag, found["base_commit_sha"], found["base_experiment_id"])
        if base is None:
            raise NotFound(f"this clone lacks the commit {found['base_commit_sha']}", hint="git fetch")
        if base == built_on:
            return selection, own
        try:
            tree = git.patched(base, git.diff(built_on, own), three_way=True)
        except Conflict:
            git("update-ref", f"{REFS}{selection}", own)
            raise Conflict(
                f"the lab selected {base[:12]} to build on, and your change does not apply to it",
                hint=f"git reset --hard {base[:12]}, make it there, and try again; git show {own[:12]} has it",
            ) from None
        return selection, git.committed(tree, base, git("log", "-1", "--format=%B", own))

    def _patch(self, base: str, commit: str) -> str:
        """The whole change since the tag's base. Raises Invalid: it cannot be sent."""
        git = self._git
        for line in git("diff-tree", "-r", base, commit).splitlines():
            modes, _, path = line.partition("\t")
            if modes.startswith(":000000 160000"):
                raise Invalid(f"{path} is a repository of its own", hint=f"list it in .gitignore: /{path}/")
        patch = git.diff(base, commit)
        if len(patch) > LONGEST_PATCH:
            raise Invalid(
                f"the change has {len(patch) / 2**20:.1f} MiB, over {LONGEST_PATCH >> 20}", hint=NO_DATA
            )
        try:
            return patch.decode()
        except UnicodeDecodeError as problem:
            raise Invalid(
                "the change has text that is not UTF-8", hint="save the file as UTF-8, or leave it out"
            ) from problem

    # -- one step after the other

    def _submit(self, note: Note, *, is_resumed: bool) -> None:
        """Submit the idea, once. Raises NightjarError: the lab refuses it (it is forgotten), or no answer."""
        if note.experiment_id is None:
            try:
                answer = self._patiently("/api/experiment/submit", note.body)
            except NightjarError as problem:
                is_token_s = isinstance(problem, Unauthenticated | Forbidden)
                if not is_passing(problem) and not (is_token_s and is_resumed):
                    self._file.unlink()
                raise
            note.experiment_id = answer["experiment_id"]
            self._write(note)
        self._git("update-ref", f"{REFS}{note.experiment_id}", note.commit)

    def _adopt(self, note: Note) -> None:
        """Move the branch to the trained commit. The files stay as they are, or get the selected base."""
        if note.is_adopted:
            return
        if note.own != note.head and self._git.commit("HEAD") == note.head:
            self._git("reset", "--quiet", "--mixed", note.own)
        if note.commit != note.own and self._git.commit("HEAD") == note.own:
            self._go(note.commit)
        note.is_adopted = True
        self._write(note)

    def _finished(self, experiment: str) -> Outcome:
        told, outcome = False, Outcome()
        try:
            for outcome in waited(self._http, experiment):
                queue = outcome["queue"]
                if not (told or outcome["finished"]) and (
                    outcome["paused"] or (queue and not queue["workers"])
                ):
                    say(f"{experiment}: {outcome['next']}")
                    told = True
        except NotFound:  # another lab, or a new one in the place of the old
            self._file.unlink()
            raise
        return outcome

    def _decided(self, note: Note, outcome: Outcome) -> str:
        """Move the branch by the verdict; answers where it is now."""
        here, commit = str(self._git.commit("HEAD")), note.commit
        at = "your branch stays at" if here == commit else "your branch is at"
        if outcome["action"] == "keep_commit":
            return f"{at} {here[:12]}" + ("" if here == commit else f"; the keep is {commit[:12]}")
        base = self._here(note.body["tag"], outcome["base_commit_sha"], None)
        if base is None:
            return f"{at} {here[:12]}: this clone does not have the base {outcome['base_commit_sha']}"
        if here not in (base, commit):
            return f"{at} {here[:12]}, where you have moved it; the base is {base[:12]}"
        if here != base and (why := self._go(base)):
            return f"{at} {here[:12]}, because {why}; then: git reset --keep {base[:12]}"
        back = "" if base == commit else f"; git reset --hard {commit[:12]} brings the change back"
        return f"your branch is at {base[:12]}{back}"

    def _go(self, commit: str) -> str:
        """Move the branch and the files from HEAD to a commit if that overwrites nothing; else answers why not."""
        git = self._git
        git.succeeds("update-index", "-q", "--refresh")
        new = git("diff-tree", "-r", "-z", "--name-only", "--diff-filter=A", "HEAD", commit).split("\0")[:-1]
        if in_the_way := [name for name in new if os.path.lexists(self._top / name)]:
            return f"{in_the_way[0]!r}, which git ignores, is in the way: move it"
        if git.succeeds("reset", "--quiet", "--keep", commit):
            return ""
        return "files have changed since: git stash them"

    def _here(self, tag: str, commit: str, experiment: str | None) -> str | None:
        """The commit in this clone with the code of a lab's commit. None: it cannot be made.

        Another agent's is rebuilt from its patch; `experiment` names it, else it is the tag's best.
        """
        if (found := self._git.commit(commit)) is not None:
            return found
        try:
            if experiment is None:
                best = self._http.ask("POST", "/api/experiment/best", {"tag": tag})["best"]
                experiment = best["experiment_id"] if best["commit_sha"] == commit else None
            if experiment is None:
                return None
            shown = self._http.ask("GET", path_of(experiment))
            run = shown["experiment"]
            found = self._git.trained(
                run, base_of(self._http, tag), shown["diff"], scripts_of(self._http, run)
            )
        except (NotFound, Conflict, Invalid):
            return None
        # a commit of this name may be of an earlier lab
        before = self._git.commit(f"{REFS}{experiment}")
        if before is not None and self._git.tree(before) == self._git.tree(found):
            return before
        self._git("update-ref", f"{REFS}{experiment}", found)
        return found

    # -- the rest

    def _patiently(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a keyed request, repeated while the lab is busy or away."""
        sent = {name: value for name, value in body.items() if value is not None}
        answer: dict[str, Any] = patiently(lambda: self._http.ask("POST", path, sent))
        return answer

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other call works in this clone."""
        with self._file.with_suffix(".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another idea is tried in this clone: waiting for that")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _noted(self) -> Note | None:
        try:
            return Note(**json.loads(self._file.read_text()))
        except FileNotFoundError:
            return None

    def _write(self, note: Note) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(asdict(note)))
        new.replace(self._file)


LONGEST = 300
"""Characters of a reason or an error that are printed."""


@click.command()
@with_lab
@click.argument("hypothesis")
@click.option(
    "--category", type=click.Choice(CATEGORIES), default="other", show_default=True, help="the kind of change"
)
@click.option(
    "--tag",
    envvar="NIGHTJAR_TAG",
    help="the line of research [NIGHTJAR_TAG, else that of the branch autoresearch/TAG-NAME]",
)
def try_command(http: LabHttp, hypothesis: str, category: str, tag: str | None) -> int:
    """Have the change in this clone trained, committed or not; wait for the verdict, and act on it.

    HYPOTHESIS is what you expect of the change, and why. A keep stays on your branch. Otherwise the branch goes back
    to the lab's base, and the last line says how to get the change back. After Ctrl-C the same command goes on
    waiting. Exit codes are those of `wait`.
    """
    idea = OneIdea(http, Path.cwd(), tag, os.environ.get("NIGHTJAR_NAME"))
    try:
        found, place, unsent = idea.tried(hypothesis, category)
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
        raise
    for line in (*_verdict(http, found, place), *([unsent] if unsent else [])):
        click.echo(printable(line))
    return BY_STATUS[found["status"]]


def _verdict(http: LabHttp, found: Outcome, place: str) -> Iterator[str]:
    """The verdict in six lines at most."""
    shown = http.ask("GET", path_of(found["experiment_id"]))
    run = shown["experiment"]
    digits = digits_of(http, run["tag"])
    facts = [f"{found['experiment_id']}: {outcome(run)}{', near miss' if found['near_miss'] else ''}"]
    if found["val_bpb"] is not None:
        facts.append(f"{found['val_bpb']:.{digits}f}")
    if better := gain_in_words(run, shown["gain"], digits):
        facts.append(better)
    yield "  ".join(facts)
    if found["error"]:
        yield deciding_line(found["error"], found["error_kind"] or found["status"])[:LONGEST]
        yield from (f"-> {remedy}"[:LONGEST] for remedy in remedies_in(found["error"])[:1])
    elif found["reason"]:
        yield found["reason"][:LONGEST]
    if found["hung"]:
        yield HUNG
    if found["trust"] == "provisional":
        yield "It runs once more on another seed, and may be demoted."
    yield place
    if found["should_abort"]:
        yield found["next"]
