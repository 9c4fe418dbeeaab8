"""A small server with the contract's paths, for what a real one does not do on demand: it cuts
streams and files, is away, and lets a test move jobs by hand."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from sluice_testing import waiting

TERMINAL = {"SUCCESS", "PARTIAL", "FAILED", "CANCELED"}
PATIENCE = 2 * waiting.PATIENCE


class World:
    """Jobs by id, what each link becomes, and the faults that are on."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {}
        #: link -> states that its job walks through, the last one ends it.
        self.scripts: dict[str, list[dict[str, Any]]] = {}
        self.seen: list[tuple[str, str]] = []
        self.keys: list[str | None] = []
        self.no_events = False
        #: Bytes after which a file's connection is cut.
        self.cut_files_at: int | None = None
        self.cut_events = 0
        self.refuse: dict[str, tuple[int, str]] = {}
        self._number = 0

    def new(self, url: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        job_id = f"{self._number:026}"
        self.jobs[job_id] = {
            "id": job_id,
            "url": url,
            "status": "PENDING",
            "step": "waiting for a worker",
            "waiting_for": "worker",
            "progress": {"percent": None},
            "title": None,
            "error": None,
            "files": [],
            "parent_id": None,
            "children": {"total": 0},
            **fields,
        }
        return self.jobs[job_id]

    def file(self, job_id: str, name: str, content: bytes) -> dict[str, Any]:
        url = f"/v1/jobs/{job_id}/files/{name}"
        self.contents[url] = content
        digest = hashlib.sha256(content).hexdigest()
        return {"name": name, "bytes": len(content), "sha256": digest, "url": url}

    def succeeds(self, url: str, name: str, content: bytes) -> None:
        steps: list[dict[str, Any]] = [
            {"status": "PARSING", "step": "reading the link", "waiting_for": None},
            {"status": "DOWNLOADING", "step": "downloading 50 %", "progress": {"percent": 50.0}},
            {"status": "SUCCESS", "step": "done", "progress": {"percent": 100.0}},
        ]
        self.scripts[url] = [*steps[:-1], steps[-1] | {"make": (name, content)}]

    def fails(self, url: str, code: str) -> None:
        error = {"code": code, "class": "permanent", "message": "it is gone", "help": "Look."}
        self.scripts[url] = [{"status": "FAILED", "step": "failed: it is gone", "error": error}]

    def walk(self, job: dict[str, Any]) -> bool:
        """One step on; False when there is none."""
        script = self.scripts.get(job["url"], [])
        if job["status"] in TERMINAL or not script:
            return False
        step = dict(script.pop(0) if len(script) > 1 else script[0])
        if "make" in step:
            step["files"] = [self.file(job["id"], *step.pop("make"))]
        job.update(step)
        return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: World

    def log_message(self, *_: object) -> None:
        return

    def _json(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _problem(self, status: int, code: str) -> None:
        hint = {"help": "Name a public one."} if code == "blocked_address" else {}
        self._json(status, {"code": code, "detail": f"a sentence on {code}", **hint})

    def do_POST(self) -> None:
        self.world.seen.append(("POST", self.path))
        self.world.keys.append(self.headers["Authorization"])
        raw = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/v1/jobs":
            body = json.loads(raw)
            if body["url"] in self.world.refuse:
                self._problem(*self.world.refuse[body["url"]])
                return
            self._json(202, self.world.new(**body))
            return
        job = self.world.jobs.get(self.path.split("/")[3])
        if job is None:
            self._problem(404, "not_found")
            return
        if self.path.endswith("/cancel"):
            job.update(status="CANCELED", step="canceled")
        self._json(202, job)

    def do_GET(self) -> None:
        self.world.seen.append(("GET", self.path))
        self.world.keys.append(self.headers["Authorization"])
        path, _, query = self.path.partition("?")
        if path.endswith("/events"):
            self._events(path, query)
        elif path in self.world.contents:
            self._file(self.world.contents[path])
        elif path == "/v1/jobs":
            asked = parse_qs(query)
            newest_first = reversed(self.world.jobs.values())
            found = [
                job
                for job in newest_first
                if job["parent_id"] in asked.get("parent", [job["parent_id"]])
                and job["status"] in asked.get("status", [job["status"]])
            ]
            self._json(200, {"jobs": found, "next_cursor": None})
        elif (job := self.world.jobs.get(path.rpartition("/")[2])) is not None:
            if self.world.no_events:
                self.world.walk(job)
            self._json(200, job)
        else:
            self._problem(404, "not_found")

    def _events(self, path: str, query: str) -> None:
        if self.world.no_events:
            self._problem(404, "not_found")
            return
        ids = [path.split("/")[3]] if "/jobs/" in path else query.removeprefix("ids=").split("%2C")
        jobs = [self.world.jobs[i] for i in ids]
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"retry: 3000\n\n")
        while any(job["status"] not in TERMINAL for job in jobs):
            for job in jobs:
                if self.world.walk(job):
                    self.wfile.write(f"event: job\ndata: {json.dumps(job)}\n\n".encode())
                    if self.world.cut_events > 0:
                        self.world.cut_events -= 1
                        return
            self.wfile.write(b": still here\n\n")
            time.sleep(0.02)

    def _file(self, content: bytes) -> None:
        start = int((self.headers["Range"] or "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = self.world.cut_files_at
        self.wfile.write(content[start : None if end is None else start + end])
        self.close_connection = end is not None


@pytest.fixture
def world() -> World:
    return World()


@contextmanager
def serving(world: World) -> Iterator[str]:
    """The world on a free port; yields its address."""
    handler = type("Bound", (Handler,), {"world": world})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.fixture
def server(world: World) -> Iterator[str]:
    with serving(world) as url:
        yield url


class Cli:
    """The command in a process of its own, in an empty folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        self.env = {**kept, "SLUICE_URL": url, "SLUICE_DATA_DIR": str(folder / "data")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sluice_cli", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> tuple[int, list[str], list[str]]:
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
        return process.returncode, out.splitlines(), err.splitlines()


@pytest.fixture
def sluice(tmp_path: Path, server: str) -> Cli:
    return Cli(tmp_path, server)
