"""The Redis server that we start for a lab unless NIGHTJAR_REDIS_URL names one.

Files of the data directory:

- `owner.lock`: held by the process that started the server.
- `redis.json`: URL, password, pid and version of the server; mode 0600.
- `redis-worker.json`: URL of the workers' user, which has fewer rights; mode 0600.
- `redis/server.lock`: held by the server, to keep a second one from starting while it ends.
- `redis/version`: the newest server that has written here, for example `redis 8.2.3`.
- `redis/redis.log`: log of the server.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psutil
from pydantic import SecretStr

from state.errors import Conflict, NotFound, Unavailable
from state.own_processes import tethered
from state.private import write_private
from state.redis_server import (
    OURS,
    SOCKET_DIR,
    WORKER,
    WORKERS,
    Binary,
    answers,
    check_door,
    endpoint_url,
    find_binary,
    forget,
    hashed,
    says_anything,
    shut_down,
    worker_rules,
    written_by,
)
from state.redis_urls import servers_of
from state.settings import Settings

_log = logging.getLogger(__name__)

_SOCKET_BYTES = 103  # longest path of a socket: 107 on Linux, 103 on macOS
_STOP_S = 10.0
_MUTE_S = 60.0
"""Seconds after which a starting server without any answer counts as failed. A server that loads its data answers."""
_KEEP_LOG_BYTES = 5_000_000


class EmbeddedRedis:
    """A running server and the right to stop it; one per data directory."""

    def __init__(self, settings: Settings, binary: Binary, owner_lock: int) -> None:
        self._data = settings.data_dir
        self._dir = self._data / "redis"
        self._binary = binary
        self._owner_lock = owner_lock
        self._appendfsync = settings.redis_appendfsync
        self._lab = settings.lab
        self._password = secrets.token_hex(24)
        self._worker_password = secrets.token_hex(24)
        self._socket = _socket_path(self._dir)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.url = f"unix://:{self._password}@{quote(str(self._socket))}?db=0"
        self.worker_url = f"unix://{WORKER}:{self._worker_password}@{quote(str(self._socket))}?db=0"

    @classmethod
    def start(cls, settings: Settings) -> EmbeddedRedis:
        """Start the server of `settings.data_dir` and wait until it answers.

        Call from the main thread: the kernel ends the server with the thread that started it.
        Raises Conflict if another process runs a server here (see `adopt`), Unavailable if there is no server
        binary or the server refuses its data.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "the embedded Redis must be started from the main thread, it ends with its thread"
            )
        data = settings.data_dir
        make_data_dir(data)
        try:
            (data / "redis").mkdir(mode=0o700, exist_ok=True)
            lock = _lock(data / "owner.lock")
        except OSError as error:
            raise _unusable(data, error) from error
        if lock is None:
            raise Conflict(
                f"a lab is already running on {str(data)!r}",
                hint="use it, stop it, or choose another folder with --data",
            )
        try:
            binary = find_binary(settings)
            os.close(_server_lock(data))
            forget(data)
            server = cls(settings, binary, lock)
        except BaseException:
            os.close(lock)
            raise
        try:
            server._launch()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def revive(self) -> bool:
        """Start the server again, at the same addresses, if it has died; True if so. Call from the main thread."""
        if self._process is None or not self._has_ended(self._process):
            return False
        self._launch(self.port)
        return True

    def is_heard(self, within_s: float) -> bool:
        """Whether the server answers in time. A stopped one (SIGSTOP) does not. Blocks."""
        return says_anything(self._socket, within_s)

    def kill(self) -> None:
        """Kill the server and its children; `revive` starts it again."""
        if self._process is not None and self._process.returncode is None:  # else the pid may be used again
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _has_ended(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether the server has ended. Its children hold the lock too, and are killed then."""
        if process.returncode is None and psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE:
            self.kill()
        return process.poll() is not None

    def stop(self) -> None:
        """Stop the server by SHUTDOWN, or KILL after ten seconds; may be called twice."""
        if self._process is not None:
            if not shut_down(self.url):
                self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._owner_lock >= 0:
            if self._socket.parent != self._dir:
                shutil.rmtree(self._socket.parent, ignore_errors=True)
            for name in (OURS, WORKERS):
                (self._data / name).unlink(missing_ok=True)
            os.close(self._owner_lock)
            self._owner_lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, port: int = 0) -> None:
        check_manifest(self._dir)
        log = self._dir / "redis.log"
        if log.exists() and log.stat().st_size > _KEEP_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        lock = _server_lock(self._data)
        try:
            for _ in range(10):
                self.port = port or _free_port()
                said = self._try(log, lock)
                if said is None:
                    break
                if "Address already in use" not in said:
                    raise refusal(said, self._binary, self._dir)
                time.sleep(0.1)
            else:
                raise Unavailable(f"port {self.port} of 127.0.0.1 is taken", hint="free it, or try again")
        finally:
            os.close(lock)  # the server keeps its copy
        assert self._process is not None
        write_private(self._dir / "version", str(self._binary))
        endpoint = {
            "url": self.url,
            "port": self.port,
            "password": self._password,
            "pid": self._process.pid,
            "version": str(self._binary).split()[1],
        }
        write_private(self._data / WORKERS, json.dumps({"url": self.worker_url}, indent=2))
        write_private(self._data / OURS, json.dumps(endpoint, indent=2))

    def _try(self, log: Path, lock: int) -> str | None:
        """Start once; None if the server answers, or its log if it has ended."""
        with log.open("ab") as out:
            begin = out.tell()
            self._process = subprocess.Popen(
                tethered([self._binary.path, "-"]),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                pass_fds=[lock],
                process_group=0,  # else Ctrl-C would stop it before the processes that use it
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(os.fsencode(self._config()))
        heard_at = time.monotonic()
        while self._process.poll() is None:
            if answers(self.url):
                if "aof-load-truncated" in (said := read_from(log, begin)):
                    _log.warning(
                        "Redis cut an unfinished last write off its append-only file: %s", reason(said)
                    )
                return None
            if self.is_heard(within_s=2.0):
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > _MUTE_S:
                self.kill()
                raise Unavailable(
                    f"Redis was started but said nothing for {_MUTE_S:.0f} s", hint=f"its log is {str(log)!r}"
                )
            time.sleep(0.005)
        return read_from(log, begin)

    def _config(self) -> str:
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self._password,
            "unixsocket": self._socket,
            "unixsocketperm": "700",
            "dir": self._dir,
            "logfile": self._dir / "redis.log",
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        worker = ["user", WORKER, "on", hashed(self._worker_password), *worker_rules()]
        lines = [[key, str(value)] for key, value in settings.items()]
        return "".join(f"{' '.join([key, *map(_quoted, words)])}\n" for key, *words in [*lines, worker])


def make_data_dir(data: Path) -> None:
    """Make a lab's folder, unless it is there. Raises Unavailable: there is none to write in."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        if not os.access(data, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unusable(data, error) from error


def _unusable(data: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"the data directory {str(data)!r} cannot be used: {error.strerror}",
        hint="choose another with --data",
    )


def adopt(data_dir: Path, *, worker: bool = False) -> str | None:
    """URL of the server of `data_dir`, which accepts the passwords in its files; None if none answers."""
    url = endpoint_url(data_dir, worker=worker)
    return url if url and answers(url) else None


def redis_url(settings: Settings, *, worker: bool = False) -> str:
    """URL of the lab's Redis. Raises Unavailable: none runs, or one that is open to the network."""
    named = (worker and settings.worker_redis_url) or settings.redis_url
    if named:
        return _entered(named, "NIGHTJAR_REDIS_URL")
    if url := adopt(settings.data_dir, worker=worker):
        return url
    raise Unavailable(
        f"no lab is running for {str(settings.data_dir)!r}",
        hint="start one with ./nightjar up, or name one with --data",
    )


def broker_url(settings: Settings, *, worker: bool = False) -> str:
    """URL of the Redis of RQ's queues: the one in the settings, else the lab's.

    Raises:
        Unavailable: it is a Cluster, where RQ does not work, or as `redis_url`.
    """
    named = settings.broker_url
    url = _entered(named, "NIGHTJAR_BROKER_URL") if named else redis_url(settings, worker=worker)
    if (servers := servers_of(url)) is not None and servers.service is None:
        raise Unavailable(
            "RQ's queues cannot be in a Redis Cluster",
            hint="name a plain Redis for them in NIGHTJAR_BROKER_URL",
        )
    return url


@contextlib.contextmanager
def serving(settings: Settings, *, make: bool) -> Iterator[str]:
    """URL of the lab's Redis, which is started meanwhile if none runs.

    Call from the main thread, see `EmbeddedRedis.start`. Raises NotFound if there is no data yet, unless `make`.
    """
    if settings.redis_url or adopt(settings.data_dir):
        yield redis_url(settings)
        return
    if not make and written_by(settings.data_dir) is None:
        raise NotFound(f"there is no lab in {str(settings.data_dir)!r}", hint="name it with --data or --lab")
    with EmbeddedRedis.start(settings) as server:
        yield server.url


def _entered(url: SecretStr, setting: str) -> str:
    check_door(url.get_secret_value(), setting)
    return url.get_secret_value()


def _lock(path: Path) -> int | None:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _server_lock(data: Path) -> int:
    """The lock of the server, once a server left by a dead owner has ended."""
    path = data / "redis" / "server.lock"
    if (lock := _lock(path)) is not None:
        return lock
    if url := endpoint_url(data):  # only Linux ends the server with its owner
        shut_down(url)
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        if (lock := _lock(path)) is not None:
            return lock
        time.sleep(0.02)
    raise Unavailable(
        f"an earlier Redis server still uses {str(data)!r}",
        hint=f"end the process that has {str(path)!r} open",
    )


def _socket_path(preferred: Path) -> Path:
    """A path short enough for a socket, in a folder that only this user can enter."""
    path = preferred / "redis.sock"
    if len(os.fsencode(path)) > _SOCKET_BYTES:
        path = Path(tempfile.mkdtemp(prefix=SOCKET_DIR)) / "redis.sock"
    return path


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


MANIFEST = Path("appendonlydir", "appendonly.aof.manifest")


def check_manifest(directory: Path) -> None:
    """Raise Unavailable if a server's directory has lost its manifest; nothing is written."""
    manifest = directory / MANIFEST
    if manifest.exists() or not ((directory / "version").exists() or any(manifest.parent.glob("*.aof.*"))):
        return
    raise Unavailable(
        f"the lab's data cannot be read: {manifest} is not there",
        hint=f"restore a backup of {str(directory)!r}, or begin an empty lab with another --data",
    )


def read_from(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def reason(said: str) -> str:
    """The important lines of Redis' log, without its advice about the machine."""
    important = re.findall(r"^\S+ .*? # (?!WARNING)(.+)$", said, re.MULTILINE)
    lines = important or [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
    return "; ".join(lines[-3:])


def refusal(said: str, binary: Binary, directory: Path) -> Unavailable:
    """The error for a server that ended with this log. The data stays untouched: see the hint."""
    why = reason(said)
    if "RDB format version" in said:
        return Unavailable(
            f"the data in {str(directory)!r} was written by a newer server than {binary}: {why}",
            hint="name a newer redis-server with NIGHTJAR_REDIS_SERVER",
        )
    if not re.search(r"AOF|append only file|RDB|manifest", why):
        return Unavailable(f"Redis did not start: {why}", hint=f"its log: {str(directory / 'redis.log')!r}")
    data = shlex.quote(str(directory))
    manifest = shlex.quote(str(directory / "appendonlydir" / "appendonly.aof.manifest"))
    check = f"exec -a {binary.product}-check-aof {shlex.quote(binary.path)}"
    return Unavailable(
        f"Redis refuses the data in {str(directory)!r}: {why}",
        hint="nothing was changed.\n"
        f"  back up:  cp -a {data} {data}.backup\n"
        f"  check:    bash -c {shlex.quote(f'{check} {manifest}')}\n"
        "  repair (cuts off everything after the first damage), then start again:\n"
        f"            bash -c {shlex.quote(f'{check} --fix {manifest}')}",
    )
