"""Recognises credentials by their name or their text."""

from __future__ import annotations

import re
from collections.abc import Mapping

CREDENTIAL_TEXT = re.compile(
    r"""(?x)
    (?<=://) [^/\s@]+ (?=@)                                     # a URL's user and password
    | (?<=\bBearer[ ]) \S+ | (?<=\bBasic[ ]) [A-Za-z0-9+/=]{8,} # an Authorization header
    | \bwhsec_[A-Za-z0-9+/=_-]+                                 # a webhook's secret
    | \bsk-[A-Za-z0-9_-]{16,} | \bAIza[A-Za-z0-9_-]{30,}        # a model provider's key
    """
)
NIGHTJAR_TOKEN = re.compile(r"(?<![A-Za-z0-9])nj_[a-z2-7]{10}_[A-Za-z0-9_-]+")

_NAME = re.compile(
    r"(^|_)(api_?key|access_key|private_key|secrets?|passwords?|passwd|credentials?)($|_)", re.IGNORECASE
)
_NAME_OF_TEXT = re.compile(r"(^|_)(token|auth|authorization)($|_)", re.IGNORECASE)
"""These names count only for texts: TOKEN_DROPOUT is a number of the model."""
_RANDOM = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{20,}")
"""Letters and digits without a break: hexadecimal digests, and keys of most services."""


def is_credential(name: str, value: object) -> bool:
    """Whether a constant, or a part of it, is a credential, by whole words: HF_TOKEN is one, N_TOKENS is none."""
    if _NAME.search(name):
        return True
    match value:
        case bool() | int() | float() | None:
            return False
        case str():
            return bool(_NAME_OF_TEXT.search(name)) or _has_credential(value)
        case bytes():
            return is_credential(name, value.decode("latin-1"))
        case Mapping():
            return any(is_credential(f"{name}_{key}", part) for key, part in value.items())
        case list() | tuple():
            return any(is_credential(name, part) for part in value)
        case _:
            return _has_credential(repr(value))


def _has_credential(text: str) -> bool:
    return any(pattern.search(text) for pattern in (CREDENTIAL_TEXT, NIGHTJAR_TOKEN, _RANDOM))
