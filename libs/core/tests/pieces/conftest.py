from __future__ import annotations

import json
import random
from contextlib import contextmanager

import pytest

from sluice_core.adapters.storage.folder import FolderStorage
from sluice_core.adapters.ytdlp.resume import PART_BYTES, PartialFile, Version
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import RunId
from sluice_core.runtime.failpoints import Failpoints
from sluice_core.runtime.pieces import Owner, Saver, restore
from sluice_core.runtime.pieces.manifest import Manifest, manifest_key

PIECE = 1000
JOB = "01KB0000000000000000000000"


class Machine:
    """A scratch folder with one growing file, written as by a media child."""

    def __init__(self, folder, storage, epoch):
        folder.mkdir()
        self.storage = storage
        self.run = RunId(JOB, Actor.DOWNLOAD, epoch)
        self.file = PartialFile(folder / "137.video.media")
        self.owner = Owner.SELF
        self.known = None

    def begin(self, *, fragments=None, etag='"v1"'):
        self.file.begin("137")
        self.file.note(version=Version(etag, None, 100_000), fragments=fragments)

    def write(self, data):
        with self.file.part.open("ab") as part:
            part.write(data)

    def note(self, index):
        """What the library does after it wrote a fragment."""
        note = {
            "current_fragment": {"index": index},
            "extra_state": {PART_BYTES: self.file.part_size()},
        }
        self.file.note_file.write_text(json.dumps({"downloader": note}))

    def saver(self, *, failpoints=None):
        return Saver(
            storage=self.storage,
            run=self.run,
            file=self.file,
            owner=lambda: self.owner,
            failpoints=failpoints or Failpoints(),
            known=self.known,
            piece=PIECE,
        )

    @contextmanager
    def saving(self, **options):
        """A saver at work, with nothing left to do when the block ends."""
        saver = self.saver(**options)
        saver.start()
        try:
            yield saver
        finally:
            assert saver.stop(flush=10.0)

    def restore(self):
        self.known = restore(self.storage, self.run, self.file, check=lambda: None)
        return self.known

    def content(self):
        return self.file.part.read_bytes() if self.file.part.exists() else None

    def registered(self):
        """Bytes that another machine would get."""
        text = b"".join(self.storage.read(manifest_key(self.run, self.file.dest.name)))
        return Manifest.loads(text).length if text else 0

    def stored(self):
        return sorted(self.storage.keys(f"work/{JOB}/"))


@pytest.fixture(params=["folder", "seaweedfs"])
def storage(request, tmp_path):
    if request.param == "folder":
        storage = FolderStorage(tmp_path / "storage")
        storage.check()
        return storage
    return request.getfixturevalue("weed_server").new_storage()


@pytest.fixture
def new_machine(tmp_path, storage):
    def make(epoch, *, of=storage):
        return Machine(tmp_path / f"machine-{epoch}", of, epoch)

    return make


@pytest.fixture
def machine(new_machine):
    return new_machine(3)


@pytest.fixture(scope="session")
def noise():
    return lambda size, seed=0: random.Random(seed).randbytes(size)
