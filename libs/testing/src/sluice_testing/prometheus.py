"""Debian's Prometheus and Alertmanager for tests: on loopback, free ports, gone with the test."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from sluice_testing.process import ServerProcess, free_port
from sluice_testing.require import require

#: Seconds that a start may take on a slow machine.
_PATIENCE = 60.0
#: Seconds for one call of promtool: a rule that looks back for days is worked out minute by minute.
_RULES = 240.0


def program(name: str) -> str:
    """Path of one of their programs; the test ends here where it is missing."""
    found = shutil.which(name)
    require(found, name)
    return found or name


def promtool(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool to its end, `text` on its standard input."""
    return subprocess.run(  # noqa: S603  # our own arguments
        [program("promtool"), *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=_RULES,
        check=False,
    )


def complaints(page: str) -> str:
    """What `promtool check metrics` says of a page; empty when all is well."""
    done = promtool("check", "metrics", text=page)
    said = (done.stdout + done.stderr).strip()
    return said or ("" if done.returncode == 0 else f"exit status {done.returncode}")


class Prometheus:
    """One server with a configuration of the test's own.

    Args:
        folder: for its configuration, data and log.
        config: as in `prometheus.yml`; JSON is YAML too.

    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "prometheus.yml"
        file.write_text(json.dumps(config), "utf-8")
        self._process = ServerProcess(
            [
                program("prometheus"),
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            log=folder / "prometheus.log",
            ready=lambda: answers(f"{self.url}/-/ready"),
        )

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def query(self, expression: str, *, at: float | None = None) -> list[dict[str, Any]]:
        """The result of an instant query.

        Raises:
            AssertionError: Prometheus refuses the expression.

        """
        asked = {"query": expression, **({"time": str(at)} if at else {})}
        return list(self._get("query", asked)["result"])

    def series(self, expression: str, *, start: float, end: float, step: float) -> Any:
        """The result of a range query; times in Unix seconds, `step` in seconds."""
        asked = {"query": expression, "start": start, "end": end, "step": step}
        return self._get("query_range", {k: str(v) for k, v in asked.items()})["result"]

    def label_values(self, label: str, match: str) -> list[str]:
        found: list[str] = self._get(f"label/{label}/values", {"match[]": match})
        return found

    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("alerts", {})["alerts"]
        return found

    def await_result(
        self,
        expression: str,
        wanted: Callable[[list[dict[str, Any]]], bool] = bool,
        *,
        patience: float = _PATIENCE,
    ) -> list[dict[str, Any]]:
        """The result once it is as wanted.

        Raises:
            AssertionError: it was not within `patience` seconds.

        """
        deadline = time.monotonic() + patience
        while not wanted(found := self.query(expression)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{expression} gives {found}")
            time.sleep(0.2)
        return found

    def _get(self, what: str, asked: Mapping[str, str]) -> Any:
        answer = get_json(f"{self.url}/api/v1/{what}?{urlencode(asked)}")
        if answer.get("status") != "success":
            raise AssertionError(f"Prometheus refuses {asked}: {answer.get('error')}")
        return answer["data"]


class Alertmanager:
    """One server with a configuration of the test's own."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "alertmanager.yml"
        file.write_text(json.dumps(config), "utf-8")
        self._process = ServerProcess(
            [
                program("prometheus-alertmanager"),
                f"--config.file={file}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--cluster.listen-address=",
                "--log.level=warn",
            ],
            log=folder / "alertmanager.log",
            ready=lambda: answers(f"{self.url}/-/ready"),
        )

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = get_json(f"{self.url}/api/v2/alerts")
        return found


def answers(url: str) -> bool:
    """Whether the address answers with success."""
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310  # a loopback address of ours
            return bool(answer.status == 200)  # noqa: PLR2004
    except (URLError, OSError):
        return False


def get_json(url: str) -> Any:
    """The decoded body, of a refusal too."""
    try:
        with urlopen(Request(url), timeout=10) as answer:  # noqa: S310  # as above
            return json.load(answer)
    except URLError as exc:
        body = getattr(exc, "read", None)
        if body is None:
            raise
        return json.loads(body())
