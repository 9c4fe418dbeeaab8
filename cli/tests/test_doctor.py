"""The doctor takes nobody for sick who is only slow."""

from __future__ import annotations

import itertools

import pytest

from sluice_cli.doctor.patients import Patients

#: Looks until a worker has told the broker of its run.
LOOKS = 2


class Server:
    """One on which a job has ended whose message is gone after some looks."""

    def __init__(self, looks):
        self._number = itertools.count()
        self._looks = looks

    def get(self, path, _asked=None):
        assert path == "v1/jobs/the-job/explain"
        return {"messages": [{}] * (next(self._number) < self._looks)}


@pytest.mark.parametrize(("patience", "left"), [(60.0, 0), (0.0, 1)])
def test_a_message_that_goes_a_moment_after_its_job_has_ended_is_not_left(patience, left):
    patients = Patients(Server(LOOKS), good="", bad="", site=None)
    patients.ids["good"] = "the-job"
    assert patients.messages_left(patience) == left
