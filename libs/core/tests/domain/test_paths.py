from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_core.domain.disposition import attachment
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import (
    RunId,
    final_key,
    final_prefix,
    parse_folder,
    work_key,
    work_prefix,
)
from sluice_core.domain.plan import Plan, Source, Track

JOB_ID = st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=26, max_size=26)


@given(JOB_ID, st.sampled_from(Actor), st.integers(0, 10**9))
def test_a_folder_names_its_run(job_id: str, stage: Actor, epoch: int) -> None:
    run = RunId(job_id, stage, epoch)
    assert parse_folder(run.folder) == run
    assert "/" not in run.folder


@pytest.mark.parametrize(
    "name",
    ["", ".", "x", "job.download", "job.download.", "job.dance.1", ".download.1",
     "job.download.-1", "job.download.1.part", "job.download.1a"],
)  # fmt: skip
def test_other_folders_are_nobodys(name: str) -> None:
    assert parse_folder(name) is None


@given(JOB_ID, st.sampled_from(Actor), st.integers(0, 99), st.integers(0, 99))
def test_keys_of_two_epochs_never_meet(job_id: str, stage: Actor, one: int, two: int) -> None:
    first, second = RunId(job_id, stage, one), RunId(job_id, stage, two)
    for key_of, prefix in ((work_key, work_prefix), (final_key, final_prefix)):
        assert key_of(first, "a.mp4").startswith(prefix(job_id))
        # Not even as the start of each other: epoch 1 is no prefix of epoch 12.
        meets = key_of(second, "a.mp4").startswith(key_of(first, ""))
        assert meets == (one == two)


def test_keys_as_the_sweeper_knows_them() -> None:
    run = RunId("J", Actor.TRANSCODE, 5)
    assert work_key(run, "137.mp4") == "work/J/transcode.5/137.mp4"
    assert final_key(run, "影片.mp4") == "files/J/transcode.5/影片.mp4"


def test_plans_and_sources_survive_their_row() -> None:
    plan = Plan("work/J/parse.1/info.json", (Track("137", "video", "mp4", 5),))
    assert Plan.from_json(plan.to_json()) == plan
    source = Source("137", "video", "work/J/download.2/137.mp4", 5, "mp4")
    assert Source.from_json(source.to_json()) == source


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("film.mp4", "attachment; filename=\"film.mp4\"; filename*=UTF-8''film.mp4"),
        ("影.mp4", "attachment; filename=\"_.mp4\"; filename*=UTF-8''%E5%BD%B1.mp4"),
        ('a"\\%b', "attachment; filename=\"a___b\"; filename*=UTF-8''a%22%5C%25b"),
    ],
)
def test_names_in_headers(name: str, value: str) -> None:
    assert attachment(name) == value


@given(st.text(max_size=80))
def test_any_name_makes_a_safe_header(name: str) -> None:
    value = attachment(name)
    assert value.isascii()
    assert value.isprintable()
    assert value.count('"') == 2
