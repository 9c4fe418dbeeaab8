from hypothesis import given
from hypothesis import strategies as st

from sluice_core.runtime.children.lines import LineSplitter, Tail


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"))), st.integers(1, 9))
def test_lines_come_out_as_they_went_in_however_they_are_cut(lines, size):
    data = "".join(f"{line}\n" for line in lines).encode()
    splitter = LineSplitter(10_000)
    out = []
    for at in range(0, len(data), size):
        out += splitter.feed(data[at : at + size])
    assert out + splitter.close() == lines
    assert splitter.dropped == 0


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 9))
def test_lines_over_the_cap_are_counted_and_the_others_kept(lengths, size):
    data = b"".join(b"x" * length + b"\n" for length in lengths)
    splitter = LineSplitter(10)
    out = []
    for at in range(0, len(data), size):
        out += splitter.feed(data[at : at + size])
    assert [len(line) for line in out] == [length for length in lengths if length <= 10]
    assert splitter.dropped == sum(length > 10 for length in lengths)


def test_a_line_without_end_does_not_grow():
    splitter = LineSplitter(1000)
    for _ in range(1000):
        assert splitter.feed(b"x" * 900) == []
        assert len(splitter._rest) <= 1900  # noqa: SLF001  # memory is the point
    assert splitter.feed(b"\nnext\n") == ["next"]
    assert splitter.dropped == 1


def test_tail_keeps_the_end():
    tail = Tail(5)
    for part in (b"ab", b"cdef", b"", b"g"):
        tail.feed(part)
    assert tail.text() == "cdefg"
