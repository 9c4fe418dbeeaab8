"""The data folder: made, locked for one instance, and asked who runs on it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from sluice_core.adapters.seal import Sealer, new_key
from sluice_core.domain.errors import ConfigError

LOCK = "sluice.lock"
STATE = "sluice.json"
SITE_SECRETS_KEY = "site-secrets.key"
#: Bytes that a Unix socket's path may have: 104 on macOS, 108 on Linux, the closing zero included.
MAX_SOCKET_PATH = 103


@dataclass(frozen=True, slots=True)
class Instance:
    """A system that runs on a data folder."""

    url: str
    pid: int
    #: It ends with the command that started it.
    temporary: bool = False


def prepare(folder: Path) -> Path:
    """Make the folder, for its owner alone. Returns its absolute path.

    Raises:
        ConfigError: it can't be made or written.

    """
    absolute = folder.expanduser().absolute()
    try:
        absolute.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=absolute):
            pass
    except OSError as exc:
        raise ConfigError(f"The data folder {absolute} can't be written: {exc.strerror}.") from exc
    return absolute


def lock(folder: Path) -> int:
    """Take the folder for this process and whatever it becomes by exec.

    Returns:
        The descriptor that holds the lock, inheritable; the kernel lets go when it is closed.

    Raises:
        ConfigError: another instance has it.

    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        other = running_on(folder)
        where = f" at {other.url} (process {other.pid})" if other else ""
        raise ConfigError(
            f"Another Sluice runs on the data folder {folder}{where};"
            " stop it or set SLUICE_DATA_DIR to another folder."
        ) from exc
    os.set_inheritable(descriptor, True)  # noqa: FBT003  # the function has no keyword
    return descriptor


def running_on(folder: Path) -> Instance | None:
    """Who runs there: the state file is believed only while somebody holds the lock."""
    if not is_locked(folder):
        return None
    try:
        raw = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return Instance(str(raw["url"]), int(raw["pid"]), temporary=bool(raw.get("temporary")))
    except (OSError, ValueError, KeyError, TypeError):
        # Held, but not told yet: it is just starting.
        return None


def is_locked(folder: Path) -> bool:
    """Whether an instance holds the folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def site_secrets_key(folder: Path) -> str:
    """The key of what is kept for sites, made once; the caller holds the folder's lock.

    Raises:
        ConfigError: others can read it, it holds no key, or it can be neither read nor made.

    """
    path = folder / SITE_SECRETS_KEY
    try:
        if not path.exists():
            _make_key(path)
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"The file {path} must be readable by you alone (mode 0600).")
        found = path.read_text(encoding="ascii").strip()
        Sealer([found])
    except OSError as exc:
        raise ConfigError(f"The file {path} can't be read or made: {exc.strerror}.") from exc
    except ValueError as exc:
        raise ConfigError(f"The file {path} holds no key: put back what was in it.") from exc
    return found


def _make_key(path: Path) -> None:
    """Whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with open(new, "x", encoding="ascii", opener=_for_owner_alone) as file:
        file.write(f"{new_key()}\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _for_owner_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def socket_folder(folder: Path, *, name: str) -> Path:
    """A folder of the owner's alone whose path leaves room for the socket `name`.

    A deep data folder's own path is too long for a socket; then one below the system's folder for
    temporary files is used, the same at each start.

    Raises:
        ConfigError: somebody else holds that folder.

    """
    own = folder / "run"
    if len(os.fsencode(own / name)) > MAX_SOCKET_PATH:
        digest = sha256(os.fsencode(folder)).hexdigest()[:16]
        own = Path(tempfile.gettempdir()) / f"sluice-{os.getuid()}-{digest}"
    own.mkdir(mode=0o700, exist_ok=True)
    found = own.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"The folder {own} must belong to you alone (mode 0700).")
    return own
