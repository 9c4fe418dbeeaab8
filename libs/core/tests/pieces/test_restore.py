import pytest

from sluice_core.adapters.ytdlp.resume import Version
from sluice_core.domain.errors import CanceledRunError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import RunId, work_key
from sluice_core.runtime.pieces import restore
from sluice_core.runtime.pieces.manifest import manifest_key

JOB = "01KB0000000000000000000000"


@pytest.fixture
def saved(machine, noise):
    """3,500 bytes in storage, saved by run 3."""
    machine.begin()
    machine.write(noise(3500))
    with machine.saving():
        pass
    return machine


def spoil(machine, number, data):
    """Put other bytes in the place of a piece; None takes it away."""
    [key] = [k for k in machine.stored() if f"/{number * 1000:015d}-" in k]
    if data is None:
        machine.storage.delete(key)
        return
    file = machine.file.dest.with_name("spoilt")
    file.write_bytes(data)
    machine.storage.put(key, file)


def test_nothing_saved_is_nothing_here(machine):
    assert machine.restore() is None
    assert list(machine.file.dest.parent.iterdir()) == []


@pytest.mark.parametrize("bad", [None, b"", b"x" * 1000, b"x" * 1500])
def test_what_comes_before_a_bad_piece_is_used(saved, new_machine, noise, bad):
    spoil(saved, 2, bad)
    other = new_machine(5)
    known = other.restore()
    assert (other.content(), known.length) == (noise(3500)[:2000], 2000)


@pytest.mark.parametrize("bad", [None, b"x" * 1000])
def test_without_its_first_piece_all_begins_anew(saved, new_machine, bad):
    spoil(saved, 0, bad)
    other = new_machine(5)
    assert other.restore() is None
    assert other.content() is None
    assert other.file.load().generation is None


def test_fragments_without_all_bytes_of_their_note_begin_anew(machine, new_machine, noise):
    machine.begin(fragments=9)
    machine.write(noise(3000))
    machine.note(3)
    with machine.saving():
        pass
    spoil_key = next(k for k in machine.stored() if "manifest" not in k)
    file = machine.file.dest.with_name("spoilt")
    file.write_bytes(noise(2900))
    machine.storage.put(spoil_key, file)
    other = new_machine(5)
    assert other.restore() is None
    assert other.content() is None


def test_a_manifest_that_can_t_be_read_leaves_the_one_before(saved, new_machine, noise):
    file = saved.file.dest.with_name("spoilt")
    file.write_bytes(b'{"pieces": [')
    newer = RunId(JOB, Actor.DOWNLOAD, 4)
    saved.storage.put(manifest_key(newer, saved.file.dest.name), file)
    other = new_machine(5)
    other.restore()
    assert other.content() == noise(3500)


@pytest.mark.usefixtures("saved")
def test_more_that_is_here_stays(new_machine, noise):
    other = new_machine(5)
    other.restore()
    other.write(b"more")
    assert other.restore() is not None
    assert other.content() == noise(3500) + b"more"


@pytest.mark.usefixtures("saved")
def test_more_of_another_generation_that_is_here_stays_and_is_saved_on_its_own(new_machine, noise):
    other = new_machine(5)
    other.begin(etag='"v2"')
    other.write(noise(4000, 2))
    assert other.restore() is None
    with other.saving():
        pass
    third = new_machine(7)
    third.restore()
    assert third.content() == noise(4000, 2)
    assert third.file.load().version == Version('"v2"', None, 100_000)


@pytest.mark.usefixtures("saved")
def test_less_that_is_here_gives_way(new_machine, noise):
    other = new_machine(5)
    other.begin()
    other.write(b"less")
    other.restore()
    assert other.content() == noise(3500)


@pytest.mark.usefixtures("saved")
def test_what_a_later_run_saved_is_not_for_an_earlier_one(new_machine):
    assert new_machine(2).restore() is None


def test_a_finished_track_of_an_earlier_run_is_taken_whole(saved, new_machine, noise):
    whole = saved.file.dest
    whole.write_bytes(noise(9000))
    saved.storage.put(work_key(saved.run, whole.name), whole)
    other = new_machine(5)
    assert other.restore() is None
    assert other.file.dest.read_bytes() == noise(9000)


@pytest.mark.usefixtures("saved")
def test_restoring_ends_when_the_run_is_told_to(new_machine):
    other = new_machine(5)

    def told():
        raise CanceledRunError(JOB)

    with pytest.raises(CanceledRunError):
        restore(other.storage, other.run, other.file, check=told)
    # What is here without its notes proves nothing.
    assert other.file.load().generation is None
