"""docs/bounds.md against the code: nothing in it may be made up, and no figure may be old."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from sluice_core.adapters import settings

ROOT = Path(__file__).parent.parent
SECONDS_OF = {"day": 86_400, "days": 86_400}
UNITS = {"KiB": 1024, "MiB": 1024**2}


def rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "bounds.md").read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return [row for row in cells if row[0] != "what" and not row[0].startswith("---")]


ROWS = rows()


def figure(text: str) -> float | None:
    """The first number of a cap, in bytes or seconds where it says so."""
    found = re.match(r"([\d,]+)(?: (\w+))?", text)
    if found is None:
        return None
    unit = found[2] or ""
    factor = UNITS.get(unit) or SECONDS_OF.get(unit) or 1
    return int(found[1].replace(",", "")) * factor


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_setting_or_constant(row):
    effective = settings.load({}).effective()
    for name in names(row[2]):
        if name.isupper():
            value = effective[f"SLUICE_{name}"]
        else:
            module, _, constant = name.rpartition(".")
            value = getattr(importlib.import_module(module), constant)
        expected = figure(row[1])
        if expected is not None:
            assert float(value) == expected, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_of_each_row(row):
    cell = row[4]
    if cell == "the same":
        return
    [test] = names(cell)
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not name or name in defined
