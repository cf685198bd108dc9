"""Storage form of patches: compressed, under the SHA-256 of their content. Each read checks it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

from state.digests import patch_id
from state.errors import Damaged

LONG_PATCH = 64 * 1024
"""Larger patches are packed and unpacked in a thread: 4 MiB take 0.2 s, too long for an event loop."""
MOST_BYTES = 16 * 1024 * 1024
"""Largest unpacked patch. A longer one is damaged."""


async def packed(patch: bytes | None) -> tuple[str | None, bytes | None]:
    """Digest and stored form of a patch."""
    if patch is None:
        return None, None
    packing = asyncio.to_thread(zlib.compress, patch) if len(patch) > LONG_PATCH else None
    return patch_id(patch), zlib.compress(patch) if packing is None else await packing


async def unpacked(names: Sequence[str | None], stored: Sequence[bytes | None]) -> list[bytes | None]:
    """The patches of these names; None where nothing is stored. Raises Damaged: one is not what its name says."""

    def unpack() -> list[bytes | None]:
        return [
            _checked(name, content) if name is not None and content is not None else None
            for name, content in zip(names, stored, strict=True)
        ]

    return await asyncio.to_thread(unpack) if sum(map(len, filter(None, stored))) > LONG_PATCH else unpack()


def _checked(name: str, content: bytes) -> bytes:
    try:
        patch = zlib.decompressobj().decompress(content, MOST_BYTES)
    except zlib.error:
        patch = None
    if patch_id(patch) != name:
        raise Damaged(
            f"the stored patch {name} is not the one that was registered: its content has another SHA-256",
            hint="register the right patch again, which puts it back; find out who else can write to this Redis",
        )
    assert patch is not None
    return patch
