"""What a search by words goes by: titles and questions taken apart in one way."""

from __future__ import annotations

import unicodedata

#: Characters of a title, of a link and of a question's start that are looked at.
MAX_TITLE, MAX_START = 300, 100

#: Scripts that put no spaces between words: each sign counts as one. (first, last)
_SPACELESS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x3040, 0x30FF),  # kana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)


def fold(text: str) -> str:
    """The text as it is compared: without case, otherwise by the letter."""
    return text.casefold()


def words_of(text: str) -> list[str]:
    """Its words in order: letters and digits that stand together, and single signs and symbols."""
    words: list[str] = []
    word = ""
    for char in fold(text):
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


def _stands_alone(char: str) -> bool:
    code = ord(char)
    spaceless = any(first <= code <= last for first, last in _SPACELESS)
    # Emoji and other symbols; + and < are symbols of mathematics and part of no word.
    return spaceless or unicodedata.category(char) == "So"
