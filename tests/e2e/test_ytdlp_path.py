"""A newer yt-dlp than the installed one, which sites may ask for before a release of ours."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from sluice_testing.site import SampleSite
from sluice_testing.system import running

NEWER = "2099.1.1"


def newer_ytdlp(folder: Path) -> Path:
    """What `pip install --target` makes, of a yt-dlp that can be told from the installed one."""
    spec = find_spec("yt_dlp")
    assert spec is not None
    assert spec.origin is not None
    package = folder / "yt_dlp"
    shutil.copytree(Path(spec.origin).parent, package)
    generic = package / "extractor" / "generic.py"
    text = generic.read_text()
    assert "IE_NAME = 'generic'" in text
    generic.write_text(text.replace("IE_NAME = 'generic'", "IE_NAME = 'generic:newer'"))
    about = folder / f"yt_dlp-{NEWER}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: yt-dlp\nVersion: {NEWER}\n")
    return folder


def test_a_newer_ytdlp_is_used_and_told(tmp_path: Path) -> None:
    newer = newer_ytdlp(tmp_path / "newer")
    with (
        SampleSite() as site,
        running(
            tmp_path / "data",
            SLUICE_EGRESS_ALLOW=site.address(),
            SLUICE_YTDLP_PATH=str(newer),
        ) as system,
    ):
        (job,) = system.wait([system.submit(site.url("/mp4/plain.mp4"))["id"]])
        assert job["status"] == "SUCCESS", job["error"]
        assert job["extractor"] == "generic:newer"
        assert system.http.get("/v1/stats").json()["versions"]["yt-dlp"] == [NEWER]
