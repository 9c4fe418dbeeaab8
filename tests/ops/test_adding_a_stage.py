"""What docs/adding-a-stage.md says, done to a copy of the sources: a job passes the new stage."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from pathlib import Path

import pytest

from sluice_testing.system import running

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-stage.md"
BLOCK = re.compile(r"^ *```(diff|python|toml)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def changes():
    """The page's blocks: what kind each is, the file that it names, its lines."""
    for kind, indented in BLOCK.findall(PAGE.read_text()):
        head, _, text = textwrap.dedent(indented).partition("\n")
        yield kind, head.removeprefix("---").removeprefix("#").strip(), text


def changed(source, block):
    """The text after the block's hunks, each of which must fit in one place."""
    for hunk in block.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert source.count(old) == 1, (
            f"the page shows what is not there, or is there twice:\n{old}"
        )
        source = source.replace(old, new)
    return source


@pytest.fixture
def sources(tmp_path):
    """Folders for PYTHONPATH: members that the page changes, as they are then, and its own."""
    folders = set()
    for kind, name, text in changes():
        member, _, below = name.partition("/src/")
        folder = tmp_path / "repo" / member / "src"
        if kind == "diff" and folder not in folders:
            shutil.copytree(ROOT / member / "src", folder)
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if below:
            folders.add(folder)
            (path.parent / "__init__.py").touch()
        path.write_text(changed(path.read_text(), text) if kind == "diff" else text)
    return os.pathsep.join(map(str, folders))


@pytest.fixture
def grown(world, sources, tmp_path):
    """A system of which `check` is a part."""
    with running(
        tmp_path / "data",
        SLUICE_EGRESS_ALLOW=world.address(),
        PYTHONPATH=sources,
    ) as system:
        yield system


@pytest.mark.timeout(600)
def test_a_stage_that_was_added_by_the_page_does_its_part(grown, world):
    job = grown.submit(world.url("/clips/9001/clip.mp4"), preset="original")
    silent = grown.submit(world.url("/mp4/silent.mp4"), preset="audio-mp3")
    ended, failed = grown.wait([job["id"], silent["id"]], timeout=200)
    assert ended["status"] == "SUCCESS", ended["error"]
    for stage in ("download", "check", "transcode"):
        assert grown.outcomes(job, stage)[-1:] == ["ok"], stage
    assert {"check", "transcode"} <= grown.http.get("/v1/stats").json()["workers"].keys()
    # A retry finds the stage: there is no sound to convert, and what was fetched is kept.
    assert grown.outcomes(silent, "transcode") == ["failed"], failed
    grown.http.post(f"/v1/jobs/{silent['id']}/retry").raise_for_status()
    grown.wait([silent["id"]])
    assert grown.outcomes(silent, "check") == ["ok", "ok"]
    # Where it does not know a part the nursery fails, and all go on without it.
    assert "nursery ended (exit code" not in grown.log.read_text()
