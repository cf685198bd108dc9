"""What a run reaches in the tier `landlock`, tried by scripts that mean no good."""

from __future__ import annotations

import os
import socket
import sys
import textwrap
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from functions.lanes import Failed, Trained, TrainingResult
from state.errors import Invalid
from state.settings import Settings
from tests.workers.attempt.test_runner import CPU, train
from tests.workers.repository import Repository
from workers.attempt import isolation
from workers.attempt.confine import version
from workers.attempt.isolation import chosen, described, roots_of
from workers.options import check_data_dir
from workers.slot import Slot

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(version() < 6 and not os.environ.get("CI"), reason="this kernel's Landlock is older"),
]


REFUSED = ("PermissionError", "OSError: [Errno 18]")
"""A file is moved or linked across a border as across devices."""


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


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


async def tried(repo: Repository, *attempts: str, **options: Any) -> dict[str, str]:
    """What became of each statement in a confined run: `done`, or its error."""
    script = "found = []\n" + "".join(
        f"try:\n{textwrap.indent(attempt, '    ')}\n    found.append('done')\n"
        "except BaseException as problem:\n    found.append(f'{type(problem).__name__}: {problem}')\n"
        for attempt in attempts
    )
    script += "for told in found:\n    print('=>', ' '.join(told.split())[:200])\nprint('---\\nval_bpb: 1.0')"
    result = await isolated(repo, script, **options)
    assert isinstance(result, Trained), result
    told = [line[3:] for line in result.log_tail.splitlines() if line.startswith("=> ")]
    return dict(zip(attempts, told, strict=True))


async def isolated(repo: Repository, script: str, **options: Any) -> TrainingResult:
    return await train(repo, script, tier="landlock", **options)


def all_refused(found: Mapping[str, str]) -> bool:
    """Whether the kernel refused each of them."""
    open_to_it = {attempt: told for attempt, told in found.items() if not told.startswith(REFUSED)}
    assert not open_to_it
    return True


async def test_a_run_reads_no_file_of_its_user_but_what_it_needs(repo: Repository, private: Path) -> None:
    password = repo.path.parent / "redis.json"
    password.write_text("planted")

    found = await tried(
        repo,
        f"open({str(private)!r}).read()",
        f"open({str(password)!r}).read()",
        f"import os; os.listdir({str(private.parent)!r})",
        f"import os; os.symlink({str(private)!r}, 'link'); open('link').read()",
        f"import os; os.link({str(private)!r}, 'hard'); open('hard').read()",
        "open('/etc/shadow').read()" if os.geteuid() == 0 else f"open({str(private)!r})",
        "import os; open(f'/proc/{os.getppid()}/environ').read()",
        "import os; open(f'/proc/{os.getppid()}/mem', 'rb')",
    )

    assert all_refused(found)


async def test_a_run_writes_nothing_but_its_checkout_and_temporary_files(
    repo: Repository, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    objects = repo.path / ".git" / "objects"

    found = await tried(
        repo,
        f"open({str(outside)!r}, 'w')",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"open({str(objects / 'planted')!r}, 'w')",
        f"open({str(repo.path / 'train.py')!r}, 'a')",
        f"import os; os.remove({str(outside)!r})",
        f"import os; os.rename({str(outside)!r}, 'mine')",
        f"import os; os.truncate({str(outside)!r}, 0)",
        "open('/tmp/planted', 'w')",
        f"open({os.__file__!r}, 'a')",
        "open('../log.txt', 'a')",
    )

    assert all_refused(found)
    assert outside.read_text() == "as it was"


async def test_a_run_connects_to_nothing_and_serves_nobody(repo: Repository, server: socket.socket) -> None:
    connects = f"import socket; socket.create_connection({server.getsockname()!r}, 5)"
    serves = "import socket; socket.create_server(('127.0.0.1', 0))"

    off = await tried(repo, connects, serves)
    on = await tried(repo, connects, serves, network=True)

    assert all_refused(off)
    assert on == {connects: "done", serves: "done"}


async def test_a_run_signals_no_process_but_its_own(repo: Repository) -> None:
    found = await tried(
        repo,
        f"import os; os.kill({os.getpid()}, 0)",
        "import os; os.kill(os.getppid(), 15)",
        "import os, signal; os.kill(os.getpid(), 0)",
    )

    *others, own = found.items()
    assert all_refused(dict(others))
    assert own[1] == "done"


async def test_what_a_training_needs_is_there(repo: Repository, tmp_path: Path) -> None:
    data = tmp_path / "data-set"
    data.mkdir()
    (data / "tokens.bin").write_bytes(b"1234")
    (repo.path / "untracked.txt").write_text("of the project")

    found = await tried(
        repo,
        "open('checkpoint.pt', 'w').write('w')",
        "import tempfile; tempfile.NamedTemporaryFile().write(b'x')",
        "import os; os.makedirs('a/b'); os.rename('a', 'c'); os.symlink('c', 'd'); os.chmod('c', 0o700)",
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
    caches = Slot.model_validate({"repo": repo.path, "device": CPU}).ground(
        Settings.model_validate({"data": repo.path.parent})
    )
    assert (caches.caches / "kernel").read_text() == "k"


async def test_a_named_data_folder_is_not_written(repo: Repository, tmp_path: Path) -> None:
    data = tmp_path / "data-set"
    data.mkdir()

    found = await tried(repo, f"open({str(data / 'planted')!r}, 'w')", data_dirs=[data])

    assert all_refused(found)


async def test_what_landlock_does_not_know_stays_open(repo: Repository, tmp_path: Path) -> None:
    served, name = tmp_path / "s", f"/dev/shm/{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as unix, socket.socket(type=socket.SOCK_DGRAM) as udp:
        unix.bind(str(served))
        unix.listen()
        udp.bind(("127.0.0.1", 0))
        found = await tried(
            repo,
            f"import socket; socket.socket(socket.AF_UNIX).connect({str(served)!r})",
            f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', {udp.getsockname()!r})",
            f"open({name!r}, 'w')",
            "import os; open(os.environ['TRITON_CACHE_DIR'].rpartition('/')[0] + '/kernel', 'w')",
        )
    following = await tried(
        repo,
        f"import os; os.remove({name!r})",
        "import os; os.remove(os.environ['TRITON_CACHE_DIR'].rpartition('/')[0] + '/kernel')",
    )

    assert {*found.values(), *following.values()} == {"done"}, (found, following)


async def test_children_of_a_run_are_confined_too(repo: Repository, private: Path) -> None:
    script = (
        "import subprocess, sys\n"
        f'code = "print(open({str(private)!r}).read())"\n'
        "print(subprocess.run([sys.executable, '-c', code], start_new_session=True, env={}).returncode)\n"
        "print('---\\nval_bpb: 1.0')"
    )

    result = await isolated(repo, script)

    assert isinstance(result, Trained), result
    assert "PermissionError" in result.log_tail
    assert "planted\n" not in result.log_tail


async def test_who_is_refused_a_file_is_told_how_to_name_it(repo: Repository, private: Path) -> None:
    refused = await isolated(repo, f"open({str(private)!r})")
    failed = await isolated(repo, "raise ValueError('of its own')")

    assert isinstance(refused, Failed)
    assert isinstance(failed, Failed)
    assert "--data-dir FOLDER" in refused.error.splitlines()[1]
    assert "--data-dir" not in failed.error


async def test_a_program_that_is_missing_is_told_as_before(repo: Repository) -> None:
    result = await isolated(repo, "", command=["no-such-program"])

    assert isinstance(result, Failed)
    assert "no-such-program" in result.error


def test_the_strongest_tier_that_works_is_taken_unless_another_is_asked_for() -> None:
    assert [chosen("auto"), chosen("landlock")] == ["landlock", "landlock"]
    assert [chosen("limits"), chosen("none")] == ["limits", "none"]
    assert described("landlock") == "landlock (files, TCP, signals)"
    assert described("landlock", network=True) == "landlock (files, signals)"


def test_where_landlock_does_not_work_it_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "version", lambda: 0)

    assert chosen("auto") == "limits"
    with pytest.raises(Invalid, match="has no Landlock") as refused:
        chosen("landlock")
    assert refused.value.hint == "--isolation limits"


def test_a_data_directory_in_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)

    check_data_dir(tmp_path / "data", tmp_path / "project")
    with pytest.raises(Invalid, match="lies in the repository"):
        check_data_dir(tmp_path / "link" / "project" / ".nightjar", tmp_path / "project")


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
