"""ETags of answers, and whether a client holds the answer already."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

_TAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')


def etag_of(body: bytes) -> str:
    """A strong ETag: equal bodies have equal ones."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def is_held(etag: str, if_none_match: Sequence[str]) -> bool:
    """Whether one of these If-None-Match headers names the answer, be it as W/"..."; `*` names any."""
    return any(header.strip() == "*" or etag in _TAG.findall(header) for header in if_none_match)
