"""Builds images from our Dockerfiles, on a base that is made on the spot from Debian's packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice_testing.require import require

#: Minor version of Python -> the Debian release that has it.
_SUITES = {11: "bookworm", 13: "trixie"}
#: Seconds that any one step may take on a busy machine.
_PATIENCE = 600.0
_BASE = "localhost/base"
_TAG = "test"
_FOLDERS = ("images", "libs", "services")
_FILES = (".dockerignore", "pyproject.toml", "uv.lock")


@dataclass(frozen=True, slots=True)
class Image:
    """What an engine would start."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    env: tuple[str, ...]
    user: str
    workdir: str
    labels: Mapping[str, str]
    #: Its file system, mounted.
    root: Path


def can_build(source: Path) -> None:
    """End the test where images can't be built or run."""
    require(os.geteuid() == 0, "the right to build images (root)")
    for program in ("buildah", "mmdebstrap", "runc", "unshare"):
        require(shutil.which(program), program)
    require(uv_path(source), "uv")
    require(sys.version_info[1] in _SUITES, "a Debian release with this Python")


def uv_path(root: Path) -> Path | None:
    """The uv on PATH, else the one that `make` installed."""
    found = shutil.which("uv")
    own = root / ".tools" / "bin" / "uv"
    return Path(found) if found else own if own.exists() else None


class Builder:
    """A store of images in a folder of its own.

    Args:
        folder: empty; use it as a context manager, so that nothing stays mounted.
        source: root of the repository.

    """

    def __init__(self, folder: Path, source: Path) -> None:
        self._folder = folder
        self._source = source
        self._context = folder / "context"
        self._driver = "overlay"

    @contextmanager
    def opened(self) -> Iterator[Builder]:
        """The builder, ready to build; everything is unmounted after."""
        # A copy, so that wheels can be laid into it.
        ignore = shutil.ignore_patterns("__pycache__", "*.whl")
        for name in _FOLDERS:
            shutil.copytree(self._source / name, self._context / name, ignore=ignore)
        for name in _FILES:
            shutil.copyfile(self._source / name, self._context / name)
        try:
            self._make_base()
            yield self
        finally:
            self._run("umount", "--all")

    def collect(self, *packages: str) -> None:
        """Lay the wheels that these packages need into the context: the one step with a network."""
        uv = uv_path(self._source)
        python = self._folder / "pip" / "bin" / "python"
        _call([uv, "venv", "--quiet", "--seed", "--python", sys.executable, python.parent.parent])
        # The lock file is looked for from the working folder up.
        _call(
            [
                self._source / "images" / "collect.sh",
                self._context / "images" / "wheels",
                *packages,
            ],
            env={**os.environ, "UV": str(uv), "PYTHON": str(python)},
            cwd=self._source,
        )

    def build(self, name: str, **arguments: str) -> Image:
        """Build as `make images` does, but without a network, and mount what came out."""
        _call(
            ["unshare", "--net", self._context / "images" / "make.sh", name],
            env={**self._env(), "ENGINE": "buildah", "BASE_IMAGE": _BASE, "TAG": _TAG, **arguments},
        )
        tag = f"localhost/sluice-{name}:{_TAG}"
        config = json.loads(self._run("inspect", "--type", "image", tag))["OCIv1"]["config"]
        container = self._run("from", tag).strip()
        return Image(
            entrypoint=tuple(config.get("Entrypoint", ())),
            command=tuple(config.get("Cmd", ())),
            env=tuple(config["Env"]),
            user=config.get("User", ""),
            workdir=config.get("WorkingDir", "/"),
            labels=config.get("Labels", {}),
            root=Path(self._run("mount", container).strip()),
        )

    def _make_base(self) -> None:
        archive = self._folder / "base.tar"
        suite = _SUITES[sys.version_info[1]]
        quick = ["--variant=apt", "--include=python3,python3-venv", "--quiet"]
        _call(["mmdebstrap", *quick, suite, archive])
        try:
            container = self._run("from", "scratch").strip()
        except RuntimeError:
            # Overlays can't be stacked everywhere; copies are slow and always work.
            self._driver = "vfs"
            container = self._run("from", "scratch").strip()
        self._run("add", container, str(archive), "/")
        self._run("commit", "--quiet", container, _BASE)
        self._run("rm", container)
        archive.unlink()

    def _run(self, command: str, *arguments: str) -> str:
        return _call(["buildah", command, *arguments], env=self._env())

    def _env(self) -> dict[str, str]:
        """That of engines which keep everything in the builder's own folder."""
        store = self._folder / f"store-{self._driver}"
        settings = {"driver": self._driver, "graphroot": store, "runroot": f"{store}-run"}
        lines = [f'{name} = "{value}"' for name, value in settings.items()]
        conf = store.with_suffix(".conf")
        conf.write_text("\n".join(["[storage]", *lines, ""]))
        # Quiet about where the usual build arguments lead: there is no network.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
        return {
            **kept,
            "CONTAINERS_STORAGE_CONF": str(conf),
            "BUILDAH_ISOLATION": "chroot",
        }


def _call(
    command: Sequence[str | Path | None],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    done = subprocess.run(  # noqa: S603  # programs of our own choice
        [str(part) for part in command],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout
