import time
from dataclasses import replace
from threading import Event

import pytest

from sluice_core.adapters.ytdlp.fragments import mend
from sluice_core.adapters.ytdlp.resume import PartialFile, Version
from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.failpoints import Failpoints
from sluice_core.runtime.pieces import Owner
from sluice_core.runtime.pieces import saver as saving
from sluice_core.runtime.pieces.cut import copy_range, look
from sluice_core.runtime.pieces.manifest import Manifest, manifest_key
from sluice_testing.waiting import PATIENCE, until


def test_a_growing_file_goes_on_elsewhere_from_its_last_whole_piece(machine, new_machine, noise):
    data = noise(3500)
    machine.begin()
    saver = machine.saver()
    saver.start()
    for start in range(0, 3500, 500):
        machine.write(data[start : start + 500])
    until(lambda: machine.registered() == 3000)
    # Killed: nothing more is said or done.
    saver.stop()
    other = new_machine(5)
    known = other.restore()
    assert (other.content(), known.length) == (data[:3000], 3000)
    assert other.file.load() == machine.file.load()


def test_whoever_hands_back_saves_all(machine, new_machine, noise):
    data = noise(1700)
    machine.begin()
    machine.write(data)
    with machine.saving():
        pass
    other = new_machine(5)
    other.restore()
    assert other.content() == data


def test_a_third_machine_gets_what_two_have_saved(machine, new_machine, noise):
    data = noise(5000)
    machine.begin()
    machine.write(data[:2200])
    with machine.saving():
        pass
    second = new_machine(5)
    second.restore()
    second.write(data[2200:])
    with second.saving():
        pass
    third = new_machine(8)
    third.restore()
    assert third.content() == data
    # What the first had saved was not uploaded again.
    assert [k for k in second.stored() if "/partial.5/" in k and "/000000000000000" in k] == []


def pieces(machine):
    """Bytes of each piece that another machine would get."""
    text = b"".join(machine.storage.read(manifest_key(machine.run, machine.file.dest.name)))
    return [piece.bytes for piece in Manifest.loads(text).pieces]


@pytest.mark.parametrize("storage", ["folder"], indirect=True)
def test_places_to_cut_are_bounded(machine, noise, monkeypatch):
    """The saver gets its turn late, as if the storage were slower than the download."""
    monkeypatch.setattr(saving, "MAX_CUTS", 4)
    machine.begin(fragments=9)
    saver = machine.saver()
    for index in range(9):
        machine.write(noise(1000))
        machine.note(index)
        saver.look()
    saver.start()
    assert saver.stop(flush=10.0)
    # The newest place is always known, so that in the end all is saved.
    assert machine.registered() == 9000
    assert pieces(machine) == [1000, 1000, 1000, 6000]


@pytest.mark.parametrize("noted", [True, False])
def test_fragments_are_cut_where_their_note_ends(machine, new_machine, noise, noted):
    machine.begin(fragments=10)
    machine.note(0)
    fragments = [noise(700, seed) for seed in range(6)]
    saver = machine.saver()
    saver.start()
    for index, data in enumerate(fragments, 1):
        machine.write(data)
        if noted or index < 6:
            machine.note(index)
        saver.look()
    until(lambda: machine.registered() == (4200 if noted else 2800))
    saver.stop()
    other = new_machine(5)
    other.restore()
    mend(other.file)
    # Pieces of 1,400 bytes: two fragments each, and never half a one.
    whole = 6 if noted else 4
    assert other.content() == b"".join(fragments[:whole])
    assert f'"index": {whole}' in other.file.read_note()


def test_half_a_fragment_is_not_saved_for_it_is_written_again(machine, new_machine, noise):
    fragments = [noise(700, seed) for seed in range(4)]
    machine.begin(fragments=10)
    for index, data in enumerate(fragments[:2], 1):
        machine.write(data)
        machine.note(index)
    machine.write(b"half of a fragment" * 70)
    with machine.saving():
        pass
    # The next run on this machine: it goes on from the note.
    machine.run = replace(machine.run, epoch=4)
    assert machine.restore() is not None
    mend(machine.file)
    for index, data in enumerate(fragments[2:], 3):
        machine.write(data)
        machine.note(index)
    with machine.saving():
        pass
    other = new_machine(5)
    other.restore()
    mend(other.file)
    assert other.content() == b"".join(fragments)


def test_bytes_of_two_generations_are_never_in_one_file(machine, new_machine, noise):
    machine.begin()
    machine.write(noise(2500, 1))
    saver = machine.saver()
    saver.start()
    until(lambda: machine.registered() == 2000)
    machine.file.begin_again(version=Version('"v2"', None, 90_000))
    machine.write(noise(1200, 2))
    # The pieces of the old one go once there is one of the new.
    until(lambda: len(machine.stored()) == 2)
    assert saver.stop(flush=10.0)
    other = new_machine(5)
    other.restore()
    assert other.content() == noise(1200, 2)
    assert other.file.load().version.etag == '"v2"'


def test_a_file_that_begins_anew_while_it_is_copied_is_not_saved(machine, noise, tmp_path):
    machine.begin()
    machine.write(noise(3000))
    cut = look(machine.file)
    machine.file.begin_again()
    assert copy_range(machine.file, cut, 0, 1000, tmp_path / "piece") is None
    machine.write(noise(3000, 2))
    assert copy_range(machine.file, cut, 0, 1000, tmp_path / "piece") is None


def test_what_can_t_be_continued_is_not_saved(tmp_path):
    file = PartialFile(tmp_path / "a")
    file.part.write_bytes(b"x" * 5000)
    assert look(file) is None  # nobody knows of what
    file.begin("1")
    file.part.write_bytes(b"x" * 5000)
    assert look(file) is None  # no version: a later answer can't be told from another file's
    file.note(version=Version('"v1"', None, 9000))
    assert look(file).end == 5000
    file.note(fragments=7)
    assert look(file) is None  # fragments without their note


class Broken:
    """A storage that refuses for a while."""

    outlives_machine = True

    def __init__(self, inner, refusals):
        self._inner = inner
        self.left = refusals

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def put(self, key, path):
        if self.left:
            self.left -= 1
            raise SluiceError("storage: down", code="storage_error")
        self._inner.put(key, path)


def test_a_storage_that_refuses_is_asked_again_and_nothing_else_happens(
    machine, new_machine, noise
):
    machine.storage = Broken(machine.storage, 2)
    machine.begin()
    machine.write(noise(1500))
    with machine.saving():
        until(lambda: len(machine.stored()) == 2)
    other = new_machine(5)
    other.restore()
    assert other.content() == noise(1500)


class Slow(Broken):
    """A storage whose uploads take until they are let go."""

    def __init__(self, inner):
        super().__init__(inner, 0)
        self.began, self.go = Event(), Event()

    def put(self, key, path):
        self.began.set()
        assert self.go.wait(2 * PATIENCE)
        self._inner.put(key, path)


@pytest.mark.parametrize("owner", [Owner.NOBODY, Owner.OTHER])
def test_an_upload_that_outlives_its_run_holds_nobody_up_and_leaves_nothing(machine, noise, owner):
    machine.storage = slow = Slow(machine.storage)
    machine.begin()
    machine.write(noise(2500))
    saver = machine.saver()
    saver.start()
    assert slow.began.wait(PATIENCE)
    machine.owner = owner
    began = time.monotonic()
    assert not saver.stop()
    assert time.monotonic() - began < PATIENCE
    slow.go.set()
    until(lambda: saver.stop(flush=0.01))
    assert machine.stored() == []


def test_of_a_job_that_is_over_nothing_stays(machine, noise):
    machine.begin()
    machine.write(noise(2500))
    saver = machine.saver()
    saver.start()
    until(lambda: machine.registered() == 2000)
    machine.owner = Owner.NOBODY
    until(lambda: saver.stop(flush=0.01))
    assert machine.stored() == []


def test_what_another_run_may_go_on_from_stays(machine, noise):
    machine.begin()
    machine.write(noise(2500))
    saver = machine.saver()
    saver.start()
    until(lambda: machine.registered() == 2000)
    machine.owner = Owner.OTHER
    machine.write(noise(1000))
    saver.look()
    until(lambda: saver.stop(flush=0.01))
    assert len(machine.stored()) == 3


def test_a_piece_that_was_not_registered_is_as_if_it_was_not_there(
    machine, new_machine, noise, tmp_path
):
    machine.begin()
    machine.write(noise(1000))
    points = Failpoints("download.mid_piece=raise", tmp_path / "hits")
    saver = machine.saver(failpoints=points)
    saver.start()
    assert saver.stop(flush=5.0)
    assert (tmp_path / "hits").read_text().startswith("download.mid_piece")
    assert len(machine.stored()) == 1
    assert new_machine(5).restore() is None


def test_a_slow_storage_loses_no_place_to_cut(machine, new_machine, noise):
    machine.storage = slow = Slow(machine.storage)
    machine.begin(fragments=100)
    machine.note(0)
    saver = machine.saver()
    saver.start()
    fragments = [noise(300, seed) for seed in range(40)]
    for index, data in enumerate(fragments, 1):
        machine.write(data)
        machine.note(index)
        saver.look()
    slow.go.set()
    assert saver.stop(flush=10.0)
    other = new_machine(5, of=machine.storage)
    known = other.restore()
    assert other.content() == b"".join(fragments)
    assert {piece.bytes for piece in known.pieces[:-1]} == {1200}
