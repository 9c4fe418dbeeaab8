"""A growing partial file, kept in storage piece by piece, so that another machine goes on from it.

A piece is 16 MiB or a little more, and is uploaded once. A manifest beside the pieces says which of
them, in which order, are the beginning of which generation of the file, together with the notes
that the download needs in order to go on. It is replaced whole after each piece::

    work/<job>/partial.<epoch>/<name>/manifest.json
    work/<job>/partial.<epoch>/<name>/<generation>/<first byte>-<end>

A later run's manifest may name pieces of an earlier run of the same job. So a run takes no piece
away, unless the job is over; the sweep of the ended job takes all of them.
"""

from __future__ import annotations

from sluice_core.runtime.pieces.owner import owner
from sluice_core.runtime.pieces.restore import bring, restore
from sluice_core.runtime.pieces.saver import Owner, Saver

__all__ = ["Owner", "Saver", "bring", "owner", "restore"]
