"""Hostile scripts try to get out of the tiers that confine them."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import sys
import textwrap
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from functions.kernel.git import check_data_dir
from state.errors import Invalid
from state.settings import Settings
from tests.workers.attempt.test_runner import CPU, trained
from tests.workers.repository import Repository
from tests.workers.tiers import needs
from workers.attempt.confine import version
from workers.attempt.isolation import Tier, TierChoice, chosen, described, roots_of
from workers.slot import Slot

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(version() < 6 and not os.environ.get("CI"), reason="this kernel's Landlock is older"),
]


REFUSED = ("PermissionError", "OSError: [Errno 18]")
"""A file is moved or linked across a border as across devices."""
NOT_THERE = ("FileNotFoundError", "ProcessLookupError", "ConnectionRefused", "OSError: [Errno 30]")
"""Further errors in namespaces: missing files, processes and ports, and a read-only file system."""

TIERS = ("landlock", "bwrap")


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> Tier:
    """Each tier that confines."""
    return needs(request.param)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file of the user that is none of a run's business."""
    found = tmp_path / "home" / ".ssh" / "id_ed25519"
    found.parent.mkdir(parents=True)
    found.write_text("planted")
    return found


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Something on this machine that answers, as the lab does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


async def tried(repo: Repository, tier: Tier, *attempts: str, **options: Any) -> dict[str, str]:
    """What became of each statement in a confined run: `done`, or its error."""
    script = "found = []\n" + "".join(
        f"try:\n{textwrap.indent(attempt, '    ')}\n    found.append('done')\n"
        "except BaseException as problem:\n    found.append(f'{type(problem).__name__}: {problem}')\n"
        for attempt in attempts
    )
    script += "for told in found:\n    print('=>', ' '.join(told.split())[:200])\nprint('---\\nval_bpb: 1.0')"
    result = await trained(repo, script, tier=tier, **options)
    told = [line[3:] for line in result.log_tail.splitlines() if line.startswith("=> ")]
    return dict(zip(attempts, told, strict=True))


def all_refused(found: Mapping[str, str]) -> bool:
    """Whether the kernel refused each of them."""
    refusals = (*REFUSED, *NOT_THERE)
    open_to_it = {attempt: told for attempt, told in found.items() if not told.startswith(refusals)}
    assert not open_to_it
    return True


async def test_a_run_reads_no_file_of_its_user_but_what_it_needs(
    repo: Repository, tier: Tier, private: Path
) -> None:
    password = repo.path.parent / "redis.json"
    password.write_text("planted")

    found = await tried(
        repo,
        tier,
        f"open({str(private)!r}).read()",
        f"open({str(password)!r}).read()",
        f"import os; os.listdir({str(private.parent)!r})",
        f"import os; os.symlink({str(private)!r}, 'link'); open('link').read()",
        f"import os; os.link({str(private)!r}, 'hard'); open('hard').read()",
        "open('/etc/shadow').read()" if os.geteuid() == 0 else f"open({str(private)!r})",
        "import os; open(f'/proc/{os.getppid()}/environ').read()",
        "import os; open(f'/proc/{os.getppid()}/mem', 'rb')",
        "open('../log.txt').read()",
    )

    assert all_refused(found)


async def test_a_folder_of_programs_that_has_the_lab_in_it_is_not_read(repo: Repository, tier: Tier) -> None:
    password, of_lab = repo.path.parent / "redis.json", str(repo.path.parent)
    password.write_text("planted")

    found = await tried(
        repo,
        tier,
        f"open({str(password)!r}).read()",
        environ={**os.environ, "PATH": os.pathsep.join((of_lab, os.environ["PATH"]))},
    )

    assert all_refused(found)


async def test_a_run_writes_nothing_but_its_checkout_and_temporary_files(
    repo: Repository, tier: Tier, tmp_path: Path
) -> None:
    outside, name, data = tmp_path / "outside", uuid.uuid4().hex, tmp_path / "data-set"
    outside.write_text("as it was")
    data.mkdir()
    objects = repo.path / ".git" / "objects"

    elsewhere = await tried(
        repo,
        tier,
        f"open({str(objects / 'planted')!r}, 'w')",
        f"open({str(repo.path / 'train.py')!r}, 'a')",
        f"open({os.__file__!r}, 'a')",
        "open('/planted', 'w')",
        f"open({str(data / 'planted')!r}, 'w')",
        data_dirs=[data],
    )
    in_tmp = await tried(
        repo,
        tier,
        f"open({str(outside)!r}, 'w')",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"import os; os.remove({str(outside)!r})",
        f"import os; os.rename({str(outside)!r}, 'mine')",
        f"import os; os.truncate({str(outside)!r}, 0)",
        f"open('/tmp/{name}', 'w')",
        "open('../log.txt', 'a')",
    )

    assert all_refused(elsewhere)
    assert tier == "bwrap" or all_refused(in_tmp)  # which has a /tmp of its own
    assert outside.read_text() == "as it was"
    assert not (tmp_path / "new").exists()
    assert name not in os.listdir("/tmp")


async def test_a_run_connects_to_nothing_and_serves_nobody(
    repo: Repository, tier: Tier, server: socket.socket
) -> None:
    connects = f"import socket; socket.create_connection({server.getsockname()!r}, 5)"
    serves = "import socket; socket.create_server(('127.0.0.1', 0))"

    off = await tried(repo, tier, connects, serves)
    on = await tried(repo, tier, connects, serves, network=True)

    assert all_refused({connects: off[connects]})
    assert tier == "bwrap" or all_refused(off)  # which has a loopback of its own
    assert on == {connects: "done", serves: "done"}


async def test_a_run_signals_no_process_but_its_own(repo: Repository, tier: Tier) -> None:
    found = await tried(
        repo,
        tier,
        f"import os; os.kill({os.getpid()}, 0)",
        "import os; os.kill(os.getppid(), 15)",
        "import os, signal; os.kill(os.getpid(), 0)",
    )

    *others, own = found.items()
    assert all_refused(dict(others))
    assert own[1] == "done"


async def test_what_a_training_needs_is_there(repo: Repository, tier: Tier, tmp_path: Path) -> None:
    data = tmp_path / "data-set"
    data.mkdir()
    (data / "tokens.bin").write_bytes(b"1234")
    (repo.path / "untracked.txt").write_text("of the project")

    found = await tried(
        repo,
        tier,
        "open('checkpoint.pt', 'w').write('w')",
        "import tempfile; tempfile.NamedTemporaryFile().write(b'x')",
        "import os; os.makedirs('a/b'); os.rename('a', 'c'); os.symlink('c', 'd'); os.chmod('c', 0o700)",
        "import os, tempfile; made = tempfile.mkstemp()[1]; os.replace(made, 'saved')",
        "import numpy; numpy.memmap('m', dtype='f4', mode='w+', shape=4)",
        "import multiprocessing as m; p = m.get_context('fork').Pool(2); assert p.map(abs, [-1]) == [1]; p.close()",
        "from multiprocessing import shared_memory as m; b = m.SharedMemory(None, True, 9); b.close(); b.unlink()",
        "import multiprocessing as m; m.Queue().put(1); m.Semaphore().acquire()",
        "import subprocess; subprocess.run(['git', 'log', '-1'], check=True, capture_output=True)",
        "open('/dev/null', 'w').write('x'); open('/dev/urandom', 'rb').read(4)",
        "import getpass, os, platform; os.environ.get('USER') or getpass.getuser(); platform.platform()",
        "import socket; socket.getaddrinfo('localhost', 80)",
        f"assert open({str(data / 'tokens.bin')!r}, 'rb').read() == b'1234'",
        f"open({str(repo.path / 'untracked.txt')!r}).read()",
        "import os; open(os.environ['TORCHINDUCTOR_CACHE_DIR'].rpartition('/')[0] + '/kernel', 'w').write('k')",
        "from nightjar_report import report; report(1.0, 0.5)",
        data_dirs=[data],
    )

    assert set(found.values()) == {"done"}, found
    access = Slot.model_validate({"repo": repo.path, "device": CPU, "tier": tier}).access(
        Settings.model_validate({"data": repo.path.parent})
    )
    assert access is not None
    assert (access.caches / "kernel").read_text() == "k"


async def test_what_landlock_does_not_know_stays_open_without_namespaces(
    repo: Repository, tier: Tier, tmp_path: Path
) -> None:
    served, name, cached = tmp_path / "s", f"/dev/shm/{uuid.uuid4().hex}", f"kernel-{uuid.uuid4().hex}"
    cache = f"os.environ['TRITON_CACHE_DIR'].rpartition('/')[0] + '/{cached}'"
    with socket.socket(socket.AF_UNIX) as unix, socket.socket(type=socket.SOCK_DGRAM) as udp:
        unix.bind(str(served))
        unix.listen()
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        met = await tried(
            repo,
            tier,
            f"import socket; socket.socket(socket.AF_UNIX).connect({str(served)!r})",
            f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', {udp.getsockname()!r})",
            f"open({name!r}, 'w')",
            f"import os; open({cache}, 'w')",
        )
        has_heard = bool(select.select([udp], [], [], 0)[0])
    following = await tried(repo, tier, f"import os; os.remove({name!r})", f"import os; os.remove({cache})")

    socket_with_path, _, shared_memory, kept = met.values()
    its_memory, its_cache = following.values()
    assert (shared_memory, kept, its_cache) == ("done", "done", "done")
    if tier == "landlock":
        assert (socket_with_path, has_heard, its_memory) == ("done", True, "done")
    else:
        assert (socket_with_path[:17], has_heard, its_memory[:17]) == (
            "FileNotFoundError",
            False,
            "FileNotFoundError",
        )


async def test_a_run_leaves_nothing_in_queues_segments_and_keyrings(
    repo: Repository, tier: Tier, tmp_path: Path
) -> None:
    number = uuid.uuid4().int % 2**31
    system_v = ("libc.shmget({0}, 4096, {1})", "libc.semget({0}, 1, {1})", "libc.msgget({0}, {1})")
    queue = f'libc.mq_open(b"/nightjar-{number}", {{0}}, 0o600, None)'
    add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
    user_keyring, session_keyring, search = -4, -3, 10
    known = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); "
    failing = "\nif made < 0: raise OSError(ctypes.get_errno(), 'refused')"
    name = f"b'user', b'nightjar-{number}'"
    made = [
        *(call.format(number, 0o1600) for call in system_v),
        queue.format("os.O_CREAT | os.O_RDWR"),
        *(f"libc.syscall({add_key}, {name}, b'told', 4, {ring})" for ring in (user_keyring, session_keyring)),
    ]
    sought = [
        *(call.format(number, 0) for call in system_v),
        queue.format("os.O_RDWR"),
        *(f"libc.syscall({keyctl}, {search}, {ring}, {name}, 0)" for ring in (user_keyring, session_keyring)),
    ]
    try:
        await tried(repo, tier, *(f"{known}made = {call}{failing}" for call in made))

        following = await tried(repo, tier, *(f"{known}made = {call}{failing}" for call in sought))
    finally:
        libc = ctypes.CDLL(None)
        libc.shmctl(libc.shmget(number, 0, 0), 0, None)
        libc.semctl(libc.semget(number, 0, 0), 0, 0)
        libc.msgctl(libc.msgget(number, 0), 0, None)
        libc.mq_unlink(f"/nightjar-{number}".encode())

    assert not [call for call, told in following.items() if told == "done"]


async def test_children_of_a_run_are_confined_too(repo: Repository, tier: Tier, private: Path) -> None:
    script = (
        "import subprocess, sys\n"
        f'code = "print(open({str(private)!r}).read())"\n'
        "print(subprocess.run([sys.executable, '-c', code], start_new_session=True, env={}).returncode)\n"
        "print('---\\nval_bpb: 1.0')"
    )

    result = await trained(repo, script, tier=tier)

    assert ("PermissionError" if tier == "landlock" else "FileNotFoundError") in result.log_tail
    assert "planted\n" not in result.log_tail


def test_the_strongest_tier_that_works_is_taken_unless_another_is_asked_for() -> None:
    assert chosen("landlock") == TierChoice("landlock")
    assert [chosen("limits"), chosen("none")] == [TierChoice("limits"), TierChoice("none")]
    assert described("landlock") == "landlock (files, TCP, signals)"
    assert described("landlock", network=True) == "landlock (files, signals)"
    assert described("bwrap") == "bwrap (files, network, processes, Landlock)"
    assert described("bwrap", network=True) == "bwrap (files, processes, Landlock)"


def test_bubblewrap_is_taken_where_it_works(tier: Tier) -> None:
    assert tier != "bwrap" or chosen("auto") == chosen("bwrap") == TierChoice("bwrap")


@pytest.mark.parametrize(
    ("program", "problem", "remedy"),
    [
        (None, "bubblewrap is not installed", "install bubblewrap (apt-get install bubblewrap)"),
        (
            "echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1",
            "Creating new",
            "docker",
        ),
        (
            "echo 'bwrap: Unknown option --disable-userns' >&2; exit 1",
            "Unknown option",
            "bubblewrap 0.8 or later",
        ),
    ],
    ids=["missing", "refused", "old"],
)
def test_where_bubblewrap_does_not_work_the_next_tier_is_taken_and_why_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None, problem: str, remedy: str
) -> None:
    if program is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    taken = chosen("auto")

    assert taken.tier == "landlock"
    assert problem in (taken.why or "")
    assert remedy in (taken.why or "")
    with pytest.raises(Invalid, match=problem) as refused:
        chosen("bwrap")
    assert remedy in (refused.value.hint or "")


def test_a_data_directory_in_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)

    check_data_dir(tmp_path / "data", tmp_path / "project")
    with pytest.raises(Invalid, match="lies in the repository"):
        check_data_dir(tmp_path / "link" / "project" / ".nightjar", tmp_path / "project")
    with pytest.raises(Invalid, match="lies in the --data-dir"):
        check_data_dir(tmp_path / "sets" / "lab", tmp_path / "project", [tmp_path / "sets"])


def test_an_interpreter_s_folders_are_found_and_no_home_is_taken_for_one(tmp_path: Path) -> None:
    package = tmp_path / "editable"
    for root in ("python", "venv"):
        (tmp_path / root / "bin").mkdir(parents=True)
        (tmp_path / root / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (tmp_path / "python" / "bin" / "python3").touch()
    (tmp_path / "venv" / "bin" / "python").symlink_to(tmp_path / "python" / "bin" / "python3")
    (tmp_path / "venv" / "lib" / "python3.11" / "site-packages" / "it.pth").write_text(
        f"import it\n{package}\n"
    )
    (tmp_path / "home" / "bin").mkdir(parents=True)
    (tmp_path / "home" / "bin" / "python").symlink_to(tmp_path / "python" / "bin" / "python3")

    ours = [*roots_of(tmp_path / "venv" / "bin" / "python")]
    linked = [*roots_of(tmp_path / "home" / "bin" / "python")]

    assert ours == [tmp_path / "venv", package, tmp_path / "python"]
    assert linked == [tmp_path / "python"]
    assert [*roots_of(Path(sys.executable))][-1] != Path.home()
