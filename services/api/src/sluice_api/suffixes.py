"""Names below which anybody may have a site: what is kept for one would go to all of them."""

from __future__ import annotations

from functools import cache

from publicsuffixlist import PublicSuffixList


def is_public_suffix(host: str) -> bool:
    """Whether it is `com`, `co.uk`, `github.io` and the like; a name that no list has is none."""
    return bool(_known().is_public(host))


@cache
def _known() -> PublicSuffixList:
    # Unknown ones are names of one's own: `nas`, `media.internal`.
    return PublicSuffixList(accept_unknown=False)
