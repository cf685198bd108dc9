"""`nightjar try` in an agent's clone, with a stand-in that trains."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from functions.formats.metrics_block import with_remedies
from functions.kernel.process.lifecycle import Process
from tests.commands import command_line, forked_nightjar
from tests.examples.standin import StandIn, git, git_env, standing_in
from tests.labs import told
from tests.workers.repository import Repository
from triggers.cli.repository import Git

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@dataclass(frozen=True)
class Done:
    code: int
    lines: list[str]
    errors: str


@dataclass(frozen=True)
class Clone:
    """An agent's clone, and what it types there."""

    path: Path
    url: str
    more: Mapping[str, str]

    async def started(self, *words: str, **more: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command_line("try", *words),
            cwd=self.path,
            env=self.environment(more),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def tried_change(self, before: str, after: str, **more: str) -> Done:
        self.set(before, after)
        return await self.tried(f"{after} is better than {before}", **more)

    async def tried(self, *words: str, **more: str) -> Done:
        done = await asyncio.to_thread(forked_nightjar, ("try", *words), self.environment(more), self.path)
        return Done(done.returncode, done.stdout.splitlines(), done.stderr)

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {"HOME": str(self.path.parent), "NIGHTJAR_URL": self.url}
        return {name: text for name, text in (git_env() | own | {**self.more, **more}).items() if text}

    def set(self, before: str, after: str) -> None:
        script = self.path / "train.py"
        text = script.read_text()
        assert before in text
        script.write_text(text.replace(before, after))

    def has(self, words: str) -> bool:
        return words in (self.path / "train.py").read_text()

    @property
    def head(self) -> str:
        return git(self.path, "rev-parse", "HEAD")

    @property
    def changes(self) -> str:
        return git(self.path, "status", "--porcelain")


def wider_is_better(constants: Mapping[str, object]) -> float:
    width, depth = constants["WIDTH"], constants["DEPTH"]
    assert isinstance(width, int)
    assert isinstance(depth, int)
    if depth > 8:
        raise RuntimeError(with_remedies("out of memory", ["make it smaller"]))
    return 2.9 - width / 500 - depth / 1000


async def submitted(http: httpx.AsyncClient, clone: Clone, child: asyncio.subprocess.Process) -> None:
    """Wait until the clone's first idea is in the lab, and its branch has the commit."""
    while not (clone.path / ".git" / "refs" / "nightjar" / "night-2").exists() or clone.changes:
        assert child.returncode is None, (await child.communicate())[1].decode()
        await asyncio.sleep(0.05)
    assert (await told(http, "/api/experiment/history", tag="night"))["total"] == 2


@pytest.fixture
async def tokens(process: Process) -> dict[str, str]:
    olga = await process.tokens.issue(name="olga", role="operator", issued_by="local")
    ada = await process.tokens.issue(name="ada", role="agent", issued_by="olga")
    return {"olga": olga.text, "ada": ada.text}


@pytest.fixture
async def http(web: str, tokens: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    """The lab as its operator calls it."""
    async with httpx.AsyncClient(
        base_url=web, headers={"authorization": f"Bearer {tokens['olga']}"}, timeout=60
    ) as client:
        yield client


Trainer = Callable[[], AbstractAsyncContextManager[StandIn]]
"""The lab's only worker at work: its runs end at once."""


@pytest.fixture
def trainer(web: str, process: Process, project: Path, tokens: dict[str, str]) -> Trainer:
    return partial(standing_in, process, web, project, wider_is_better, bearer=tokens["olga"])


@pytest.fixture
async def waiting(
    web: str, project: Path, http: httpx.AsyncClient, tokens: dict[str, str], tmp_path: Path
) -> Clone:
    """A clone on the branch of ada, in a lab with the tag `night` where nobody trains."""
    path = tmp_path / "ada"
    git(tmp_path, "clone", "--quiet", str(project), str(path))
    git(path, "switch", "--quiet", "--create", "autoresearch/night-ada")
    await told(http, "/api/experiment/setup", tag="night", base_commit=git(project, "rev-parse", "HEAD"))
    return Clone(path, web, {"NIGHTJAR_TOKEN": tokens["ada"]})


@pytest.fixture
async def clone(waiting: Clone, trainer: Trainer) -> AsyncIterator[Clone]:
    """The same where somebody trains."""
    async with trainer():
        yield waiting


async def test_a_keep_stays_and_a_discard_goes_back_to_the_best(
    clone: Clone, http: httpx.AsyncClient
) -> None:
    base = clone.head
    clone.set("WIDTH = 48", "WIDTH = 96")

    kept = await clone.tried("a wider model learns more", "--category", "architecture")
    keep = clone.head
    clone.set("WIDTH = 96", "WIDTH = 64")
    lost = await clone.tried("it was too wide")

    assert (kept.code, kept.errors, lost.code, lost.errors) == (0, "", 3, "")
    assert kept.lines[0].startswith("night-2: keep")
    assert git(clone.path, "rev-parse", "HEAD~1") == base
    assert clone.head == keep
    assert clone.changes == ""
    assert clone.has("WIDTH = 96")
    assert lost.lines[0].startswith("night-3: discard")
    assert max(len(done.lines) for done in (kept, lost)) <= 6
    assert max(len("\n".join(done.lines)) for done in (kept, lost)) <= 400
    (command,) = [line.partition("; ")[2].partition(" brings")[0] for line in lost.lines if "brings" in line]
    git(clone.path, *command.split()[1:])
    assert clone.has("WIDTH = 64")
    found = (await http.get("/api/experiment/night-3")).json()["experiment"]
    assert (found["agent"], found["parent_ids"], found["category"]) == ("ada", ["night-2"], "other")
    assert found["description"] == "WIDTH = 96 -> 64"


async def test_a_change_that_was_committed_is_tried_too_with_its_new_files(clone: Clone) -> None:
    base = clone.head
    clone.set("WIDTH = 48", "WIDTH = 40")
    git(clone.path, "commit", "--quiet", "--all", "--message", "Try a narrow model")
    (clone.path / "notes.py").write_text("NOTE = 1\n")
    (clone.path / "__pycache__").mkdir()
    (clone.path / "__pycache__" / "notes.pyc").write_bytes(b"\0")
    (clone.path / ".nightjar").mkdir()
    (clone.path / ".nightjar" / "auth").write_text("Authorization: Bearer nj_secret\n")

    done = await clone.tried("narrow is enough")

    assert (done.code, done.errors) == (3, "nightjar: new files go along: notes.py\n")
    assert clone.head == base
    assert not (clone.path / "notes.py").exists()
    assert (clone.path / ".nightjar" / "auth").exists()
    git(clone.path, "reset", "--quiet", "--hard", "refs/nightjar/night-2")
    assert clone.has("WIDTH = 40")
    changed = git(clone.path, "diff", "--name-only", base, "HEAD").split()
    assert changed == ["notes.py", "train.py"]


async def test_after_crashes_in_a_row_the_unchanged_code_may_be_tried(clone: Clone) -> None:
    early = await clone.tried("is something broken?")
    crashed = [await clone.tried_change("DEPTH = 1 ", f"DEPTH = {depth} ") for depth in (97, 98, 99)]
    unchanged = [await clone.tried("is something broken?") for _ in range(2)]

    assert (early.code, "nothing has changed since" in early.errors) == (1, True)
    assert [done.code for done in crashed] == [4, 4, 4]
    assert "3 runs in a row crashed" in crashed[-1].lines[-1]
    assert max(len(done.lines) for done in crashed) <= 6
    assert unchanged[0].code == 3
    assert unchanged[0].lines[0].startswith("night-5")
    assert unchanged[0].lines[-1].endswith(f"your branch is at {clone.head[:12]}")
    assert (unchanged[1].code, "nothing has changed since" in unchanged[1].errors) == (1, True)


async def test_the_best_of_another_agent_is_rebuilt_where_the_clone_lacks_it(
    clone: Clone, http: httpx.AsyncClient, project: Path, tmp_path: Path
) -> None:
    other = Clone(
        tmp_path / "bob", clone.url, {**clone.more, "NIGHTJAR_TAG": "night", "NIGHTJAR_NAME": "bob"}
    )
    git(tmp_path, "clone", "--quiet", str(project), str(other.path))
    other.set("WIDTH = 48", "WIDTH = 96")
    assert (await other.tried("wide is better")).code == 0
    git(clone.path, "update-ref", "refs/nightjar/night-2", "HEAD")  # of an earlier lab
    clone.set("WIDTH = 48", "WIDTH = 40")

    done = await clone.tried("narrow is enough")

    assert done.code == 3
    assert clone.has("WIDTH = 96")
    assert clone.changes == ""
    assert "nothing has changed since" in (await clone.tried("wide is best")).errors
    clone.set("WIDTH = 96", "WIDTH = 100")
    assert (await clone.tried("wider is better")).code == 0
    found = (await http.get("/api/experiment/night-4")).json()["experiment"]
    assert (found["agent"], found["parent_ids"]) == ("ada", ["night-2"])


async def test_what_was_changed_while_it_waited_is_not_reset(
    waiting: Clone, http: httpx.AsyncClient, trainer: Trainer
) -> None:
    base = waiting.head
    waiting.set("WIDTH = 48", "WIDTH = 40")
    child = await waiting.started("narrow is enough")
    await submitted(http, waiting, child)
    waiting.set("BETA1 = 0.9", "BETA1 = 0.8")

    async with trainer():
        printed = (await child.communicate())[0].decode()

    assert child.returncode == 3
    assert "because files have changed since: git stash them" in printed
    assert waiting.has("WIDTH = 40")
    assert waiting.has("BETA1 = 0.8")
    git(waiting.path, "stash")
    git(waiting.path, "reset", "--keep", base)
    git(waiting.path, "stash", "pop")
    assert waiting.has("WIDTH = 48")
    assert waiting.has("BETA1 = 0.8")


async def test_interrupted_and_called_again_it_goes_on_waiting_whatever_the_next_hypothesis_is(
    waiting: Clone, http: httpx.AsyncClient, trainer: Trainer
) -> None:
    waiting.set("WIDTH = 48", "WIDTH = 96")
    child = await waiting.started("wide is better")
    await submitted(http, waiting, child)
    child.send_signal(signal.SIGINT)
    errors = (await child.communicate())[1].decode()

    async with trainer():
        done = await waiting.tried("deep is better")

    assert child.returncode == 130, errors
    assert "the same command goes on" in errors
    assert (done.code, done.lines[0][:13]) == (0, "night-2: keep")
    assert done.lines[-1] == "'deep is better' was not submitted: night-2 came first; try again"
    assert (await told(http, "/api/experiment/history", tag="night"))["total"] == 2


async def test_two_at_once_in_one_clone_submit_one_change_once(clone: Clone, http: httpx.AsyncClient) -> None:
    lock = clone.path / ".git" / "index.lock"
    clone.set("WIDTH = 48", "WIDTH = 96")
    lock.touch()  # an editor looks at the clone for a moment

    trying = asyncio.gather(clone.tried("wide is better"), clone.tried("wide is better"))
    while not (clone.path / ".git" / "refs" / "nightjar" / "night-2").exists():  # noqa: ASYNC110 others make it
        await asyncio.sleep(0.05)
    lock.unlink()
    both = await trying

    assert [done.code for done in both] == [0, 0]
    assert clone.changes == ""
    assert both[0].lines == both[1].lines
    assert (await told(http, "/api/experiment/history", tag="night"))["total"] == 2


@pytest.mark.parametrize(
    ("first", "stride"), [(4, 11), pytest.param(1, 1, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]
)
async def test_killed_at_any_step_it_submits_once_and_ends_where_it_should(
    clone: Clone, http: httpx.AsyncClient, tmp_path: Path, first: int, stride: int
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    count, dies, script = (programs / name for name in ("count", "dies", "git"))
    script.write_text(
        f"""#!/bin/bash
n=$(($(cat {count}) + 1)); echo $n > {count}
[ "before $n" = "$(cat {dies})" ] && kill -9 $PPID && exit
{shutil.which("git")} "$@"; status=$?
[ "after $n" = "$(cat {dies})" ] && kill -9 $PPID
exit $status
"""
    )
    script.chmod(0o755)
    assert (await clone.tried_change("WIDTH = 48", "WIDTH = 96")).code == 0  # the best from now on
    best, total, nth, killed = clone.head, 2, first, 0
    while True:
        when = f"{('before', 'after')[killed % 2]} {nth}"
        count.write_text("0")
        dies.write_text(when)
        clone.set("WIDTH = 96", "WIDTH = 64")
        (clone.path / "new.py").write_text(f"NEW = {nth}\n")
        path = f"{programs}:{os.environ['PATH']}"
        hypothesis = f"it was too wide, {when}"
        died = await clone.tried(hypothesis, PATH=path)
        done = await clone.tried(hypothesis)
        total += 1

        assert (done.code, done.lines[0].split(":")[0]) == (3, f"night-{total}"), (when, done)
        assert clone.head == best, when
        assert clone.changes == "", when
        assert git(clone.path, "show", f"refs/nightjar/night-{total}:new.py") == f"NEW = {nth}"
        if died.code == 3:
            break
        assert died.code == -signal.SIGKILL
        nth, killed = nth + stride, killed + 1
    assert killed > 2
    assert (await told(http, "/api/experiment/history", tag="night"))["total"] == total


async def test_in_a_tag_with_traces_it_selects_first(clone: Clone, http: httpx.AsyncClient) -> None:
    multi = {"traces.mode": "multi", "traces.target_traces": 2}
    await told(http, "/api/search/set-policy", tag="night", policy=multi)

    first = await clone.tried_change("WIDTH = 48", "WIDTH = 96")
    carried = await clone.tried_change("BETA1 = 0.9", "BETA1 = 0.8")
    assert (first.code, carried.code) == (0, 3)
    assert clone.has("WIDTH = 48")
    clone.set("WIDTH = 48", "WIDTH = 40")
    clash = await clone.tried("narrow is enough")
    again = await clone.tried("narrow is enough")

    assert (clash.code, again.code) == (1, 1)
    assert clash.errors.splitlines()[0] == again.errors.splitlines()[0]
    assert "your change does not apply to it" in clash.errors
    assert clone.has("WIDTH = 40")
    reset, _, show = clash.errors.partition("-> ")[2].partition(", make it there, and try again; ")
    git(clone.path, *reset.split()[1:])
    assert "+WIDTH = 40" in git(clone.path, *show.partition(" has it")[0].split()[1:])
    last = await clone.tried_change("WIDTH = 96", "WIDTH = 100")

    assert last.code == 0
    answers = [(await http.get(f"/api/experiment/night-{n}")).json()["experiment"] for n in (2, 3, 4)]
    made_from = [(run["selection_id"], run["trace_id"], run["parent_ids"]) for run in answers]
    assert made_from == [
        ("night-s1", "night-t1", []),
        ("night-s2", "night-t2", []),
        ("night-s3", "night-t1", ["night-2"]),
    ]


@pytest.mark.parametrize(
    "fault",
    ["merge", "large", "submodule", "latin", "no base", "two tags"],
)
async def test_what_cannot_be_submitted_is_refused_before_anything_moves(
    waiting: Clone, http: httpx.AsyncClient, fault: str
) -> None:
    path, more, words = waiting.path, {}, fault
    waiting.set("WIDTH = 48", "WIDTH = 96")
    match fault:
        case "merge":
            (path / ".git" / "MERGE_HEAD").write_text(waiting.head)
        case "large":
            (path / "model.bin").write_bytes(os.urandom(6 * 2**20))
            words = "the new file 'model.bin' has over 4 MiB"
        case "submodule":
            git(path, "init", "--quiet", "sub")
            git(path / "sub", "commit", "--quiet", "--allow-empty", "--message", "Begin")
            git(path, "add", "sub")
            git(path, "commit", "--quiet", "--message", "Use sub")
            git(path / "sub", "commit", "--quiet", "--allow-empty", "--message", "Go on")
            await told(http, "/api/experiment/setup", tag="else", base_commit=waiting.head)
            more, words = {"NIGHTJAR_TAG": "else"}, "git submodule update sub"
        case "latin":
            (path / "names.txt").write_bytes(b"caf\xe9\n")
            words = "not UTF-8"
        case "no base":
            await told(http, "/api/experiment/setup", tag="else", base_commit="1234567890abcdef")
            more, words = {"NIGHTJAR_TAG": "else"}, "does not have the commit 1234567890ab"
        case _:
            await told(http, "/api/experiment/setup", tag="else")
            git(path, "branch", "--move", "other")
            words = "the lab has several tags"
    head, files = waiting.head, waiting.changes

    done = await waiting.tried("wide is better", **more)

    assert done.code in (1, 2)
    assert words in done.errors
    assert (waiting.head, waiting.changes) == (head, files)
    if fault != "no base":
        assert (await told(http, "/api/experiment/history", tag="night"))["total"] == 0
    assert not (path / ".git" / "nightjar-try.json").exists()


async def test_files_that_git_ignores_are_neither_sent_nor_overwritten(
    clone: Clone, project: Path, tmp_path: Path
) -> None:
    (tmp_path / ".config" / "git").mkdir(parents=True)
    (tmp_path / ".config" / "git" / "ignore").write_text("*.local\n")
    (clone.path / "keys.local").write_text("secret\n")
    other = Clone(
        tmp_path / "bob", clone.url, {**clone.more, "NIGHTJAR_TAG": "night", "NIGHTJAR_NAME": "bob"}
    )
    git(tmp_path, "clone", "--quiet", str(project), str(other.path))
    (other.path / "keys.local").write_text("other\n")
    other.set("WIDTH = 48", "WIDTH = 96")
    git(other.path, "add", "--force", "keys.local")
    assert (await other.tried("wide is better")).code == 0

    done = await clone.tried_change("WIDTH = 48", "WIDTH = 40")

    assert done.code == 3
    assert "'keys.local', which git ignores, is in the way" in "".join(done.lines)
    assert (clone.path / "keys.local").read_text() == "secret\n"
    assert git(clone.path, "ls-tree", "--name-only", "HEAD", "keys.local") == ""


async def test_every_kind_of_change_arrives_as_it_is_and_is_taken_back(clone: Clone, project: Path) -> None:
    path = clone.path
    before = git(path, "write-tree")
    clone.set("WIDTH = 48", "WIDTH = 40")
    git(path, "add", "train.py")
    clone.set("BETA1 = 0.9", "BETA1 = 0.8")  # staged, and changed again
    (path / "README.md").unlink()
    git(path, "mv", "prepare.py", "moved.py")
    (path / "prepare.py").symlink_to("moved.py")
    (path / "moved.py").chmod(0o755)
    folder = path / "a folder" / 'with "quotes"'
    folder.mkdir(parents=True)
    (folder / "naïve.bin").write_bytes(bytes(range(256)))
    (folder / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "empty").touch()
    (folder / "no newline").write_text("x")

    done = await Clone(folder, clone.url, clone.more).tried("everything at once")

    assert done.code == 3, done
    assert clone.changes == ""
    assert git(path, "write-tree") == before
    built = project.parent / "worker"
    git(built, "add", "--all")
    assert git(built, "write-tree") == git(path, "rev-parse", "refs/nightjar/night-2^{tree}")


@pytest.mark.parametrize("kind", ["detached in a worktree", "shallow", "wrong base tag"])
async def test_every_kind_of_clone_will_do_without_a_name_for_commits(
    clone: Clone, tmp_path: Path, project: Path, kind: str
) -> None:
    path = clone.path
    names = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    match kind:
        case "detached in a worktree":
            git(path, "worktree", "add", "--quiet", "--detach", str(tmp_path / "eve"))
            path = tmp_path / "eve"
        case "shallow":
            path = tmp_path / "shallow"
            git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{project}", str(path))
        case _:
            git(path, "commit", "--quiet", "--allow-empty", "--message", "Elsewhere")
            git(path, "tag", "night-base")
    own = Clone(path, clone.url, {**clone.more, **dict.fromkeys(names, "")})
    own.set("WIDTH = 48", "WIDTH = 40")

    done = await own.tried("narrow is enough")

    assert done.code == 3, done
    assert own.has("WIDTH = 48")
    assert own.changes == ""
    assert own.head == git(project, "rev-parse", "HEAD")


def test_a_patch_has_a_submodule_s_commit_whatever_gitmodules_says(tmp_path: Path) -> None:
    repo = Repository(tmp_path / "repo")
    before = repo.commit({".gitmodules": '[submodule "m"]\n\tpath = m\n\turl = x\n\tignore = all\n'})
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{before},m")
    repo.git("commit", "--quiet", "--message=gitlink")

    assert f"+Subproject commit {before}".encode() in Git(repo.path).diff(before, "HEAD")
