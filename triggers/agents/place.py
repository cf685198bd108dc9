"""An agent's own folder: its clone, instructions, token and log.

<data>/agents/<tag>/<name>/
    lock                 held while the agent is kept at work
    log, log.1           what its process printed, and what we did
    clone/               its clone of the research repository, on the branch autoresearch/<tag>-<name>
    clone/.nightjar/     program.md and the files that it names, auth (mode 0600), start.md: all that it was told last
"""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from functions.formats.program_document import FILES, DocumentReader, charter
from functions.kernel.git import command, environment
from state.errors import Conflict, Invalid, Unavailable
from state.private import write_private

ROOT = Path(__file__).parents[2]
"""The folder of program.md, in a checkout and in an installed wheel."""
LONGEST_LOG = 50 * 1024 * 1024
"""Most bytes of a log. The log before it is kept, too."""


@dataclass(frozen=True)
class AgentFolder:
    """The folder of one agent."""

    folder: Path
    tag: str
    name: str

    @property
    def clone(self) -> Path:
        return self.folder / "clone"

    @property
    def handed(self) -> Path:
        """Folder of the agent's instructions, in its clone."""
        return self.clone / ".nightjar"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def locked(self) -> IO[bytes]:
        """Lock the folder until the file is closed. Raises Conflict: this agent is kept at work already."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (self.folder / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            lock.close()
            raise Conflict(
                f"{self.name} is at work on {self.tag} already",
                hint="end the other ./nightjar agent, or give these agents another --name",
            ) from problem
        return lock

    def prepare(self, repo: Path, base: str) -> None:
        """Make the clone with its branch and the tag's base, unless it exists. Raises Invalid: no such base."""
        if not (self.clone / ".git").exists():
            git(self.folder, "clone", "--quiet", "--no-hardlinks", str(repo), str(self.clone))
        if not _succeeds(self.clone, "cat-file", "-e", base + "^{commit}"):
            git(self.clone, "fetch", "--quiet", "origin")
        if not _succeeds(self.clone, "cat-file", "-e", base + "^{commit}"):
            raise Invalid(
                f"{repo} does not have the commit {base[:12]}, the base of {self.tag}",
                hint="--repo is the repository that the lab's workers train, or a clone of it",
            )
        branch = f"autoresearch/{self.tag}-{self.name}"
        if not _succeeds(self.clone, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"):
            git(self.clone, "switch", "--quiet", "--create", branch, base)
            git(self.clone, "tag", "--force", f"{self.tag}-base", base)
        for key, value in (("user.name", self.name), ("user.email", f"{self.name}@agents.invalid")):
            git(self.clone, "config", key, value)
        excluded = self.clone / ".git" / "info" / "exclude"
        if "/.nightjar/" not in (known := excluded.read_text() if excluded.exists() else ""):
            excluded.parent.mkdir(exist_ok=True)
            excluded.write_text(f"{known}/.nightjar/\n")

    def hand_over(
        self, url: str, launcher: str, token: str | None, *, brief: Mapping[str, Any], told: str
    ) -> Path:
        """Write the agent's instructions for this start; answers the file that has all of them."""
        self.handed.mkdir(mode=0o700, exist_ok=True)
        auth = self.handed / "auth"
        auth.unlink(missing_ok=True)
        if token is not None:
            write_private(auth, f"Authorization: Bearer {token}\n")
        reader = DocumentReader(url, self.tag, self.name, launcher, str(auth) if token is not None else None)
        texts = {name: charter((ROOT / name).read_text(), reader) for name in FILES}
        for name, text in texts.items():
            (self.handed / name).write_text(text)
        start = self.handed / "start.md"
        start.write_text(f"{texts[FILES[0]]}\n{_now(brief, told)}")
        return start


def _now(brief: Mapping[str, Any], told: str) -> str:
    """The last part of the instructions: why it was started, and the brief of its tag."""
    return f"""## Now

{told} This text and the files that it names lie in `.nightjar/` of your clone, which is your working directory. You
are set up already: begin with step 0. The brief of this moment:

```json
{json.dumps(brief, ensure_ascii=False)}
```
"""


def git(where: Path, *arguments: str) -> str:
    """What a git command prints. Raises Unavailable: it failed."""
    done = _git(where, *arguments)
    if done.returncode:
        raise Unavailable(f"git {arguments[0]} failed in {where}", hint=done.stderr.strip()[-500:])
    return done.stdout.strip()


def _succeeds(where: Path, *arguments: str) -> bool:
    return _git(where, *arguments).returncode == 0


def _git(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(where, *arguments),
        stdin=subprocess.DEVNULL,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


class AgentLog:
    """A rotated log of an agent's output, in two files at most."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab")

    def write(self, text: bytes) -> None:
        if self._file.tell() + len(text) > LONGEST_LOG:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = self._path.open("ab")
        self._file.write(text)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
