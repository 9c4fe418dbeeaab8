"""What a missing part of the surroundings means: a skip at a desk, a failure in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

#: `all` makes every missing part a failure.
VARIABLE = "SLUICE_TEST_REQUIRE"


def require(part: object, name: str) -> None:
    """End the test unless the part is there (true).

    Args:
        part: a path, a module spec, or whether it was found.
        name: as people know it, e.g. "seaweedfs".

    """
    if not part:
        missing(name)


def missing(name: str) -> NoReturn:
    """Skip the test for want of a part, or fail it where all parts were promised."""
    sentence = f"{name} is not installed"
    if os.environ.get(VARIABLE) == "all":
        pytest.fail(f"{sentence}, but {VARIABLE}=all", pytrace=False)
    pytest.skip(sentence)
