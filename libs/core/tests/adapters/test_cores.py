"""Cores as a container grants them."""

from __future__ import annotations

import os

import pytest

from sluice_core.adapters.cores import usable_cores

MACHINE = 64


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(MACHINE)))


@pytest.mark.parametrize(
    ("written", "cores"),
    [("200000 100000", 2), ("50000 100000", 1), ("250000 100000", 3), ("max 100000", MACHINE),
     ("9900000 100000", MACHINE)],
)  # fmt: skip
def test_a_quota_of_version_2(tmp_path, written, cores):
    (tmp_path / "cpu.max").write_text(written + "\n")
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("200000", 2), ("-1", MACHINE)])
def test_a_quota_of_version_1(tmp_path, quota, cores):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(tmp_path) == cores


def test_no_quota_to_be_seen(tmp_path):
    assert usable_cores(tmp_path) == MACHINE


def test_here_it_is_at_least_one():
    assert 1 <= usable_cores() <= MACHINE
