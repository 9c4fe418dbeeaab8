"""The cache of sample files: made lazily, shared by any number of processes, never half-made."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_core.domain.errors import ConfigError, SluiceError

from .recipes import Recipe, recipe_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds for one ffmpeg command, and for waiting until another process has made a recipe.
MAKE_TIMEOUT = 120.0
_LOCK_POLL = 0.02


def sample_ffmpeg() -> Path:
    """The wheel's ffmpeg before any other, so that machines make the same bytes.

    Raises:
        ConfigError: there is no ffmpeg at all.
    """
    try:
        return ffmpeg_tools(path="").ffmpeg
    except ConfigError:
        return ffmpeg_tools().ffmpeg


def default_cache_dir() -> Path:
    """A folder of this user under the system's temporary folder, kept between runs."""
    return Path(tempfile.gettempdir()) / f"sluice-samples-{os.getuid()}"


class MediaCache:
    """Makes recipes on first use and keeps their folders.

    Args:
        folder: shared by processes of one user; created when absent.
        ffmpeg: path of the binary.
    """

    def __init__(self, folder: Path, *, ffmpeg: Path) -> None:
        # Another build of ffmpeg makes other bytes; its size tells builds apart well enough.
        self._folder = folder / f"{ffmpeg.name}-{ffmpeg.stat().st_size}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._ffmpeg = ffmpeg

    def file(self, path: str) -> Path | None:
        """The file behind a URL path, made now when needed; None when no recipe has it."""
        found = recipe_for(path)
        if found is None:
            return None
        recipe, name = found
        file = self.ensure(recipe) / name
        return file if file.is_file() else None

    def ensure(self, recipe: Recipe) -> Path:
        """The recipe's finished folder.

        Raises:
            SluiceError: `transcode_failed` when ffmpeg fails, `timeout` when another process
                holds the recipe for too long.
        """
        final = self._folder / recipe.key
        if not final.is_dir():
            with self._lock(recipe.key):
                if not final.is_dir():
                    self._make(recipe, final)
        return final

    def blob(self, name: str, make: Callable[[], bytes]) -> Path:
        """A file with the bytes that `make` gives, written once under `name`."""
        final = self._folder / name
        if not final.is_file():
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=f".{name}.")
            with os.fdopen(handle, "wb") as file:
                file.write(make())
            # Atomic, and the same bytes whoever wins.
            Path(temporary).rename(final)
        return final

    def _make(self, recipe: Recipe, final: Path) -> None:
        # Only the lock's holder makes this recipe, so what lies here was left by a killed one.
        for stale in self._folder.glob(f".{recipe.key}.*"):
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(dir=self._folder, prefix=f".{recipe.key}."))
        try:
            for step in recipe.steps:
                self._run(step, work)
            work.rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _run(self, step: tuple[str, ...], folder: Path) -> None:
        command = [str(self._ffmpeg), "-nostdin", "-v", "error", "-y", "-filter_threads", "1"]
        try:
            subprocess.run(  # noqa: S603  # our own binary and our own arguments
                [*command, "-filter_complex_threads", "1", *step],
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=MAKE_TIMEOUT,
            )
        except subprocess.CalledProcessError as exc:
            tail = exc.stderr.decode(errors="replace")[-400:]
            raise SluiceError(f"sample media: {tail}", code="transcode_failed") from exc
        except subprocess.TimeoutExpired as exc:
            raise SluiceError("sample media: ffmpeg took too long", code="timeout") from exc

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        """One maker per recipe over all processes; the kernel frees it when the maker dies."""
        deadline = time.monotonic() + MAKE_TIMEOUT
        with (self._folder / f"{key}.lock").open("w") as file:
            while not _try_lock(file.fileno()):
                if time.monotonic() > deadline:
                    raise SluiceError(f"sample media: {key} is locked", code="timeout")
                time.sleep(_LOCK_POLL)
            yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
