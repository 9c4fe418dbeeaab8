"""Rows for people or for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from sluice_cli.words import clean


def print_json(value: Any) -> None:
    """One document on one line, text as it is."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_rows(rows: Iterable[Sequence[Any]], *, head: Sequence[str]) -> None:
    """Aligned columns; plain text, so that it can be piped and cut."""
    texts = [tuple(head), *(tuple(clean(_text(cell)) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(head))]
    for row in texts:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    return str(value)
