"""Column types that take whatever text a site sends, alike in every database."""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

#: NUL, which PostgreSQL refuses, and halves of characters, which no encoding can hold.
_UNFIT = re.compile("[\0\ud800-\udfff]")


def mended(value: Any) -> Any:
    """The value with a replacement character for each character that can't be stored."""
    if isinstance(value, str):
        return _UNFIT.sub("\ufffd", value)
    if isinstance(value, dict):
        return {mended(k): mended(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [mended(v) for v in value]
    return value


class Words(sa.TypeDecorator[str]):
    """Text for people: mended, and cut to the column's length instead of refused."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, length: int | None = None) -> None:
        super().__init__()
        self.length = length

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        del dialect
        return sa.Text() if self.length is None else sa.String(self.length)

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        del dialect
        return None if value is None else mended(value)[: self.length]


class Json(sa.TypeDecorator[Any]):
    """JSON with mended text; None is SQL's null."""

    impl = sa.JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        kind = JSONB if dialect.name == "postgresql" else sa.JSON
        return dialect.type_descriptor(kind(none_as_null=True))

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        del dialect
        return mended(value)
