"""A store that is away at the start."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from sluice_core.domain.errors import NotYetError
from sluice_core.runtime import patience


def test_what_is_waited_for_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PAUSE", 0.0)
    reasons = ["away.", "away.", "away.", "no tables.", "no tables."]

    def check() -> None:
        if reasons:
            raise NotYetError(reasons.pop(0))

    with capture_logs() as logs:
        patience.patiently(check, 60)
    assert [line["reason"] for line in logs] == ["away.", "no tables."]
    assert not reasons
