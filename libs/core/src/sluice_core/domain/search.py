"""What a search by words goes by: titles and questions taken apart in one way."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

#: Characters of a title that are looked at; of a link, as many as a question may have.
MAX_TITLE, MAX_LINK = 300, 200
#: Characters of a term; what is longer is told apart by the title itself.
MAX_TERM = 64

#: Scripts that put no spaces between words: each sign counts as one. (first, last)
_SPACELESS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x3040, 0x30FF),  # kana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)


#: What nobody sees: marks that direct writing or choose between pictures, and soft hyphens.
_UNSEEN = (0xAD, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFE0E, 0xFE0F)
#: What no database takes: NUL and halves of characters.
_UNFIT = (0, *range(0xD800, 0xE000))
_MENDED = {**dict.fromkeys(_UNSEEN), **dict.fromkeys(_UNFIT, "\ufffd")}


def fold(text: str, length: int) -> str:
    """The first characters as they are compared: without case, and in one normal form."""
    seen = text[:length].translate(_MENDED)
    # Once more: folding may take a letter and its accent apart.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return folded[:length]


def words_of(folded: str) -> list[str]:
    """Its words in order: letters and digits that stand together, and single signs and symbols."""
    words: list[str] = []
    word = ""
    for char in folded:
        if _stands_alone(char):
            words += [word, char] if word else [char]
            word = ""
        elif unicodedata.category(char)[0] in "LMN":
            word += char
        elif word:
            words.append(word)
            word = ""
    return [*words, word] if word else words


def phrase(words: list[str]) -> str:
    """The words in one text, with a space around each."""
    return f" {' '.join(words)} " if words else ""


def terms_of(words: Sequence[str]) -> set[str]:
    """What a title with these words is found by: each word, and each with the one after it.

    Pairs, since a sign of Chinese stands in every tenth title, and two that stand together in few.
    """
    return {term[:MAX_TERM] for term in (*words, *_pairs(words))}


def terms_sought(words: Sequence[str]) -> list[str]:
    """Of a question with these words: all that a title must have, as few as tell the most."""
    return [term[:MAX_TERM] for term in (_pairs(words) or words)]


def _pairs(words: Sequence[str]) -> list[str]:
    return [f"{word} {after}" for word, after in pairwise(words)]


def _stands_alone(char: str) -> bool:
    code = ord(char)
    spaceless = any(first <= code <= last for first, last in _SPACELESS)
    # Emoji and other symbols; + and < are symbols of mathematics and part of no word.
    return spaceless or unicodedata.category(char) == "So"
