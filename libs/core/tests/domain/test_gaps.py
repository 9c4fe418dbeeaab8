"""What is missing, in words."""

from __future__ import annotations

import pytest

from sluice_core.domain.gaps import Gap, Span, in_words


def fragments(*spans: Span, kind: str = "muxed", missing: int = 3) -> Gap:
    return Gap(kind, "1", "not_found", "fragments", missing, 800, None, spans)


@pytest.mark.parametrize(
    ("gaps", "words"),
    [
        ([fragments(Span(20, 22, 80, 92))], "3 of 800 fragments are missing: 1:20-1:32"),
        (
            [fragments(Span(7, 7), kind="audio", missing=1)],
            "1 of 800 fragments of the sound is missing: number 7",
        ),
        ([fragments(Span(7, 9))], "3 of 800 fragments are missing: numbers 7-9"),
        (
            [fragments(*(Span(n, n, n, n + 1) for n in range(3600, 3607)), missing=7)],
            (
                "7 of 800 fragments are missing: 1:00:00-1:00:01, 1:00:01-1:00:02, 1:00:02-1:00:03,"
                " 1:00:03-1:00:04, 1:00:04-1:00:05, and 2 more places"
            ),
        ),
        (
            [Gap("muxed", "0", "incomplete", "bytes", 3, 10, 18, (Span(7, 9, 42, 60),))],
            "the end is missing: from 0:42 of 1:00 on",
        ),
        (
            [Gap("muxed", "0", "incomplete", "bytes", 3, 10, None, (Span(7, 9),))],
            "the end is missing: from byte 7 of 10 on",
        ),
        (
            [Gap("video", "0", "incomplete", "bytes", None, None, None, (Span(7, None, 42),))],
            "the end of the pictures is missing: from 0:42 on",
        ),
        (
            [fragments(Span(7, 9)), Gap("subtitle", "de", "gone"), Gap("subtitle", "fr", "gone")],
            (
                "3 of 800 fragments are missing: numbers 7-9;"
                " subtitles are missing: de (gone), fr (gone)"
            ),
        ),
        ([], ""),
    ],
)
def test_words(gaps: list[Gap], words: str) -> None:
    assert in_words(gaps) == words


def test_data_comes_back_as_it_was() -> None:
    gap = fragments(Span(7, 9, 1.5, 2.5))
    assert Gap.from_json(gap.to_json()) == gap
