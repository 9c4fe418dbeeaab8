"""W3C `traceparent`, by the rules and examples of the recommendation."""

from __future__ import annotations

import itertools

import pytest

from sluice_core.domain import trace
from sluice_core.domain.trace import Trace

ID, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (f"00-{ID}-{SPAN}-01", 1),
        (f"00-{ID}-{SPAN}-00", 0),
        (f" 00-{ID}-{SPAN}-01\t", 1),
        # Flags that nobody knows yet are dropped.
        (f"00-{ID}-{SPAN}-03", 1),
        # A later version may say more behind what is known.
        (f"cc-{ID}-{SPAN}-01-what-the-future-brings", 1),
        (f"cc-{ID}-{SPAN}-01", 1),
    ],
)
def test_valid(header: str, flags: int) -> None:
    assert trace.parse(header) == Trace(ID, SPAN, flags)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        f"00-{ID}-{SPAN}",
        f"00-{ID}-{SPAN}-01-more",
        f"00-{ID}-{SPAN}-01-",
        f"cc-{ID}-{SPAN}-01.more",
        f"ff-{ID}-{SPAN}-01",
        f"0-{ID}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{ID}-{'0' * 16}-01",
        f"00-{ID.upper()}-{SPAN}-01",
        f"00-{ID[:-1]}-{SPAN}-01",
        f"00-{ID[:-1]}g-{SPAN}-01",
        f"00-{ID[:-1]}\u0663-{SPAN}-01",
        f"00-{ID}-{SPAN}-01\n",
        f"00-{ID}-{SPAN}-01,00-{ID}-{SPAN}-01",
        f"cc-{ID}-{SPAN}-01-{'x' * 600}",
    ],
)
def test_anything_else_begins_a_new_trace(header: str | None) -> None:
    assert trace.parse(header) is None


def test_what_is_handed_on_can_be_read() -> None:
    numbers = itertools.count()

    def random(size: int) -> bytes:
        return next(numbers).to_bytes(size, "big")

    made = trace.new(random)
    assert trace.parse(made.header) == made
    # All zeros mean "none": the first draw was thrown away.
    assert int(made.trace_id, 16) == 1
    child = made.child(random)
    assert (child.trace_id, child.flags) == (made.trace_id, made.flags)
    assert child.span_id != made.span_id
