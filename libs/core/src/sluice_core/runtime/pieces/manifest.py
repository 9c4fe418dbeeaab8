"""What is saved of a partial file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from sluice_core.adapters.ytdlp.resume import PartialState
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.paths import RunId, partial_prefix

#: Bytes that a lost machine costs at most: what is fetched but not yet a whole piece.
PIECE = 16 * 1024 * 1024

_NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the file, in order."""

    key: str
    bytes: int
    #: Of the content: a piece is believed only after a look.
    crc32: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The beginning of one generation of a file, and the notes that belong to it."""

    pieces: tuple[Piece, ...]
    state: PartialState
    #: yt-dlp's note; speaks of no more bytes than the pieces have. None: a file in one piece.
    note: str | None

    @property
    def length(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.bytes for piece in self.pieces)

    def with_piece(self, piece: Piece, *, state: PartialState, note: str | None) -> Manifest:
        """Add a piece, and the notes of the same moment."""
        return replace(self, pieces=(*self.pieces, piece), state=state, note=note)

    def dumps(self) -> bytes:
        pieces = [asdict(piece) for piece in self.pieces]
        return json.dumps(
            {"pieces": pieces, "state": self.state.dumps(), "note": self.note}
        ).encode()

    @classmethod
    def loads(cls, text: bytes) -> Manifest:
        """Read what `dumps` wrote.

        Raises:
            SluiceError: it is not that.

        """
        try:
            raw = json.loads(text)
            pieces = tuple(Piece(**piece) for piece in raw["pieces"])
            return cls(pieces, PartialState.parse(raw["state"]), raw["note"])
        except (ValueError, TypeError, KeyError) as exc:
            raise SluiceError("a saved manifest can't be read", code="storage_error") from exc


def manifest_key(run: RunId, name: str) -> str:
    """Where the manifest of a run's file is."""
    return f"{partial_prefix(run)}{name}/{_NAME}"


def piece_key(run: RunId, name: str, generation: str, start: int, end: int) -> str:
    """Where the bytes from `start` to before `end` are."""
    return f"{partial_prefix(run)}{name}/{generation}/{start:015d}-{end:015d}"
