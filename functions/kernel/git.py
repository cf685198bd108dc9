"""Starts git without hooks, monitors, filters, prompts or fetches, and without any configuration.

A commit's `.gitattributes` names filters and drivers, and a configuration says which programs these are. So git reads
neither the user's configuration nor the system's. Workers use repositories of their own, which configure nothing.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null"),
    *("core.excludesFile=/dev/null", "core.autocrlf=false", "submodule.recurse=false"),
)
_PASSED = ("HOME", "PATH", "TMPDIR", "NIGHTJAR_OWN")
"""Variables of this process that git inherits. `NIGHTJAR_OWN` marks the processes of a worker."""
_TRUSTED = "safe.directory"
NAME_YOURSELF = "git config --global user.name NAME, and user.email ADDRESS"
"""Remedy if `knows_user` is false."""


def command(where: Path, *arguments: str) -> list[str]:
    """The command line of git in a folder. Run it with `environment`."""
    return ["git", "-C", str(where), *(part for setting in _SETTINGS for part in ("-c", setting)), *arguments]


def environment(**names: str) -> dict[str, str]:
    """The whole environment of a git process, with further names."""
    trusted = _trusted()
    return {
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": str(len(trusted)),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_CONFIG_KEY_{nth}": _TRUSTED for nth in range(len(trusted))},
        **{f"GIT_CONFIG_VALUE_{nth}": folder for nth, folder in enumerate(trusted)},
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **names,
    }


def knows_user(repo: Path) -> bool:
    """Whether a commit of this process' user has an author, by the user's own configuration."""
    asked = command(repo, "var", "GIT_COMMITTER_IDENT")
    return subprocess.run(asked, env=os.environ, capture_output=True, check=False).returncode == 0


def user_excludes() -> Path:
    """The file with the patterns that the user's own git ignores in every repository; it need not exist."""
    named = _of_user("--type=path", "--get", "core.excludesFile")
    config = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(named[0]) if named else Path(config, "git", "ignore")


@cache
def _trusted() -> list[str]:
    """The user's `safe.directory` entries, the only part of the user's configuration that every git keeps."""
    return _of_user("--get-all", _TRUSTED)


def _of_user(*asked: str) -> list[str]:
    """Values of the user's own configuration."""
    try:
        done = subprocess.run(
            ["git", "config", "--null", *asked],
            env=os.environ | {"GIT_DIR": os.devnull},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:  # git is not installed; the command that needs it fails with a reason
        return []
    return os.fsdecode(done.stdout).split("\0")[:-1]
