"""What another machine would need to go on with a track: brought here before, saved during."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice_core.adapters.ytdlp.resume import PartialFile
from sluice_core.domain.errors import StaleRunError
from sluice_core.runtime.pieces import Saver, owner, restore
from sluice_core.runtime.run import Run

#: Seconds that a run may take to save the rest of what it has when it ends: well below what a drain
#: leaves for handing back.
FLUSH = 3.0


@contextmanager
def kept(run: Run, path: Path) -> Iterator[Callable[[], None]]:
    """Keep the partial file of a track in storage while it grows, if that outlives this machine.

    What earlier runs saved of it is here when the block begins, maybe as the whole file. Yields
    what is to be called whenever bytes arrived.

    Raises:
        SluiceError: the storage can't be read.
        CanceledRunError, StaleRunError, HandBackError: as the run was told, while it restores.

    """
    deps = run.deps
    if not deps.storage.outlives_machine:
        yield lambda: None
        return
    file = PartialFile(path)
    # Before the first run of the stage nobody can have saved anything.
    known = restore(deps.storage, run.id, file, check=run.check) if run.claim.number > 1 else None
    saver = Saver(
        storage=deps.storage,
        run=run.id,
        file=file,
        owner=lambda: owner(run),
        failpoints=deps.failpoints,
        known=known,
    )
    saver.start()
    flush = 0.0
    try:
        yield saver.look
    except StaleRunError:
        raise
    except Exception:
        flush = FLUSH
        raise
    finally:
        saver.stop(flush=flush, hurry=lambda: deps.running.reason(run.claim.attempt_id) is not None)
