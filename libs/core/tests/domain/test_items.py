from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_core.domain.errors import SluiceError
from sluice_core.domain.items import Items


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("3", [3]),
        ("2-4", [2, 3, 4]),
        ("7-", [7, 8, 9]),
        ("1, 3-4 ,8-", [1, 3, 4, 8, 9]),
    ],
)
def test_items(text, wanted):
    assert [index for index in range(1, 10) if index in Items.parse(text)] == wanted


@pytest.mark.parametrize("text", ["0", "3-2", "a", "-3", "1,,2", "1-2-3", "-", "12 34", "1" * 10])
def test_items_that_can_not_be_read(text):
    with pytest.raises(SluiceError):
        Items.parse(text)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=4))
def test_last_item_is_the_end_of_all_ranges(pairs):
    items = Items.parse(",".join(f"{first}-{first + more}" for first, more in pairs))
    assert items.last == max(index for index in range(60) if index in items)
