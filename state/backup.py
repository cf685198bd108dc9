"""A lab in one file: `back_up` writes its state at one moment while it runs, `restore` makes a lab from it.

The file is a gzip stream of

    {"format": "nightjar backup", "version": 1, "schema": ..., "lab": ..., "time": ..., "redis": ...}\\n
    per key: its name's length, its payload's length (4 bytes each), its expiry (8 bytes, milliseconds since
             1970, 0 for none; all big-endian), its name without the lab, and the payload of Redis' DUMP
    per patch of the archive: the same, its name `patch/` and its SHA-256, its payload compressed by zlib
    8 bytes of zero, then {"keys": ..., "sha256": <of everything before the zeros>}\\n

`zcat FILE | head -1` shows what it holds; `restore` detects a file that was cut or changed before it writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
import os
import secrets
import struct
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from redis.exceptions import ResponseError

from state.archive import Archive, no_archive
from state.client import SCHEMA, Lab
from state.decisions import AfterLease, BrokenLease, Ended, Requeued, SameAttempt
from state.errors import Conflict, Invalid, NotFound, Unavailable
from state.experiments import Experiments
from state.migrations import migrate
from state.moves import GivenArgs, load
from state.pool import Pool
from state.presence import Presence
from state.records import stamp

FORMAT, VERSION = "nightjar backup", 2
LEFT_OUT = frozenset(
    {
        "processes",
        "process_facts",
        "identity",
        "restoring",
        "migration",
        "sessions",
        "token_sessions",
        "codes",
        "tickets",
        "tries",
        "archived",
        "signing_keys",
    }
)
"""Key names that a backup leaves out: of these a restored lab gets its own, and it has all patches in Redis."""
OF_ARCHIVE = "patch/"
"""What the name of a patch of the archive begins with."""
PLAIN = -1
"""Stands for the expiry of a key whose payload is a text, and not of Redis' DUMP."""
KEYS_AT_ONCE = 1000
PATCHES_AT_ONCE = 25
"""Fewer, because a patch may have megabytes, other keys hundreds of bytes."""
BYTES_AT_ONCE = 8 * 1024 * 1024
PAUSE_MS = 1000
"""Longest wait of writers for a backup that was killed."""
PAUSED_SHARE = 0.6
"""Share of the writers' timeout for which a backup may pause them."""
TRIES = 3
SILENT_S = 15.0
"""A restore that is silent for so long was killed: another may begin."""
FENCE_LEAP = 1_000_000
"""Fences leap by more than the number of leases between a backup and the loss of its lab."""

LONGEST_KEY, LONGEST_PAYLOAD = 64 * 1024, 2 * 1024 * 1024 * 1024
"""Bytes: far more than any key of ours has."""

_LENGTHS = struct.Struct(">IIQ")
_END = bytes(8)

Tell = Callable[[int], None]
"""Receives the number of keys that are done."""


@dataclass(frozen=True)
class Header:
    """The first line of a backup."""

    format: str
    version: int
    schema: Annotated[int, Field(ge=1)]
    lab: str
    time: str
    redis: str


@dataclass(frozen=True)
class BackedUp:
    """The result of a backup."""

    keys: int
    size: int
    """Bytes of the file."""
    paused_s: float
    """How long the lab's writers waited; 0 if no process of it was alive."""


@dataclass(frozen=True)
class Restored:
    """The result of a restore."""

    header: Header
    keys: int
    waiting_again: Sequence[str]
    """Experiments that were leased or running: they run again."""


Entry = tuple[str, bytes, int]
"""A key's name without the lab, its payload, its expiry (0: none)."""


def is_left_out(name: str) -> bool:
    """Whether a backup leaves out this key (its name without the lab)."""
    return name.partition(":")[0] in LEFT_OUT


# -- the file


class Writer:
    """Writes a backup under another name, and renames it once it is whole and on the disk."""

    def __init__(self, file: Path, header: Header) -> None:
        self._file = file
        self._draft = file.with_name(f".{file.name}.{os.getpid()}")
        self._draft.unlink(missing_ok=True)
        descriptor = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._raw = os.fdopen(descriptor, "wb")
        self._gzip = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=1, mtime=0, filename="")
        self._digest = hashlib.sha256()
        self._put(_line(asdict(header)))

    def fill(self, keys: IO[bytes]) -> None:
        """Append a whole file of keys that `packed` has encoded."""
        keys.seek(0)
        while part := keys.read(1024 * 1024):
            self._put(part)

    def add(self, entry: Entry) -> None:
        """Append one key."""
        self._put(packed([entry]))

    def finish(self, keys: int) -> int:
        """Close and rename the file; returns its size in bytes."""
        self._gzip.write(_END + _line({"keys": keys, "sha256": self._digest.hexdigest()}))
        self._gzip.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
        self._draft.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self._file.stat().st_size

    def discard(self) -> None:
        """Remove the unfinished file; does nothing after `finish`."""
        self._raw.close()
        self._draft.unlink(missing_ok=True)

    def _put(self, part: bytes) -> None:
        self._digest.update(part)
        self._gzip.write(part)


def packed(entries: Iterable[Entry]) -> bytes:
    """Keys in the format of the file."""
    parts: list[bytes] = []
    for name, payload, expiry in entries:
        encoded = name.encode()
        parts += (_LENGTHS.pack(len(encoded), len(payload), expiry), encoded, payload)
    return b"".join(parts)


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def read_header(file: Path) -> Header:
    """The header of a backup.

    Raises:
        Invalid: it is not a backup that this version reads. NotFound: there is no such file.
    """
    with _opened(file) as (header, _, _):
        return header


def entries(file: Path) -> Iterator[Entry]:
    """Every key of a backup; checks at the end that the file is whole.

    Raises:
        Invalid: it is not a backup, or was cut or changed.
    """
    with _opened(file) as (_, first_line, stream):
        digest = hashlib.sha256(first_line)
        count = 0
        while (begin := _exactly(stream, 8)) != _END:
            lengths = begin + _exactly(stream, _LENGTHS.size - 8)
            name_length, length, expiry = _LENGTHS.unpack(lengths)
            if name_length > LONGEST_KEY or length > LONGEST_PAYLOAD:
                raise ValueError("one of its keys is longer than any key of Redis")
            name, payload = _exactly(stream, name_length), _exactly(stream, length)
            for part in (lengths, name, payload):
                digest.update(part)
            count += 1
            yield name.decode(), payload, expiry
        if json.loads(stream.readline(10_000)) != {
            "keys": count,
            "sha256": digest.hexdigest(),
        } or stream.read(1):
            raise ValueError("its checksum differs")


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tuple[Header, bytes, gzip.GzipFile]]:
    try:
        with gzip.open(file, "rb") as stream:
            first_line = stream.readline(10_000)
            header = TypeAdapter(Header).validate_json(first_line, strict=True)
            if header.format != FORMAT:
                raise ValueError(f"its format is {header.format!r}")
            if header.version > VERSION:
                raise Invalid(
                    f"{str(file)!r} has version {header.version} of the format, this version reads {VERSION}",
                    hint="restore it with the version of Nightjar that wrote it",
                )
            yield header, first_line, stream
    except FileNotFoundError as problem:
        raise NotFound(
            f"there is no file {str(file)!r}", hint="name one that nightjar backup wrote"
        ) from problem
    except PermissionError as problem:
        raise Invalid(
            f"{str(file)!r} is not yours to read",
            hint="restore as the user who wrote the backup: only that one can read it",
        ) from problem
    except IsADirectoryError as problem:
        raise Invalid(
            f"{str(file)!r} is a folder", hint="name a file that nightjar backup wrote"
        ) from problem
    except ValidationError as problem:
        raise _broken(file, "its first line is not that of a backup") from problem
    except (EOFError, OSError, ValueError, RecursionError, zlib.error) as problem:
        raise _broken(file, str(problem) or type(problem).__name__) from problem


def _broken(file: Path, why: str) -> Invalid:
    return Invalid(
        f"{str(file)!r} is not a whole backup: {why}", hint="use another backup; nothing was written"
    )


def _exactly(stream: gzip.GzipFile, size: int) -> bytes:
    part = stream.read(size)
    if len(part) != size:
        raise EOFError("it ends too early")
    return part


# -- backup


async def back_up(lab: Lab, file: Path, *, alive_s: float = 15.0, tell: Tell = lambda _: None) -> BackedUp:
    """Write the state of the whole lab at one moment to a file.

    If processes of the lab were alive within `alive_s`, Redis pauses all writers meanwhile (CLIENT PAUSE), for at
    most PAUSED_SHARE of their timeout.

    Raises:
        NotFound: there is no such lab. Conflict: it is too large to be read in that time, or was written meanwhile.
        Unavailable: Redis does not let us pause its writers, the archive does not give a patch, or the file cannot be
            written.
    """
    async with lab.apart() as own:
        try:
            return await _backed_up(own, file, alive_s, tell)
        except OSError as problem:
            raise Unavailable(
                f"{str(file)!r} cannot be written: {problem.strerror or problem}",
                hint="name a file in a folder that is yours and has room for it",
            ) from problem


async def _backed_up(lab: Lab, file: Path, alive_s: float, tell: Tell) -> BackedUp:
    found = await lab.command("GET", lab.keys("schema"))
    if found is None or await lab.command("EXISTS", lab.keys("restoring")):
        raise NotFound(f"there is no lab {lab.name!r} on this Redis", hint="name it with --lab or --data")
    facts = await lab.facts()
    header = Header(FORMAT, VERSION, int(found), lab.name, stamp(await lab.now()), str(facts["version"]))
    await lab.command("SCRIPT", "LOAD", load("read_page").text)
    for _ in range(TRIES):
        if done := await _attempt(lab, file, header, alive_s, tell):
            return done
    raise Conflict(
        f"the lab {lab.name!r} was written to while it was read, {TRIES} times",
        hint="another backup may be running, or another client ends the pause (CLIENT UNPAUSE): try again later",
    )


async def _attempt(lab: Lab, file: Path, header: Header, alive_s: float, tell: Tell) -> BackedUp | None:
    """Try once; None if the lab changed while it was read."""
    presence = Presence(lab)
    runs = bool(await presence.alive(alive_s))
    # compressed later, when writers need not wait
    with tempfile.TemporaryFile(dir=file.parent) as read:
        async with _still(lab) if runs else _unbounded() as pause:
            before, began, keys = await _changes(lab), time.monotonic(), 0
            async for page in _pages(lab):
                found = await _read(lab, page)
                read.write(packed(found))
                keys += len(found)
                tell(keys)
                await pause()
            paused_s = time.monotonic() - began if runs else 0.0
            moved = await _changes(lab) != before if runs else bool(await presence.alive(alive_s))
            await pause()
        if moved:
            return None
        archived = await _archived(lab)
        if archived and lab.archive is None:
            raise no_archive(archived[0])
        patches = (archived_entry(digest, lab.archive) for digest in archived if lab.archive is not None)
        size = await asyncio.to_thread(_write_file, file, header, read, keys, patches)
        return BackedUp(keys + len(archived), size, paused_s)


def _write_file(file: Path, header: Header, read: IO[bytes], keys: int, more: Iterable[Entry]) -> int:
    writer = Writer(file, header)
    try:
        writer.fill(read)
        for entry in more:
            writer.add(entry)
            keys += 1
        return writer.finish(keys)
    finally:
        writer.discard()


def archived_entry(digest: str, archive: Archive) -> Entry:
    """A patch of the archive, for the file.

    Raises:
        Unavailable: the archive does not give it.
    """
    return f"{OF_ARCHIVE}{digest}", zlib.compress(archive.get(digest)), 0


async def _archived(lab: Lab) -> list[str]:
    """The patches that only the archive has."""
    digests: list[str] = await lab.command("ZRANGE", lab.keys("archived"), 0, -1)
    here = await lab.pipeline([("EXISTS", lab.keys("diffs", digest)) for digest in digests])
    return [digest for digest, is_here in zip(digests, here, strict=True) if not is_here]


@contextlib.asynccontextmanager
async def _still(lab: Lab) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Pause Redis' writers; call the yielded function repeatedly to prolong it: it raises when it takes too long."""
    longest_s = lab.timeout_s * PAUSED_SHARE
    began = renewed = time.monotonic()

    async def go_on() -> None:
        nonlocal renewed
        now = time.monotonic()
        if now - began > longest_s:
            raise Conflict(
                f"the lab {lab.name!r} is too large to be read in the {longest_s:g} s that its writers may wait",
                hint="stop it (Ctrl-C) and run this again: without its processes there is no limit",
            )
        if now - renewed > PAUSE_MS / 1000 / 4:
            renewed = now
            await lab.command("CLIENT PAUSE", PAUSE_MS, "WRITE")

    try:
        await lab.command("CLIENT PAUSE", PAUSE_MS, "WRITE")
    except (ResponseError, Unavailable) as problem:
        if isinstance(problem, Unavailable) and problem.retry_after is not None:
            raise
        raise Unavailable(
            f"Redis does not let us pause its writers (CLIENT PAUSE): {problem}",
            hint="allow it with ACL SETUSER, or stop every process of the lab and run this again",
        ) from problem
    try:
        yield go_on
    finally:
        await asyncio.shield(lab.command("CLIENT UNPAUSE"))


@contextlib.asynccontextmanager
async def _unbounded() -> AsyncIterator[Callable[[], Awaitable[None]]]:
    async def go_on() -> None:
        return

    yield go_on


async def _changes(lab: Lab) -> Any:
    """A number that grows with every write to this Redis; None if it does not tell."""
    found = await lab.command("INFO", "persistence")
    return found.get("rdb_changes_since_last_save") if isinstance(found, dict) else None


async def _pages(lab: Lab) -> AsyncIterator[list[str]]:
    prefix, small, patches = lab.keys(""), list[str](), list[str]()
    async for key in lab.scan():
        name = key.removeprefix(prefix)
        if is_left_out(name):
            continue
        page, most = (patches, PATCHES_AT_ONCE) if name.startswith("diffs:") else (small, KEYS_AT_ONCE)
        page.append(key)
        if len(page) == most:
            yield page
            page.clear()
    for page in (small, patches):
        if page:
            yield page


async def _read(lab: Lab, page: Sequence[str]) -> list[Entry]:
    rows = await lab.binary(*lab.reading("read_page", keys={"page": list(page)}))
    prefix = lab.keys("")
    return [
        (key.removeprefix(prefix), payload, max(0, int(expiry)))
        for key, (payload, expiry) in zip(page, rows, strict=True)
        if payload is not None
    ]


# -- restore


async def restore(lab: Lab, file: Path, *, tell: Tell = lambda _: None) -> Restored:
    """Make a lab from a backup, under the name of `lab`; checks the whole file before it writes.

    A restore that is killed leaves a lab that no process opens and that the next restore replaces. The restored lab
    has a new identity and higher fences, so that earlier leases are void; leased and running experiments are queued
    again.

    Raises:
        Invalid: the file is not a whole backup, or of a newer version, or written by a newer Redis. Conflict: the lab
            exists already, or another restore is at work.
    """
    header = read_header(file)
    if header.schema > SCHEMA:
        raise Invalid(
            f"{str(file)!r} was written with schema {header.schema}, this version reads {SCHEMA}",
            hint="restore it with the version of Nightjar that wrote it, or a newer one",
        )
    keys = await asyncio.to_thread(lambda: sum(not is_left_out(name) for name, _, _ in entries(file)))
    token = secrets.token_hex(8)
    await _begin(lab, token, file)
    done = 0
    kept = (entry for entry in entries(file) if not is_left_out(entry[0]))  # older versions left less out
    for page in _by_size(kept):
        await _write(lab, token, page, header)
        done += len(page)
        tell(done)
    async with _at_work(lab, token):
        if header.schema < SCHEMA:
            await migrate(lab, header.schema)
        waiting = await _end_leases(lab)
    opened: GivenArgs = {"token": token, "identity": secrets.token_hex(8), "fence_leap": FENCE_LEAP}
    answer = await lab.move("finish_restore", args=opened)
    if answer != "ok":
        raise _overtaken(lab)
    return Restored(header, keys, waiting)


async def _begin(lab: Lab, token: str, file: Path) -> None:
    keys = lab.keys
    mark: GivenArgs = {"token": token, "silent_s": SILENT_S, "file": str(file)}
    give_up = time.monotonic() + 2 * SILENT_S
    while (answer := await lab.move("begin_restore", args=mark)) == "busy":
        if time.monotonic() > give_up:
            raise Conflict(f"another restore into the lab {lab.name!r} is at work", hint="wait for it")
        await asyncio.sleep(0.2)  # the other one may have been killed: it is free after SILENT_S
    if answer == "taken":
        raise Conflict(
            f"the lab {lab.name!r} exists already: a restore does not overwrite",
            hint="restore under another name (--lab NAME), or into another folder (--data PATH)",
        )
    page: list[str] = []
    async for key in lab.scan():
        if key != keys("restoring"):
            page.append(key)
        if len(page) == KEYS_AT_ONCE:
            await _remove(lab, token, page)
            page = []
    await _remove(lab, token, page)


@contextlib.asynccontextmanager
async def _at_work(lab: Lab, token: str) -> AsyncIterator[None]:
    """Renew the mark that this restore is at work while it writes no pages."""

    async def say() -> None:
        while True:
            await asyncio.sleep(SILENT_S / 4)
            with contextlib.suppress(Unavailable):
                await _write(lab, token, [], None)

    saying = asyncio.create_task(say())
    try:
        yield
    finally:
        saying.cancel()


async def _remove(lab: Lab, token: str, page: Sequence[str]) -> None:
    """Remove keys that an earlier restore left."""
    gone: list[Entry] = [(key.removeprefix(lab.keys("")), b"", 0) for key in page]
    await _write(lab, token, gone, None)


def _key_of(name: str) -> str:
    """The key that an entry of the file becomes, without the lab."""
    return f"diffs:{name.removeprefix(OF_ARCHIVE)}" if name.startswith(OF_ARCHIVE) else name


async def _write(lab: Lab, token: str, page: Sequence[Entry], header: Header | None) -> None:
    try:
        answer = await lab.move(
            "restore_page",
            keys={"page": [lab.keys(_key_of(name)) for name, _, _ in page]},
            args={
                "token": token,
                "silent_s": SILENT_S,
                "payloads": [payload for _, payload, _ in page],
                "expiries": [PLAIN if name.startswith(OF_ARCHIVE) else expiry for name, _, expiry in page],
            },
        )
    except ResponseError as problem:
        if header is None or "DUMP payload" not in str(problem):
            raise
        ours = (await lab.facts())["version"]
        raise Invalid(
            f"the backup was written by Redis {header.redis}, which this Redis {ours} cannot read",
            hint=f"restore it with Redis {header.redis} or newer (NIGHTJAR_REDIS_SERVER, NIGHTJAR_REDIS_URL)",
        ) from problem
    if answer != "ok":
        raise _overtaken(lab)


def _overtaken(lab: Lab) -> Conflict:
    return Conflict(f"another restore into the lab {lab.name!r} has begun meanwhile", hint="let it finish")


def _by_size(found: Iterator[Entry]) -> Iterator[list[Entry]]:
    page: list[Entry] = []
    size = 0
    for entry in found:
        page.append(entry)
        size += len(entry[1])
        if len(page) == KEYS_AT_ONCE or size > BYTES_AT_ONCE:
            yield page
            page, size = [], 0
    if page:
        yield page


async def _end_leases(lab: Lab) -> list[str]:
    """End every lease and set every GPU offline, since the workers of the backup are gone.

    Running experiments get another attempt, regardless of the limit: the restore is not their failure.
    """
    pool, experiments = Pool(lab), Experiments(lab)
    waiting = []
    reason = "the lab was restored from a backup"
    for gpu in (await pool.roster()).gpus:
        if gpu.holder is not None:
            e = await experiments.get(gpu.holder)
            then: AfterLease | None = SameAttempt() if e.status == "leased" else Requeued()
            if e.status not in ("leased", "running") or e.fence != gpu.fence:
                then = None
            elif e.stopping:
                then = Ended("stopped")
            lease = BrokenLease(gpu, e, "dead", reason, then, {}, ("unproven", "footprint"))
            became = await experiments.break_lease(lease, stale_s=0)
            waiting += [e.experiment_id] if became == "queued" else []
        await pool.flag(gpu.gpu_id, set_={"offline": True}, reason=reason)
    return waiting
