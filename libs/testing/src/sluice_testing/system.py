"""The whole system as a user starts it, for tests that span services and break things."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis
import sqlalchemy as sa

from sluice_core.adapters import settings
from sluice_core.adapters.db.engine import open_engine, read
from sluice_core.adapters.settings import StoreSettings
from sluice_core.adapters.storage import Storage, open_storage
from sluice_core.domain.lanes import STAGES
from sluice_testing.process import bound, is_alive
from sluice_testing.waiting import PATIENCE, until

#: Seconds until all parts must be ready, on a busy machine.
START = 300.0
#: Seconds that a stop may take.
STOP = PATIENCE
TERMINAL = {"SUCCESS", "PARTIAL", "FAILED", "CANCELED"}
#: Name of a part -> what its command line holds.
PARTS = {
    "api": "sluice_api",
    "parser": "sluice_parser",
    "downloader": "sluice_downloader",
    "transcoder": "sluice_transcoder",
    "scheduler": "sluice_scheduler",
    "redis": "valkey-server",
}


class System:
    """`sluice up` on a data folder of its own.

    Args:
        data: the data folder.
        env: further settings, e.g. `{"SLUICE_EGRESS_ALLOW": "127.0.0.1:4711"}`.
        prefix: a command that starts it, e.g. as another user.

    """

    def __init__(self, data: Path, env: Mapping[str, str], *, prefix: Sequence[str] = ()) -> None:
        self.data = data
        self._prefix = prefix
        self._env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")},
            "SLUICE_DATA_DIR": str(data),
            "SLUICE_HTTP_PORT": "0",
            "SLUICE_LOG_FORMAT": "json",
            **env,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.log = data / "test.log"
        self.url = ""
        self._http: httpx.Client | None = None

    def start(self) -> None:
        """Start, and wait until it is ready."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sluice_cli", "up"]
        # What a prefix runs may change user, which takes the death signal away again.
        started = [*self._prefix, *command] if self._prefix else bound(command)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own command
                started,
                env=self._env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.url = until(self._ready_url, timeout=START, why=f"not ready, see {self.log}")
        self._http = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def _ready_url(self) -> str | None:
        assert self._process is not None  # noqa: S101  # set by start
        if self._process.poll() is not None:
            raise RuntimeError(f"it ended: {self.log.read_text()[-3000:]}")
        try:
            url = json.loads((self.data / "sluice.json").read_text())["url"]
            return (
                url if httpx.get(f"{url}/readyz", timeout=2).status_code == httpx.codes.OK else None
            )
        except (OSError, ValueError, KeyError, httpx.HTTPError):
            return None

    def wait_for_workers(self) -> None:
        """Wait until every stage has one: the API answers before."""

        def all_there() -> bool:
            workers = self.http.get("/v1/stats").json()["workers"] or {}
            return all(workers.get(stage) for stage in STAGES)

        until(all_there, timeout=START, why=f"a stage has no worker, see {self.log}")

    def stop(self) -> int:
        """End it as Ctrl-C does; returns the exit status."""
        if self._http is not None:
            self._http.close()
        process = self._process
        if process is None:
            return 0
        process.send_signal(signal.SIGINT)
        try:
            return process.wait(STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    @property
    def http(self) -> httpx.Client:
        assert self._http is not None, "not started"  # noqa: S101  # a test's own mistake
        return self._http

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"  # noqa: S101  # a test's own mistake
        return self._process.pid

    def family(self) -> list[psutil.Process]:
        """The supervisor and everything below it."""
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]

    def part(self, name: str) -> psutil.Process:
        """The main process of a part, e.g. `downloader`."""
        word = PARTS[name]

        def find() -> psutil.Process | None:
            for process in psutil.Process(self.pid).children():
                try:
                    if any(word in arg for arg in process.cmdline()):
                        return process
                except psutil.Error:
                    continue
            return None

        found: psutil.Process = until(find, timeout=START, why=f"there is no {name}")
        return found

    def kill_all(self) -> None:
        """Kill -9 of everything at once, as when the machine is lost."""
        family = self.family()
        for end in (psutil.Process.suspend, psutil.Process.kill):
            for process in family:
                # One that has ended by itself meanwhile is gone as well.
                with suppress(psutil.NoSuchProcess):
                    end(process)
        # Nobody may be left to wait for them: a zombie is as good as gone.
        until(lambda: not any(map(is_alive, family)))
        self.stop()

    def kill(self, name: str) -> None:
        """Kill -9, and wait until the process is gone."""
        process = self.part(name)
        process.kill()
        until(lambda: not is_alive(process))

    def another(self, name: str, *, log: Path, **env: str) -> subprocess.Popen[bytes]:
        """Start one more process of a part, as another pod of its pool has; its caller ends it.

        Args:
            name: of the part.
            log: what it says goes here.
            env: settings that differ from the system's own.

        """
        redis = (
            {} if self._settings.redis_url else {"SLUICE_REDIS_URL": f"unix://{self._socket}?db=0"}
        )
        with log.open("ab") as out:
            return subprocess.Popen(  # noqa: S603  # our own command
                bound([sys.executable, "-m", PARTS[name]]),
                env={**self._env, **redis, **env},
                stdout=out,
                stderr=out,
            )

    def submit(self, url: str, **fields: Any) -> dict[str, Any]:
        """Submit one link; returns the job."""
        answer = self.http.post("/v1/jobs", json={"url": url, **fields})
        answer.raise_for_status()
        job: dict[str, Any] = answer.json()
        return job

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.http.get(f"/v1/jobs/{job_id}")
        answer.raise_for_status()
        job: dict[str, Any] = answer.json()
        return job

    def wait(self, job_ids: Sequence[str], *, timeout: float = PATIENCE) -> list[dict[str, Any]]:
        """Wait until all jobs have ended; returns them in order. Rides out a restarting API."""
        ended: dict[str, dict[str, Any]] = {}

        def all_ended() -> bool:
            for job_id in job_ids:
                if job_id in ended:
                    continue
                try:
                    job = self.job(job_id)
                except httpx.HTTPError:
                    return False
                if job["status"] in TERMINAL:
                    ended[job_id] = job
            return len(ended) == len(set(job_ids))

        try:
            until(all_ended, timeout=timeout, every=0.2)
        except TimeoutError:
            left = [self.job(i) for i in job_ids if i not in ended]
            words = [(j["id"], j["status"], j["step"], j["error"]) for j in left]
            raise TimeoutError(f"not ended after {timeout} s: {words}; see {self.log}") from None
        return [ended[job_id] for job_id in job_ids]

    def download(self, job: Mapping[str, Any], number: int = 0) -> bytes:
        """The bytes of one of the job's files."""
        answer = self.http.get(job["files"][number]["url"], follow_redirects=True)
        answer.raise_for_status()
        return answer.content

    def stored(self, prefix: str = "") -> list[str]:
        """Keys of all files in the storage, but for its own."""
        if "SLUICE_STORAGE_URL" in self._env:
            prefixes = (prefix,) if prefix else ("files/", "work/")
            return sorted(key for each in prefixes for key in self._storage.keys(each))
        root = self.data / "storage"
        # Not `rglob`: a folder that is swept meanwhile is no failure.
        keys = [
            Path(folder, name).relative_to(root).as_posix()
            for folder, _, names in os.walk(root)
            for name in names
        ]
        return sorted(key for key in keys if not key.startswith(".") and key.startswith(prefix))

    def read_stored(self, key: str) -> bytes:
        """The content of one of them."""
        return b"".join(self._storage.read(key))

    def query(self, text: str, **values: Any) -> list[tuple[Any, ...]]:
        """Rows of the system's database, by SQL of the test's own."""
        engine = open_engine(self._settings.effective_database_url, pool_size=1)
        try:
            with read(engine) as connection:
                return [tuple(row) for row in connection.execute(sa.text(text), values)]
        finally:
            engine.dispose()

    def outcomes(self, job: Mapping[str, Any], stage: str) -> list[str | None]:
        """What came of each run of a stage of a job, the first one first; None: it runs."""
        text = "SELECT outcome FROM attempts WHERE job_id = :job AND stage = :stage ORDER BY number"
        return [outcome for (outcome,) in self.query(text, job=job["id"], stage=stage)]

    @contextmanager
    def redis(self, database: int = 0) -> Iterator[redis.Redis]:
        """A client of the system's Redis."""
        url = self._settings.redis_url
        if url:
            client = redis.Redis.from_url(url.rpartition("/")[0] + f"/{database}")
        else:
            client = redis.Redis(unix_socket_path=str(self._socket), db=database)
        with client:
            yield client

    @property
    def _socket(self) -> Path:
        """Of the embedded Redis."""
        return next((self.data / "run").rglob("*.sock"))

    @cached_property
    def _settings(self) -> StoreSettings:
        return settings.load(self._env).store

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self._settings.effective_storage_url)


@contextmanager
def running(data: Path, **env: str) -> Iterator[System]:
    """A started system, stopped after; fails when a process of it is left behind."""
    system = System(data, env)
    family: list[psutil.Process] = []
    try:
        system.start()
        yield system
        family = system.family()
    finally:
        system.stop()
    _, alive = psutil.wait_procs(family, timeout=120)
    if alive:
        raise AssertionError(f"left behind: {[p.cmdline() for p in alive]}")
