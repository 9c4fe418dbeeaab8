"""The whole environment of a child: what it needs, and nothing that is secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: Where the system keeps certificates, when it says so.
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")

_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


def child_environment(
    *,
    home: Path,
    programs: Iterable[Path] = (),
    modules: Path | None = None,
    base: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment for a `ForkServer` or an `ExecSpec`.

    Args:
        home: HOME and TMPDIR; a scratch folder.
        programs: folders put in front of the system's on PATH, e.g. the one that holds deno.
        modules: a folder of Python packages that stands before what is installed.
        base: the worker's own environment, of which only the certificates' places are taken.

    """
    path = [*(str(folder) for folder in programs), *_SYSTEM_PATH]
    return {
        "PATH": ":".join(path),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(home),
        **({"PYTHONPATH": str(modules)} if modules else {}),
        **{name: base[name] for name in _CERTIFICATES if name in base},
    }
