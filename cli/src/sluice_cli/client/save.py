"""Finished files into a folder: whole, verified, and never over another file."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from sluice_cli.client.api import Api, UnreachableError
from sluice_cli.exits import Exit, Stop

#: Bytes that a file's name may have on common file systems.
MAX_NAME = 255
#: Connections in a row that bring nothing before a file is given up.
TRIES = 4


def check_folder(folder: Path) -> None:
    """Before there is anything to save: whether the folder can be written, or made.

    Raises:
        Stop: it can't.

    """
    whole = folder.absolute()
    found = next(path for path in (whole, *whole.parents) if path.exists())
    if not found.is_dir() or not os.access(found, os.W_OK | os.X_OK):
        raise Stop(Exit.WRONG_USE, f"{folder} can't be written.")


def save(api: Api, file: dict[str, Any], folder: Path) -> Path:
    """Fetch one entry of a job's `files`. Returns where it is.

    Raises:
        Stop: the folder can't be written, or what arrived is not what the job made.
        UnreachableError: the server went away.

    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".sluice-", suffix=".part")
    except OSError as exc:
        raise Stop(Exit.WRONG_USE, f"{folder} can't be written: {exc.strerror}.") from exc
    part = Path(name)
    try:
        with os.fdopen(handle, "w+b") as target:
            _fetch(api, file, target)
        return _publish(part, folder, safe_name(str(file["name"])))
    except OSError as exc:
        raise Stop(Exit.WRONG_USE, f"{folder} can't be written: {exc.strerror}.") from exc
    finally:
        part.unlink(missing_ok=True)


def save_together(api: Api, files: list[dict[str, Any]], folder: Path, name: str) -> list[Path]:
    """Fetch files that name each other into a new folder `name`, under the names that they have.

    Raises:
        Stop, UnreachableError: as `save`; nothing was kept.

    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder, prefix=".sluice-", suffix=".part"))
    except OSError as exc:
        raise Stop(Exit.WRONG_USE, f"{folder} can't be written: {exc.strerror}.") from exc
    try:
        names = [save(api, file, part).name for file in files]
        part.chmod(0o777 & ~_umask())
        final = _new_folder(folder, safe_name(name))
        part.replace(final)
    except OSError as exc:
        raise Stop(Exit.WRONG_USE, f"{folder} can't be written: {exc.strerror}.") from exc
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return [final / each for each in names]


def _new_folder(folder: Path, name: str) -> Path:
    """An empty folder of that name, or of the first free one like "name (2)"."""
    for number in count(1):
        final = folder / numbered(name, number)
        try:
            final.mkdir()
        except FileExistsError:
            continue
        return final
    raise AssertionError("count never ends")


def _fetch(api: Api, file: dict[str, Any], target: BinaryIO) -> None:
    """Bytes, going on from where a cut connection ended, then their sum."""
    done, size, digest, idle = 0, int(file["bytes"]), hashlib.sha256(), 0
    while done < size:
        before = done
        try:
            for piece in _pieces(api, file["url"], start=done):
                done += target.write(piece)
                digest.update(piece)
        except UnreachableError:
            idle = 0 if done > before else idle + 1
            if idle >= TRIES:
                raise
            continue
        if done == before:
            break
    if done != size or digest.hexdigest() != file["sha256"]:
        raise Stop(Exit.JOB_FAILED, f"{file['name']} did not arrive whole; nothing was kept.")
    target.flush()
    os.fsync(target.fileno())


def _pieces(api: Api, url: str, *, start: int) -> Iterator[bytes]:
    headers = {"Range": f"bytes={start}-", "Accept-Encoding": "identity"} if start else {}
    with api.stream(url, headers=headers) as response:
        if start and response.status_code != 206:  # noqa: PLR2004  # partial content
            raise UnreachableError("the server does not resume a file")
        # As they come: pieces of a fixed size would hold back what came before a cut.
        yield from response.iter_bytes()


def _publish(part: Path, folder: Path, name: str) -> Path:
    """Under its name, or the first free one like "name (2)": a link never overwrites."""
    os.chmod(part, 0o666 & ~_umask())  # noqa: PTH101  # as any new file
    for number in count(1):
        final = folder / numbered(name, number)
        try:
            os.link(part, final)
        except FileExistsError:
            continue
        except OSError:
            # No hard links here (FAT, some network shares): take the name first, then fill it.
            if not _claimed(final):
                continue
            part.replace(final)
        return final
    raise AssertionError("count never ends")


def _claimed(final: Path) -> bool:
    try:
        final.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def numbered(name: str, number: int) -> str:
    """`name (2).mp4` for the second of its name, short enough for any file system."""
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(suffix) > 10:  # noqa: PLR2004  # longer is no suffix but a sentence
        stem, dot, suffix = name, "", ""
    end = (f" ({number})" if number > 1 else "") + dot + suffix
    room = MAX_NAME - len(end.encode())
    return stem.encode()[:room].decode(errors="ignore") + end


def safe_name(name: str) -> str:
    """A server's name as one path component: what it calls a file is data."""
    kept = "".join("_" if _unfit(character) else character for character in name).strip(" ")
    return kept if kept.strip(".") else "file"


def _unfit(character: str) -> bool:
    return character in "/\\" or unicodedata.category(character) in ("Cc", "Cs")
