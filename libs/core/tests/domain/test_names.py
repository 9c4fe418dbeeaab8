import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_core.domain.names import MAX_BYTES, MAX_TITLE, file_name, plain_title, safe_stem

PLAIN = {"ext": "mp4", "fallback": "fallback"}


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("A film", "A film.mp4"),
        ("../../etc/passwd", "_.._etc_passwd.mp4"),
        ('say "hi" <now> | what?', "say _hi_ _now_ _ what_.mp4"),
        ("  dots and spaces ... ", "dots and spaces.mp4"),
        ("new\nline\x1b[31m\x00", "new line[31m.mp4"),
        ("\u202egpj.exe", "gpj.exe.mp4"),  # would be shown as exe.jpg
        ("-rf", "rf.mp4"),
        ("CON", "_CON.mp4"),
        ("nul.txt", "_nul.txt.mp4"),
        ("", "fallback.mp4"),
        (None, "fallback.mp4"),
        ("...", "fallback.mp4"),
        ("///", "fallback.mp4"),
        ("电影 🎬 فيلم", "电影 🎬 فيلم.mp4"),
        ("👨‍👩‍👧", "👨‍👩‍👧.mp4"),
    ],
)
def test_table(title, name):
    assert file_name(title, **PLAIN) == name


def test_long_names_are_cut_in_bytes_at_a_whole_character():
    name = file_name("影" * 300, **PLAIN)
    assert len(name.encode()) <= MAX_BYTES
    assert name == "影" * ((MAX_BYTES - 4) // 3) + ".mp4"


def test_taken_names_are_kept_apart_whatever_their_case():
    assert file_name("Film", **PLAIN, taken={"film.mp4"}) == "Film (2).mp4"
    assert file_name("Film", **PLAIN, taken={"film.mp4", "film (2).mp4"}) == "Film (3).mp4"


@given(st.text(max_size=400))
def test_any_title_gives_one_harmless_name(title):
    name = file_name(title, **PLAIN)
    assert len(name.encode()) <= MAX_BYTES
    assert name.endswith(".mp4")
    assert not set(name) & set('<>:"/\\|?*\0\n\r\t')
    assert not name.startswith((".", "-", " "))
    assert all(unicodedata.category(c) != "Cc" for c in name)
    assert safe_stem(name, "x")


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        (None, None),
        (7, "7"),
        ("Ein Film 猫 🎬 שלום", "Ein Film 猫 🎬 שלום"),
        ("a\x01\x1b[31m red\x9bd\x7f", "a  [31m red d "),
        ("  two\n lines\t", "  two\n lines\t"),
        ("", None),
        ("x" * 5_000, "x" * MAX_TITLE),
        ("\ud800 half", "  half"),
    ],
)
def test_a_title_is_nothing_that_a_terminal_obeys(title, shown):
    assert plain_title(title) == shown
