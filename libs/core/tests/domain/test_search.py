"""Titles and questions are taken apart in one way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_core.domain.search import MAX_TERM, fold, phrase, terms_of, terms_sought, words_of

TITLES = st.text(max_size=40)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A film, again", ["a", "film", "again"]),
        ("o'Brien 2.5", ["o", "brien", "2", "5"]),
        ("我的猫 and me", ["我", "的", "猫", "and", "me"]),
        ("アニメ第1話", ["ア", "ニ", "メ", "第", "1", "話"]),
        ("影片🎬合集", ["影", "片", "🎬", "合", "集"]),
        ("שלום \u200fעולם\u202c", ["שלום", "עולם"]),  # noqa: RUF001  # Hebrew
        ("\uff21\uff22\uff23\uff01", ["abc"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("", []),
        ("... --- !!!", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(fold(text, 99)) == words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("CAFE\u0301", "caf\u00e9"),
        ("각", "\u1100\u1161\u11a8"),
        ("❤\ufe0f", "❤"),
        ("\u202eevil", "evil"),
        ("soft\u00adhyphen", "softhyphen"),
        ("\u1fb7", "\u1f00\u0342\u0345".replace("\u1f00", "\u03b1")),
    ],
)
def test_what_looks_the_same_is_the_same(one: str, other: str) -> None:
    assert fold(one, 99) == fold(other, 99)


@given(TITLES)
def test_folding_twice_is_folding_once_and_no_longer_than_asked(text: str) -> None:
    once = fold(text, 20)
    assert len(once) <= 20
    assert fold(once, 20) == once


@given(TITLES, st.data())
def test_a_phrase_of_a_title_asks_for_its_terms_alone(text: str, data: st.DataObject) -> None:
    words = words_of(fold(text, 99))
    first = data.draw(st.integers(0, len(words)))
    asked = words[first : data.draw(st.integers(first, len(words)))]
    assert phrase(asked) in phrase(words)
    assert set(terms_sought(asked)) <= terms_of(words)


def test_a_long_word_is_a_short_term() -> None:
    assert max(map(len, terms_of(["a" * 300, "b" * 300]))) == MAX_TERM
