from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.scale.rig import Rig


@pytest.fixture
def new_rig(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Callable[..., Rig]]:
    with ExitStack() as stack:

        def make(**fields: Any) -> Rig:
            rig = Rig(tmp_path, database_url, fields.pop("redis_url", redis_url), **fields)
            stack.callback(rig.stop)
            return rig

        yield make
