"""A lab in one file: `back_up` writes its state at one moment while it runs, `restore` makes a lab from the file.

The file is a gzip stream. Its first line is the manifest, in JSON; `zcat FILE | head -1` shows it. The keys follow:

    length of the name, length of the payload (4 bytes each), expiry (8 bytes: milliseconds since 1970, 0 for none),
    name without the lab, payload of Redis' DUMP

Numbers are big-endian. Patches of the archive are not in the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import secrets
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from redis.exceptions import ResponseError

from state.change import NOW, Change, clock, exists, hmget
from state.client import LAYOUT, Lab
from state.decisions import AfterLease, BrokenLease
from state.errors import Conflict, Invalid, NotFound, Unavailable
from state.experiments import Experiments
from state.leases import Holding
from state.moves import load
from state.pool import Pool
from state.presence import Presence
from state.private import private_file
from state.records import stamp

FORMAT = "nightjar backup 3"
RESTORED = "the lab was restored from a backup"
"""Why leases end."""
LEFT_OUT = frozenset(
    {
        "processes",
        "process_facts",
        "identity",
        "restoring",
        "sessions",
        "token_sessions",
        "codes",
        "tickets",
        "tries",
        "hidden",  # no file holds its numbers
    }
)
"""First parts of the names of keys that no backup has: a restored lab makes its own."""
SIGNS_OF_A_LAB = ("layout", "schema", "identity", "tags", "processes")
REMOVED = b""
"""In the place of a payload: the key is removed."""
KEYS_AT_ONCE = 1000
BYTES_AT_ONCE = 8 * 1024 * 1024
PAUSED_SHARE = 0.6
"""Share of the writers' timeout for which a backup may pause them. If it is killed, they wait no longer."""
SILENT_S = 15.0
"""After this long without a write, a restore counts as killed, and another may begin."""
FENCE_LEAP = 1_000_000
"""More than the number of leases between a backup and the loss of its lab."""
LONGEST_NAME, LONGEST_PAYLOAD = 64 * 1024, 256 * 1024 * 1024
"""Most bytes of one key. One key is in memory at once, and Redis takes no argument over 512 MiB."""

_LENGTHS = struct.Struct(">IIQ")

Tell = Callable[[int], None]
"""Receives the number of keys that are done."""
Entry = tuple[str, bytes, int]
"""Name without the lab, payload, expiry (0: none)."""


@dataclass(frozen=True)
class Manifest:
    """The first line of a backup."""

    format: str
    layout: int
    lab: str
    time: str
    redis: str
    keys: Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class BackedUp:
    keys: int
    size: int
    """Bytes of the file."""
    paused_s: float
    """How long the lab's writers waited; 0 if no process of it was alive."""


@dataclass(frozen=True)
class Restored:
    manifest: Manifest
    waiting_again: Sequence[str]
    """Experiments that were leased or running: they run again."""


# -- the file


def packed(entry: Entry) -> bytes:
    """A key in the format of the file."""
    name, payload, expiry = entry[0].encode(), entry[1], entry[2]
    return b"".join((_LENGTHS.pack(len(name), len(payload), expiry), name, payload))


def write(file: Path, manifest: Manifest, body: IO[bytes]) -> int:
    """Write a backup from its packed keys; answers its size in bytes. The file appears when it is whole."""
    with (
        private_file(file) as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1, mtime=0, filename="") as stream,
    ):
        stream.write(json.dumps(asdict(manifest)).encode() + b"\n")
        body.seek(0)
        shutil.copyfileobj(body, stream)
    return file.stat().st_size


def read_manifest(file: Path) -> Manifest:
    """The manifest of a backup. Raises Invalid: there is no such file, or this version cannot read it."""
    with _opened(file) as (manifest, _):
        return manifest


def entries(file: Path) -> Iterator[Entry]:
    """Every key of a backup, checked at its end. Raises Invalid: it is none, or was cut or changed."""
    with _opened(file) as (manifest, stream):
        for _ in range(manifest.keys):
            name_length, length, expiry = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
            if name_length > LONGEST_NAME or length > LONGEST_PAYLOAD:
                raise ValueError("one of its keys is larger than any key of a lab")
            name, payload = _exactly(stream, name_length), _exactly(stream, length)
            yield name.decode(), payload, expiry
        if stream.read(1):  # at the end, gzip compares its checksum
            raise ValueError("there is more behind its last key")


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tuple[Manifest, gzip.GzipFile]]:
    try:
        with gzip.open(file, "rb") as stream:
            yield _manifest(file, stream.readline(10_000)), stream
    except (EOFError, OSError, ValueError, zlib.error) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise Invalid(
                f"{str(file)!r} cannot be read: {problem.strerror}",
                hint="name a file that nightjar backup wrote, and restore as the user who wrote it",
            ) from problem
        raise _broken(file, str(problem) or type(problem).__name__) from problem


def _manifest(file: Path, line: bytes) -> Manifest:
    try:
        manifest = TypeAdapter(Manifest).validate_json(line, strict=True)
    except ValidationError as problem:
        raise _broken(
            file, "its first line is not a manifest; an earlier version may have written it"
        ) from problem
    if (manifest.format, manifest.layout) != (FORMAT, LAYOUT):
        raise Invalid(
            f"another version of Nightjar wrote {str(file)!r}: its format is {manifest.format!r} and its layout"
            f" {manifest.layout}; this version reads {FORMAT!r} and layout {LAYOUT}",
            hint="restore it with the version of Nightjar that wrote it",
        )
    return manifest


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
        Unavailable: Redis does not let us pause its writers, or the file cannot be written.
    """
    try:
        # compressed later, when writers need not wait
        with tempfile.TemporaryFile(dir=file.parent) as body:
            async with lab.apart() as own:
                return await _back_up(own, file, body, alive_s, tell)
    except OSError as problem:
        raise Unavailable(
            f"{str(file)!r} cannot be written: {problem.strerror or problem}",
            hint="name a file in a folder that is yours and has room for it",
        ) from problem


async def _back_up(lab: Lab, file: Path, body: IO[bytes], alive_s: float, tell: Tell) -> BackedUp:
    layout = await lab.command("GET", lab.keys("layout"))
    if layout != str(LAYOUT) or await lab.command("EXISTS", lab.keys("restoring")):
        raise NotFound(
            f"there is no lab {lab.name!r} of this version on this Redis", hint="name it with --lab or --data"
        )
    redis, at = str((await lab.facts())["version"]), stamp(await lab.now())
    await lab.command("SCRIPT", "LOAD", load("read_page").text)
    presence, keys = Presence(lab), 0
    alive, began = bool(await presence.alive(alive_s)), time.monotonic()
    longest_s = lab.timeout_s * PAUSED_SHARE
    async with _paused(lab, longest_s) if alive else contextlib.nullcontext():
        before = await _changes(lab)
        async for page in _pages(lab):
            body.writelines(map(packed, page))
            keys += len(page)
            tell(keys)
            if alive and time.monotonic() - began > longest_s:
                raise Conflict(
                    f"the lab {lab.name!r} is too large to be read in the {longest_s:g} s that its writers may wait",
                    hint="stop it (Ctrl-C) and run this again: without its processes there is no limit",
                )
        paused_s = time.monotonic() - began if alive else 0.0
        if await _changes(lab) != before if alive else await presence.alive(alive_s):
            raise Conflict(
                f"the lab {lab.name!r} was written to while it was read",
                hint="another backup may be running, or another client ended the pause (CLIENT UNPAUSE): try again",
            )
    manifest = Manifest(FORMAT, LAYOUT, lab.name, at, redis, keys)
    return BackedUp(keys, await asyncio.to_thread(write, file, manifest, body), paused_s)


@contextlib.asynccontextmanager
async def _paused(lab: Lab, longest_s: float) -> AsyncIterator[None]:
    """Pause Redis' writers. Raises Unavailable: Redis does not let us pause its writers."""
    try:
        await lab.command("CLIENT PAUSE", int(longest_s * 1000), "WRITE")
    except (ResponseError, Unavailable) as problem:
        if isinstance(problem, Unavailable) and problem.retry_after is not None:
            raise
        raise Unavailable(
            f"Redis does not let us pause its writers (CLIENT PAUSE): {problem}",
            hint="allow it with ACL SETUSER, or stop every process of the lab and run this again",
        ) from problem
    try:
        yield
    finally:
        await asyncio.shield(lab.command("CLIENT UNPAUSE"))


async def _changes(lab: Lab) -> Any:
    """A number that grows with every write to this Redis; None if Redis does not tell."""
    found = await lab.command("INFO", "persistence")
    return found.get("rdb_changes_since_last_save") if isinstance(found, dict) else None


async def _pages(lab: Lab) -> AsyncIterator[list[Entry]]:
    keys: list[str] = []
    async for key in lab.scan():
        if key.removeprefix(lab.keys("")).partition(":")[0] not in LEFT_OUT:
            keys.append(key)
        while len(keys) >= KEYS_AT_ONCE:
            page, keys = await _read(lab, keys)
            yield page
    while keys:
        page, keys = await _read(lab, keys)
        yield page


async def _read(lab: Lab, keys: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """Read the first of these keys, until their payloads have BYTES_AT_ONCE; answers also the other keys."""
    reading = lab.reading("read_page", keys={"page": list(keys)}, args={"most_bytes": BYTES_AT_ONCE})
    rows = await lab.binary(*reading)
    prefix, page = lab.keys(""), list[Entry]()
    for key, (payload, expiry) in zip(keys, rows, strict=False):
        if payload is None:
            continue  # it expired
        if len(payload) > LONGEST_PAYLOAD:
            raise Conflict(
                f"the key {key!r} has {len(payload)} bytes, and a backup takes at most {LONGEST_PAYLOAD}",
                hint="copy Redis' own files instead: stop the lab and copy the folder redis of its data directory",
            )
        page.append((key.removeprefix(prefix), payload, max(0, int(expiry))))
    return page, list(keys[len(rows) :])


# -- restore


async def restore(lab: Lab, file: Path, *, tell: Tell = lambda _: None) -> Restored:
    """Make a lab from a backup, under the name of `lab`; checks the whole file before it writes.

    A restore that is killed leaves a lab that no process opens and that the next restore replaces. The restored lab
    has a new identity and higher fences, so that earlier leases are void. Leased and running experiments are queued
    again.

    Raises:
        Invalid: the file is not a whole backup of this version, or Redis cannot read one of its keys. Conflict: the
            lab exists already, or another restore is at work.
    """
    manifest = read_manifest(file)
    if not await asyncio.to_thread(_holds_a_lab, file):
        raise _broken(file, "it holds no lab")
    token = secrets.token_hex(8)
    await _begin(lab, token, file)
    done = 0
    for page in _by_size(entries(file)):
        try:
            await _write(lab, token, page)
        except ResponseError as problem:
            raise await _unreadable(lab, file, manifest, problem) from problem
        done += len(page)
        tell(done)
    waiting = await _end_leases(lab)
    await _finish(lab, token)
    return Restored(manifest, waiting)


def _holds_a_lab(file: Path) -> bool:
    """Whether a file has a lab's layout number. Reads the whole file, which checks it."""
    return "layout" in [name for name, _, _ in entries(file) if name == "layout"]


async def _unreadable(lab: Lab, file: Path, manifest: Manifest, problem: ResponseError) -> Invalid:
    ours = (await lab.facts())["version"]
    if ours == manifest.redis:
        detail = f"{str(file)!r} is damaged: Redis cannot read one of its keys ({problem})"
        return Invalid(detail, hint="restore another backup: it replaces the keys that were written")
    return Invalid(
        f"Redis {manifest.redis} wrote the backup, and this Redis {ours} cannot read one of its keys",
        hint=f"restore it with Redis {manifest.redis} or newer (NIGHTJAR_REDIS_SERVER, NIGHTJAR_REDIS_URL)",
    )


async def _begin(lab: Lab, token: str, file: Path) -> None:
    keys, restoring = lab.keys, lab.keys("restoring")

    async def decide(change: Change) -> bool:
        earlier, now, *found = await change.read(
            hmget(restoring, "until"), clock(), *(exists(keys(name)) for name in SIGNS_OF_A_LAB)
        )
        if earlier["until"] is None and any(found):
            raise Conflict(
                f"the lab {lab.name!r} exists already: a restore does not overwrite",
                hint="restore under another name (--lab NAME), or into another folder (--data PATH)",
            )
        if earlier["until"] is not None and float(earlier["until"]) > now:
            return False
        change.hset(restoring, {"token": token, "until": NOW + SILENT_S, "file": str(file)})
        return True

    give_up = time.monotonic() + 2 * SILENT_S
    while not await lab.change(decide):
        if time.monotonic() > give_up:
            raise Conflict(f"another restore into the lab {lab.name!r} is at work", hint="wait for it")
        await asyncio.sleep(0.2)  # the other one may have been killed: the lab is free after SILENT_S
    left = [key.removeprefix(keys("")) async for key in lab.scan() if key != keys("restoring")]
    for begin in range(0, len(left), KEYS_AT_ONCE):
        await _write(lab, token, [(name, REMOVED, 0) for name in left[begin : begin + KEYS_AT_ONCE]])


async def _finish(lab: Lab, token: str) -> None:
    """Open it as a lab of its own: attempts and fences of its earlier life mean nothing."""
    keys = lab.keys

    async def decide(change: Change) -> None:
        (mark,) = await change.read(hmget(keys("restoring"), "token"))
        if mark["token"] != token:
            raise _overtaken(lab)
        change.set(keys("identity"), secrets.token_hex(8))
        change.incrby(keys("fence"), FENCE_LEAP)
        change.delete(keys("restoring"))

    await lab.change(decide)


async def _write(lab: Lab, token: str, page: Sequence[Entry]) -> None:
    answer = await lab.move(
        "restore_page",
        keys={"page": [lab.keys(name) for name, _, _ in page]},
        args={
            "token": token,
            "silent_s": SILENT_S,
            "payloads": [payload for _, payload, _ in page],
            "expiries": [expiry for _, _, expiry in page],
        },
    )
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
    for gpu in (await pool.roster())[1]:
        if gpu.holder is not None:
            lease = await experiments.break_lease(gpu.gpu_id, _ended)
            waiting += [gpu.holder] if lease and lease.status == "queued" else []
        await pool.flag(gpu.gpu_id, set_={"offline": True}, reason=RESTORED)
    return waiting


def _ended(held: Holding) -> BrokenLease | None:
    gpu, e = held.gpu, held.experiment
    if e is None:
        return None
    then: AfterLease | None = "same_attempt" if e.status == "leased" else "requeued"
    if e.status not in ("leased", "running") or e.fence != gpu.fence:
        then = None
    elif e.stopping:
        then = "stopped"
    return BrokenLease(gpu, e, "dead", RESTORED, then, {}, ("unproven", "footprint"))
