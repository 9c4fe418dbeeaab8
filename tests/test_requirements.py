"""The table of requirements names tests that exist, for each row that is called done."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tests" / "requirements.md"
ROW = re.compile(r"\| (?P<row>[A-J]\d+) \| (?P<tests>[^|]+) \| (?P<seen>[^|]+) \|")
DONE = (
    "A1 A2 A3 A4 A5 A6 B1 B2 B3 B4 B5 C1 C2 C3 C4 C5 C6 C7 C8 D1 D2 D3 D4 D5 D6 D7 E1 E2 E3"
    " E4 E5 E6 E7 F1 F2 F3 F4 F5 G1 G2 G3 G4 H1 H2 H3 H4 H5 H6 H7 H8 I1 I2 I3 I4 I5 I6 J1 J2 J3"
    " J4 J5 J6 J7"
)

ROWS = [match for line in TABLE.read_text().splitlines() if (match := ROW.match(line))]
NAMES = sorted({name for match in ROWS for name in re.findall(r"`([^`]+::[^`]+)`", match["tests"])})


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", NAMES)
def test_the_named_test_exists(name: str) -> None:
    file, _, function = name.partition("::")
    # A method is named with its class, as the test runner takes it.
    assert function.rpartition("::")[2] in functions(ROOT / file)


@pytest.mark.parametrize("row", DONE.split())
def test_the_row_has_a_test_that_was_seen_to_fail(row: str) -> None:
    own = [match for match in ROWS if match["row"] == row]
    assert own
    assert any("::" in match["tests"] for match in own)
    assert all(match["seen"].strip() for match in own)
