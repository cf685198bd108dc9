"""The files of an embedded server's append-only log; their manifest names them in their order.

A server that finds no manifest begins an empty database, and appends to the files that are there.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from state.errors import Unavailable

MANIFEST = Path("appendonlydir", "appendonly.aof.manifest")
_FILE = re.compile(r"appendonly\.aof\.(?P<seq>\d+)\.(?P<kind>base|incr)\.(rdb|aof)")


def check_manifest(directory: Path) -> None:
    """Refuse a server's directory that has lost its manifest; nothing is written.

    Raises:
        Unavailable: the manifest is missing. The hint names the remedy.
    """
    manifest = directory / MANIFEST
    files = _files(manifest.parent)
    if manifest.exists() or not (files or (directory / "version").exists()):
        return
    hint = f"restore a backup of {str(directory)!r}, or begin an empty lab with another --data"
    lines = _manifest_of(files)
    if lines:
        command = f"printf {shlex.quote(lines)} > {shlex.quote(str(manifest))}"
        hint += f"; or write it anew from the files that are there: {command}"
    raise Unavailable(f"the lab's data cannot be read: {manifest} is not there", hint=hint)


def _files(folder: Path) -> list[re.Match[str]]:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return sorted(
        filter(None, map(_FILE.fullmatch, names)), key=lambda file: (file["kind"], int(file["seq"]))
    )


def _manifest_of(files: list[re.Match[str]]) -> str:
    """The manifest of these files; empty unless they are one base and consecutive increments."""
    bases = [file for file in files if file["kind"] == "base"]
    seqs = [int(file["seq"]) for file in files if file["kind"] == "incr"]
    if len(bases) != 1 or not seqs or seqs != [*range(seqs[0], seqs[0] + len(seqs))]:
        return ""
    return "".join(f"file {file[0]} seq {file['seq']} type {file['kind'][0]}\\n" for file in files)
