from __future__ import annotations

import pytest

from sluice_testing.require import require
from tests.chart.render import CASES, helm, render


@pytest.fixture(autouse=True)
def _helm():
    require(helm(), "helm")


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def objects(case):
    return render(case)
