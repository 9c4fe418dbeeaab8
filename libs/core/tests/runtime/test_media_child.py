from __future__ import annotations

from pathlib import Path

from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_core.runtime import media_child
from sluice_core.runtime.children import ForkServer, child_environment
from sluice_core.runtime.run import Advance

CHILD = Path(__file__).parents[1] / "children"


def test_a_description_that_is_too_long_is_no_site_without_media(rig, tmp_path, monkeypatch):
    monkeypatch.setattr(media_child, "MAX_EVENT", 1_000)
    env = child_environment(home=tmp_path, base={}) | {"PYTHONPATH": str(CHILD)}
    job, message = rig.job_at(Actor.PARSE)
    events = []

    def handle(run):
        media_child.call(run, server, {"act": "endless_line"}, on_event=events.append)
        return Advance(Actor.DOWNLOAD)

    with ForkServer(module="child_module", env=env, cwd=tmp_path) as server:
        rig.run(handle, message, Actor.PARSE)
    ended = rig.now(job)
    assert (ended.status, ended.error.code) == (Status.FAILED, "too_large")
    assert "longer than 1000 bytes" in ended.error.message
