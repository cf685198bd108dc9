"""Signatures by Ed25519: made with a key that never leaves its process, checked with the public half of it."""

from __future__ import annotations

import base64
import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# cryptography takes 0.02 s to import: only those need it who sign, or check a signature


class Signer:
    """A private key, made at its first use; it stands in the memory of this process and nowhere else."""

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.generate()

    @cached_property
    def public(self) -> str:
        """The public key, in base64."""
        return _text(self._key.public_key().public_bytes_raw())

    @cached_property
    def key_id(self) -> str:
        """What the key is known by."""
        return hashlib.sha256(self.public.encode()).hexdigest()[:16]

    def sign(self, text: str) -> str:
        """The signature of a text, in base64."""
        return _text(self._key.sign(text.encode()))


def is_signed(text: str, signature: str, public: str) -> bool:
    """Whether the key with this public half has signed the text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(public))
        key.verify(base64.urlsafe_b64decode(signature), text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
