"""Words that must not be seen, found in any text at a cost that hardly grows with their number."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote

from sluice_core.domain.masking import MASK

#: Shorter words stand in too much that is no secret: `1`, `en`, `true`.
SHORTEST = 8


class Hiding:
    """Puts `MASK` in the place of words.

    Thousands of them are usual, and each line of a child is looked through: a dictionary of their
    beginnings, which all have the same length, is asked once for each place of the text.

    Args:
        words: those of fewer than `SHORTEST` characters are left out.

    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._by_head: dict[str, list[str]] = {}
        # The longest first, so that nothing of it is left where a shorter one begins alike.
        for word in sorted(set(words), key=len, reverse=True):
            if len(word) >= SHORTEST:
                self._by_head.setdefault(word[:SHORTEST], []).append(word)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def masked(self, text: str) -> str:
        """The text with each stretch of it that words cover replaced by one `MASK`."""
        heads = self._by_head
        places = range(len(text) - SHORTEST + 1)
        if not heads or heads.keys().isdisjoint(map(text.__getitem__, map(_from, places))):
            return text
        kept, done, covered = [], 0, 0
        for at in places:
            begun = heads.get(text[_from(at)], ())
            word = next((word for word in begun if text.startswith(word, at)), None)
            if word is None:
                continue
            if at >= covered:
                kept += [text[done:at], MASK]
            done = covered = max(covered, at + len(word))
        return "".join((*kept, text[done:]))


def _from(place: int) -> slice:
    return slice(place, place + SHORTEST)


def spellings(value: str) -> set[str]:
    """As it is sent; as pages have it, without quotes and decoded; each as it stands in a link."""
    bare = value.strip('"')
    words = {value, bare, unquote(bare)}
    return words | {quote(word, safe="") for word in words}
