"""Words that are hidden in any text, however many there are."""

import time

import pytest

from sluice_core.adapters.ytdlp.hiding import Hiding


@pytest.mark.parametrize(
    ("words", "text", "shown"),
    [
        ([], "nothing to hide", "nothing to hide"),
        (["short"], "a short word", "a short word"),
        (["longenough"], "longenough", "***"),
        (["longenough"], "a longenough, longenough.", "a ***, ***."),
        (["longenough"], "longenoug", "longenoug"),
        (["beginning", "beginning-and-end"], "beginning-and-end beginning!", "*** ***!"),
        # Two that overlap are one stretch, of which nothing is left.
        (["abcdefgh", "efghijkl"], "-abcdefghijkl-", "-***-"),
        (["abcdefghij", "cdefghij-k"], "abcdefghij-k", "***"),
        (["\u5bc6\u78bc" * 4], "=" + "\u5bc6\u78bc" * 4 + "=", "=***="),
    ],
)
def test_what_is_left_of_a_text(words, text, shown):
    assert Hiding(words).masked(text) == shown


def test_no_word_is_printed():
    assert "longenough" not in repr(Hiding(["longenough"]))


def test_thousands_of_words_cost_a_line_next_to_nothing():
    """A run of 100,000 lines takes minutes at least: a second is little."""
    few = Hiding([f"value-of-cookie-{n}" for n in range(20)])
    many = Hiding([f"value-of-cookie-{n:08}-{n * 7919:020}" for n in range(20_000)])
    line = '{"event": "progress", "bytes": 1048576, "total": null, "fragment": 12, "speed": 123.6}'

    def seconds(hiding):
        began = time.process_time()
        for _ in range(1000):
            hiding.masked(line)
        return time.process_time() - began

    seconds(few)
    assert min(seconds(many) for _ in range(3)) < 10 * min(seconds(few) for _ in range(3))
