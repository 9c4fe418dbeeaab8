"""API keys as the database keeps them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import access
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import write
from sluice_testing.factories import NOW


@pytest.mark.parametrize("name", ["", "\0", "\0" * 26, "\ud800" * 26, "x" * 26, "A" * 27])
def test_a_key_is_found_by_its_own_id_whatever_strangers_ask_for(
    engine: sa.Engine, name: str
) -> None:
    with write(engine) as c:
        _, key = access.create(c, name="test", scopes=[Scope.READ], now=NOW)
        found = access.get_open(c, key.id)
        assert found is not None
        assert found.id == key.id
        assert access.get_open(c, name) is None
