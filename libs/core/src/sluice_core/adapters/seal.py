"""What is kept encrypted: Fernet, AES-128-CBC with HMAC-SHA256, under a key that can be changed."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class SealError(Exception):
    """There is no key, or none of them opens this."""


class Sealer:
    """Seals with the first key and opens with any.

    Args:
        keys: each 32 bytes in URL-safe base64, the newest first; none seals and opens nothing.

    Raises:
        ValueError: one of them is no key.

    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in keys]) if keys else None

    @property
    def has_key(self) -> bool:
        return self._fernet is not None

    def seal(self, data: bytes) -> str:
        """The data encrypted, as ASCII text.

        Raises:
            SealError: there is no key.

        """
        return self._needed().encrypt(data).decode("ascii")

    def open(self, sealed: str) -> bytes:
        """What was sealed.

        Raises:
            SealError: there is no key, or it was sealed by another one, or changed since.

        """
        try:
            return self._needed().decrypt(sealed)
        except InvalidToken as exc:
            raise SealError("none of the keys opens it") from exc

    def reseal(self, sealed: str) -> str:
        """The same under the first key.

        Raises:
            SealError: as `open`.

        """
        try:
            return self._needed().rotate(sealed).decode("ascii")
        except InvalidToken as exc:
            raise SealError("none of the keys opens it") from exc

    def _needed(self) -> MultiFernet:
        if self._fernet is None:
            raise SealError("there is no key")
        return self._fernet


def new_key() -> str:
    """A key as `Sealer` takes it."""
    return Fernet.generate_key().decode("ascii")
