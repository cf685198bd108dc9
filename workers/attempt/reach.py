"""What a process may touch, as its worker tells launch.py."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import NamedTuple


class Reach(NamedTuple):
    """What a process may touch."""

    writes: Sequence[str]
    """Folders; each must be there."""
    reads: Sequence[str] | None
    """Files and folders, those that are there; None: whatever its user may read."""
    network: bool
    leaves: bool
    """Whether it may leave something outside its folders: shared memory, attributes and times of files."""
    hides: Sequence[str] = ()
    """Entries of folders that it reads, which it does not read."""
    together: str | None = None
    """The folder of some that it writes, mounted with them in namespaces: files move from one to another of them."""
    bwrap: str | None = None
    """The bubblewrap that gives it namespaces of its own (see namespaces.py); None: it gets none."""
    scratch_bytes: int = 0
    """Size of each memory file system that it has there: `/tmp` and `/dev/shm`."""

    def packed(self) -> str:
        """As one word, for launch.py under the same Python: to import JSON would take longer than all else there."""
        return marshal.dumps(self._asdict()).hex()
