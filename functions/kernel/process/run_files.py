"""Files of a project that git does not carry: linked data, submodules, Git LFS, and warnings about the rest.

Runs get the files of a commit. The project's owner names further data by `--link`, or in `nightjar.toml`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from functions.formats.metrics_block import without_controls
from functions.formats.patches import LONGEST_POINTER, Pointer, pointer_in
from functions.kernel.git import git_says
from state.errors import Invalid, NightjarError

CONFIG = "nightjar.toml"
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/proc", "/sys"),
    *("/run/systemd/resolve", "/run/nvidia-persistenced"),
)
"""Folders of the system that every run may read."""
UPSTREAM_CACHE = "~/.cache/autoresearch"
"""Data folder of the upstream research project, karpathy/autoresearch."""
_OF_DATA = frozenset({".cache", ".keras", ".torch", ".fastai", ".mxnet", ".dgl", ".ir_datasets"})
"""Hidden folders in which libraries keep data. Others may hold secrets."""
_NEVER_DATA = ("/etc", "/dev", "/boot", "/run/secrets", "/run/user", *SYSTEM)
_TEXTS = (".py", ".sh", ".toml", ".yaml", ".yml", ".json", ".ini", ".cfg")
_OF_TOOLS = re.compile(
    r"(?:.*/)?(?:\..*|(?:tests?|docs?)/.*|pyproject\.toml|setup\.(?:py|cfg)|tox\.ini|mkdocs\.yml|package(?:-lock)?\.json)"
)
"""Texts that no run reads. They name folders that tools make."""
_OF_RESULTS = frozenset({"wandb", "mlruns", "lightning_logs", "multirun", "logs", "output", "outputs"})
_MOST_TEXTS = 500
_MOST_NAMED = 5


def linked(repo: Path, named: Sequence[str]) -> Mapping[str, Path]:
    """Data beside the files of a commit: its path in the project, and its real place.

    `named` come from the owner and may lead anywhere. Links of nightjar.toml and of a commit may come from a
    stranger, and must stay inside the project.

    Raises:
        Invalid: one is no path inside the project, is not there, or leads out of the project on a stranger's word.
    """
    root, found = repo.resolve(), {}
    own = [_inside(repo, name, "--link") for name in named]
    for name in (*own, *(_inside(repo, name, CONFIG) for name in _configured(repo)[0])):
        place = repo / name
        if not place.exists():
            raise Invalid(
                f"{name} is to be linked into runs, but {repo} has none",
                hint=f"name what is there: --link, or `link` in {CONFIG}",
            )
        real = place.resolve()
        is_own = name in own and git_says(repo, "ls-files", "--", f":(literal){name}").stdout == ""
        if not is_own and not real.is_relative_to(root):
            opens = f"--link {name}" if name not in own else f"--data-dir {real}"
            raise Invalid(
                f"{name} is to be linked into runs, and leads out of the project to {real}",
                hint=f"if runs may read that: {opens}",
            )
        found[name] = real
    return found


def own_functions(repo: Path) -> Path | None:
    """The folder of functions of your own that the project's nightjar.toml names.

    Raises:
        Invalid: git carries that nightjar.toml. It may be a stranger's, and the folder's files run as the lab.
    """
    _, name = _configured(repo)
    if name is None:
        return None
    if git_says(repo, "ls-files", "--", CONFIG).stdout:
        raise Invalid(
            f"{CONFIG} of {repo} names functions, which run as the lab, and git carries it",
            hint=f"if you trust them: --functions {shlex.quote(str(repo / name))}, or take {CONFIG} out of git",
        )
    return repo / Path(name).expanduser()


def _configured(repo: Path) -> tuple[list[str], str | None]:
    """Links and the functions' folder of the project's own nightjar.toml. Commits of agents do not change it."""
    place = repo / CONFIG
    if not os.path.lexists(place):
        return [], None
    try:
        told = tomllib.loads(_start_of(place, LONGEST_TEXT).decode())
    except (OSError, ValueError) as problem:
        raise Invalid(f"{place} cannot be read: {problem}", hint="mend it") from problem
    names, functions = told.pop("link", []), told.pop("functions", None)
    is_right = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if told or not is_right or not isinstance(functions, str | None):
        hint = 'link = ["data"], functions = "FOLDER"'
        raise Invalid(f"{place} may have two lines, a list of paths and a folder", hint=hint)
    return names, functions


def _inside(repo: Path, name: str, where: str) -> str:
    """A path in the project as git writes it."""
    path = PurePosixPath(name)
    if path.is_absolute() and where != CONFIG and path.is_relative_to(repo):
        path = path.relative_to(repo)
    parts = path.parts
    if path.is_absolute() or not parts or ".." in parts or ".git" in map(str.lower, parts):
        raise Invalid(
            f"{where} names {name!r}, which is no path inside the project",
            hint="name a file or folder of the project; --data-dir opens others to runs",
        )
    if link := next((up for up in list(path.parents)[-2::-1] if (repo / up).is_symlink()), None):
        raise Invalid(f"{where} names {name!r}, and {link} is a symbolic link", hint=f"--link {link}")
    return str(path)


def untracked(repo: Path, *below: str) -> list[str]:
    """Files and whole folders of a project, or below these paths of it, that git does not carry."""
    asked = ("ls-files", "--others", "--directory", "-z", "--", *(f":(literal){path}" for path in below))
    return untracked_in(git_says(repo, *asked).stdout)


def untracked_in(answer: str) -> list[str]:
    """Untracked paths from `ls-files --others --directory -z`, without compiled code, which would run instead of its
    source."""
    found = (name.rstrip("/") for name in answer.split("\0"))
    return [name for name in found if name and PurePosixPath(name).name != "__pycache__"]


def common_dir(repo: Path) -> Path:
    """The common folder of all working trees of a repository. Raises Invalid: git does not read it."""
    if not (repo / ".git").exists():  # a submodule's, in `.git/modules`: its working tree may be gone
        return repo
    done = git_says(repo, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if done.returncode:
        raise Invalid(f"git does not read {repo}: {done.stderr.strip()}")
    return Path(done.stdout.removesuffix("\n"))


def lfs_store(repo: Path) -> Path:
    """Folder of a repository's Git LFS objects."""
    common = common_dir(repo)
    asked = ("config", "--file", str(common / "config"), "--get", "lfs.storage")
    return Path(common, git_says(common, *asked).stdout.strip() or "lfs", "objects")


def has_object(store: Path, pointer: Pointer) -> bool:
    """Whether a store has the full content of a pointer."""
    place = store / pointer.place
    return place.is_file() and place.stat().st_size == pointer.size


def own_copy(repo: Path, path: str) -> Path | None:
    """The project's repository of a submodule: in its folder, else in `.git/modules`; None where it has none.

    A folder that a symbolic link leads to may be another project's, and does not count.
    """
    place = repo.resolve() / path
    if (place / ".git").exists() and place.resolve() == place:
        return place
    place = common_dir(repo).resolve() / "modules" / path
    return place if (place / "objects").is_dir() and place.resolve() == place else None


def submodules(listed: str) -> list[str]:
    """Paths of submodules, from `ls-files --stage -z`."""
    return [line.partition("\t")[2] for line in listed.split("\0") if line.startswith("160000 ")]


def left_behind(repo: Path, links: Iterable[str], readable: Sequence[Path] | None) -> list[str]:
    """Files that runs name and cannot read, each with its remedy. Blocks. `readable` None: all of their user's."""
    try:
        return [without_controls(told) for told in _left_behind(repo, links, readable)]
    except NightjarError as problem:
        return [problem.detail]


def _left_behind(repo: Path, links: Iterable[str], readable: Sequence[Path] | None) -> Iterator[str]:
    listed = git_says(repo, "ls-files", "--stage", "-z").stdout
    files = [line.partition("\t")[2] for line in listed.split("\0")]
    named, folders = NamedLinks.by(texts_of(repo, files)), folders_of(files)
    yield from (to_fetch(repo, path) for path in submodules(listed) if own_copy(repo, path) is None)
    if unfetched := [path for path, pointer in pointers(repo) if not has_object(lfs_store(repo), pointer)]:
        yield f"Git LFS has not fetched {_some(unfetched)}: {pull(repo)}"
    entries = [path for path in untracked(repo) if _may_be_data(repo, path) and not _is_linked(path, links)]
    if lacking := [*dict.fromkeys(link_for(repo, path, folders) for path in named.among(entries))]:
        yield f"no commit has {_some(lacking)}: {if_read(lacking)}"
    if beyond := [] if readable is None else named.beyond(repo, readable):
        yield f"runs may not read {_some([*map(str, beyond)])} here: {if_opened(beyond)}"


def to_fetch(repo: Path, path: str) -> str:
    """Advice to fetch a submodule."""
    return f"the submodule {path} has no copy in the project, so runs find it empty: {fetch(repo)}"


def fetch(repo: Path) -> str:
    """The command that fetches a project's submodules."""
    return f"git -C {shlex.quote(str(repo))} submodule update --init --recursive"


def pull(repo: Path) -> str:
    """The command that fetches a project's files of Git LFS."""
    return f"git -C {shlex.quote(str(repo))} lfs pull"


def if_read(names: Sequence[str]) -> str:
    """Advice to give runs data that no commit has."""
    options = " ".join(f"--link {shlex.quote(name)}" for name in names[:_MOST_NAMED])
    return f"if runs read it, start `up` or the worker with {options}"


def if_opened(folders: Sequence[Path]) -> str:
    """Advice to let confined runs read other folders."""
    options = " ".join(f"--data-dir {shlex.quote(str(folder))}" for folder in folders[:_MOST_NAMED])
    return f"start `up` or the worker with {options}"


def link_for(repo: Path, path: str, folders: Collection[str]) -> str:
    """The value of `--link` for a path: the folder around it, whole or beside the `folders` of a commit."""
    steps = [*map(str, list(PurePosixPath(path).parents)[-2::-1]), path]
    whole = next(step for step in steps if step == path or step not in folders)
    return whole if (repo / whole).is_dir() or len(steps) == 1 else steps[-2]


def folders_of(files: Iterable[str]) -> frozenset[str]:
    """The folders that these files lie in."""
    return frozenset(str(folder) for file in files for folder in PurePosixPath(file).parents)


def texts_of(repo: Path, files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The programs and configurations among these files of a project, each with its folder."""
    names = (name for name in files if name.endswith(_TEXTS) and not _OF_TOOLS.fullmatch(name))
    for name in itertools.islice(names, _MOST_TEXTS):
        with contextlib.suppress(OSError):
            text = _start_of(repo / name, LONGEST_TEXT).decode(errors="replace")
            yield os.path.dirname(name), text


def pointers(tree: Path) -> Iterator[tuple[str, Pointer]]:
    """Files of Git LFS that are pointers still, in a working tree."""
    for name in git_says(tree, "ls-files", "-z", "--", ":(attr:filter=lfs)").stdout.split("\0")[:-1]:
        with contextlib.suppress(OSError):
            if pointer := pointer_in(_start_of(tree / name, LONGEST_POINTER + 1)):
                yield name, pointer


def _start_of(place: Path, most: int) -> bytes:
    """The first bytes of a file that a repository may have made. Raises OSError: no regular file."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(most)


@dataclass(frozen=True)
class NamedLinks:
    """Paths that texts of a project name."""

    strings: frozenset[tuple[str, str]]
    """Each with the folder of the file that has it."""

    @classmethod
    def by(cls, texts: Iterable[tuple[str, str]]) -> NamedLinks:
        return cls(frozenset((folder, string) for folder, text in texts for string in strings_read(text)))

    def among(self, paths: Iterable[str]) -> list[str]:
        """The relative paths that are named, or contain or are contained in a named one."""
        names = {inside(os.path.normpath(os.path.join(*place))) for place in self.strings}
        names = (names | {inside(string) for _, string in self.strings}) - {PurePosixPath()}
        above = {parent for name in names for parent in name.parents}
        return [
            path
            for path in paths
            if PurePosixPath(path) in above
            or not names.isdisjoint((PurePosixPath(path), *PurePosixPath(path).parents))
        ]

    def beyond(self, repo: Path, readable: Sequence[Path]) -> list[Path]:
        """Folders of data elsewhere on this machine that are named, and that this user may read but runs may not."""
        places = (
            Path(string).expanduser() for _, string in self.strings if string[:2] == "~/" or string[:1] == "/"
        )
        found = (folder_of_data(place) for place in places if not place.is_relative_to(repo))
        return sorted({folder for folder in found if folder and not is_below(folder, readable)})


def inside(name: str) -> PurePosixPath:
    """A relative path from the project's top, where a script that has gone into a folder of it names `../data`."""
    return PurePosixPath(*itertools.dropwhile("..".__eq__, PurePosixPath(name).parts))


def is_below(place: Path, folders: Iterable[Path]) -> bool:
    """Whether a real path is one of these folders, or inside one."""
    real = place.resolve()
    return any(real.is_relative_to(folder.resolve()) for folder in folders)


def folder_of_data(place: Path) -> Path | None:
    """Value of `--data-dir` for a place; None if its folder holds more than data.

    Not offered are a home or its cache as a whole, the system's folders, and hidden folders, which may hold secrets.
    """
    try:
        if not os.access(place, os.R_OK):
            return None
        folder = place if place.is_dir() else place.parent
        real, home = folder.resolve(), Path.home().resolve()
    except (OSError, RuntimeError, ValueError):
        return None
    hidden = {part for part in real.parts if part.startswith(".")}
    if home.is_relative_to(real) or hidden - _OF_DATA or any(map(real.is_relative_to, _NEVER_DATA)):
        return None
    cache = home / ".cache"
    if not real.is_relative_to(cache):
        return folder
    return cache.joinpath(*real.relative_to(cache).parts[:2]) if real != cache else None


def _may_be_data(repo: Path, path: str) -> bool:
    """Whether an untracked path may be data: no environment, no code, no hidden file, no results."""
    if (repo / path).is_dir():
        if PurePosixPath(path).name in _OF_RESULTS:
            return False
        return not (repo / path / "pyvenv.cfg").exists() and not path.endswith(".egg-info")
    return not path.startswith(".") and not path.endswith((".py", ".pyc"))


def _is_linked(path: str, links: Iterable[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(link) for link in links)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# -- Paths that the text of a program names

LONGEST_TEXT = 1_000_000
"""Characters that are read of one text."""
_STRING = re.compile(r"""(['"`])((?:(?!\1)[^\\\n]){1,400})\1""")
_WORD = re.compile(r"(?<![\w.@+~/-])(?:~|\.{1,2})?/?[\w.@+-]{1,200}(?:/[\w.@+-]{1,200})+/?")
_VALUE = re.compile(r"[:=][ \t]{0,9}([\w.@+-]{1,200})[ \t]{0,9}$", re.MULTILINE)
_VARIABLE = re.compile(r"\$?\{[^{}\n]{0,200}\}/|\$\w{1,100}/")
_OUTPUT = (
    r"(?i:(?:\b|_)(?:out(?:put)?s?|results?|save|logs?|reports?|figures?|plots?|te?mp)"
    r"(?:[_-]?(?:dir|path|file|folder|root|name|prefix)s?)?)"
)
"""Name of an option or a variable for what a script writes."""
_WRITES = re.compile(
    r"(?:\b|_)(?:(?:save|dump|mkdir|makedirs|write)\w{0,40}|imwrite|basicConfig)\("
    r"|\bto_(?:csv|json|parquet|pickle|feather|hdf|excel)\("
    r"|\b[A-Z]\w{0,40}(?:Writer|Logger|Handler|Checkpoint)\("
    r"|,\s{0,9}(?:mode\s{0,9}=\s{0,9})?['\"][awx][bt]?\+?['\"]"
    rf"|{_OUTPUT}['\"]?(?::\s{{0,9}}(?:str|Path)\s{{0,9}})?\s{{0,9}}"
    r"(?:[:=]\s{0,9}(?:[\w.]{0,40}(?:join|Path)\()?[\[(rf]{0,2}['\"]|:\s{1,9}\[?[\w./$]|,.{0,200}\bdefault\s{0,9}=)"
)
_LONGEST_LINE = 1000


def strings_of(text: str) -> Iterator[str]:
    """What stands in quotes, and as in a configuration or an error words with a slash, and values at a line's end."""
    text = text[:LONGEST_TEXT].replace("$HOME/", "~/")
    text = _VARIABLE.sub("", text)  # f"{HERE}/data", ${here}/data
    yield from (found[2] for found in _STRING.finditer(text))
    yield from (found[0] for found in _WORD.finditer(text))
    yield from (found[1] for found in _VALUE.finditer(text))


def is_write(line: str) -> bool:
    """Whether a line of a program or a configuration names what a run writes."""
    return len(line) <= _LONGEST_LINE and _WRITES.search(line) is not None


def strings_read(text: str) -> Iterator[str]:
    """The strings of a program's text, without those of lines that name what it writes."""
    lines = text[:LONGEST_TEXT].splitlines()
    yield from strings_of("\n".join(line for line in lines if not is_write(line)))
