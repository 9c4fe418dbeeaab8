"""No test here is broken by a slow machine: waits are long, and promises are timed fairly."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_testing.waiting import PATIENCE

ROOT = Path(__file__).parent.parent
FOLDERS = ("e2e", "faults", "ops", "scale", "chart", "images")
FILES = sorted(
    file
    for folder in (*(ROOT / "tests" / name for name in FOLDERS), ROOT / "libs/testing/tests")
    for file in folder.rglob("*.py")
)
#: Seconds by a usual clock; what is to be quicker is timed by a `FairClock`.
SOON = 25.0
WAITS = ("until", "wait", "await_result")
CLOCKS = ("time.monotonic()", "time.time()", "time.perf_counter()")


def number(node: ast.AST) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return None


def named(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def short_waits(tree: ast.AST) -> Iterator[str]:
    """Calls that give up sooner than `PATIENCE` says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and named(node.func) in WAITS:
            for keyword in node.keywords:
                given = number(keyword.value)
                if keyword.arg in ("timeout", "patience") and given and given < PATIENCE:
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def hasty_promises(tree: ast.AST) -> Iterator[str]:
    """Asserted upper bounds of what a usual clock measures."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
            continue
        terms = [node.test.left, *node.test.comparators]
        for less, relation, most in zip(terms, node.test.ops, terms[1:], strict=False):
            timed = any(clock in ast.unparse(less) for clock in CLOCKS) and "-" in ast.unparse(less)
            if timed and isinstance(relation, ast.Lt | ast.LtE) and (number(most) or 0) < SOON:
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_wait_is_short_and_no_promise_hasty(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"))
    assert [*short_waits(tree), *hasty_promises(tree)] == []


def test_what_is_hasty_is_seen() -> None:
    tree = ast.parse(
        "until(lambda: 1, timeout=5)\n"
        "until(lambda: 1, timeout=300)\n"
        "until(lambda: 1)\n"
        "assert time.monotonic() - begun < 2\n"
        "assert 1 < time.monotonic() - begun < LIMIT\n"
        "assert time.monotonic() - begun > 2\n"
        "assert time.monotonic() - begun < 75\n"
        "assert clock.seconds < 2\n"
    )
    found = [line.partition(":")[0] for line in (*short_waits(tree), *hasty_promises(tree))]
    assert found == ["line 1", "line 4", "line 5"]
