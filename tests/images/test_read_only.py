"""Every stage on a root that nobody can write to, as a user without a name or a home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sluice_testing.require import require
from sluice_testing.site import SampleSite
from sluice_testing.users import as_user

UID = 54_321
#: Leaves the data folder and an empty /tmp to write to, in a mount namespace of the test's own. The
#: repository is seen where it is, also when that is below /tmp.
CLOSE = """
set -e
mount --make-rprivate /
mount --bind "$DATA" "$DATA"
mkdir "$DATA/repository"
mount --bind "$REPOSITORY" "$DATA/repository"
mount -t tmpfs -o mode=1777 tmpfs /tmp
if ! test -d "$REPOSITORY"; then
    mkdir -p "$REPOSITORY"
    mount --bind "$DATA/repository" "$REPOSITORY"
fi
mount -o remount,bind,ro /
if touch /var/tmp/sluice-probe 2>/dev/null; then echo "the root can be written" >&2; exit 9; fi
exec "$@"
"""


@pytest.fixture
def place():
    # Not below /tmp, which the namespace covers.
    made = Path(tempfile.mkdtemp(prefix="sluice-read-only-", dir="/var/tmp"))
    os.chown(made, UID, UID)
    yield made
    shutil.rmtree(made)


def test_fetched_merged_and_encoded_with_a_read_only_root(place):
    require(os.geteuid() == 0, "the right to mount (root)")
    require(shutil.which("unshare"), "unshare")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "XDG_"))}
    with SampleSite() as site:
        done = subprocess.run(
            [
                *("unshare", "--mount", "sh", "-c", CLOSE, "sh", *as_user(UID)),
                *(sys.executable, "-m", "sluice_cli", "get", site.url("/hls/audio/master.m3u8")),
                *(site.url("/webm/vp9.webm"), "--preset", "720p", "--out", place / "out"),
            ],
            env={
                **kept,
                "DATA": str(place),
                "REPOSITORY": str(Path(__file__).parents[2]),
                "HOME": "/",
                "SLUICE_DATA_DIR": str(place / "data"),
                "SLUICE_EGRESS_ALLOW": site.address(),
            },
            cwd="/",
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert len(list((place / "out").glob("*.mp4"))) == 2
