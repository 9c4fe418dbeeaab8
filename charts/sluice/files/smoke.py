"""Sends one link through an installation and checks what comes out; needs Python alone.

SLUICE_URL and SLUICE_API_KEY say where. SMOKE_LINK (empty: only asks whether the installation is
there), SMOKE_PRESET, SMOKE_TIMEOUT (seconds).
"""
# ruff: noqa: INP001, S310, T201  # a program for a pod: it speaks, and to the address it was given

import hashlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any

URL = os.environ["SLUICE_URL"]
KEY = {"Authorization": f"Bearer {os.environ['SLUICE_API_KEY']}"}
DEADLINE = time.monotonic() + float(os.environ.get("SMOKE_TIMEOUT", "240"))
ENDS = ("SUCCESS", "PARTIAL", "FAILED", "CANCELED")


def call(path: str, body: object = None) -> Any:
    """One request to the API, repeated while it is not there yet."""
    while True:
        request = urllib.request.Request(URL + path, headers=KEY)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as exc:
            words = exc.read().decode("utf-8", "replace")
            if exc.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > DEADLINE:
                sys.exit(f"{path}: {exc.code} {words}")
        except OSError as exc:
            if time.monotonic() > DEADLINE:
                sys.exit(f"{URL} does not answer: {exc}")
        time.sleep(2)


def digest(address: str) -> str:
    """SHA-256 of what the address gives."""
    request = urllib.request.Request(address if "://" in address else URL + address)
    # Not sent on: a stored file may stand elsewhere, at an address that says all by itself.
    for name, value in KEY.items():
        request.add_unredirected_header(name, value)
    found = hashlib.sha256()
    with urllib.request.urlopen(request, timeout=60) as answer:
        while piece := answer.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def follow(job: Any) -> Any:
    """The job at its end, each new step said."""
    said = None
    while job["status"] not in ENDS:
        if time.monotonic() > DEADLINE:
            sys.exit(f"Job {job['id']} is not done in time: {job['status']}, {job['step']}.")
        if job["step"] != said:
            said = job["step"]
            print(f"{job['id']} {said}", flush=True)
        time.sleep(1)
        job = call(f"/v1/jobs/{job['id']}")
    return job


def main() -> None:
    """Ends with status 1 and one sentence when something is not as it should be."""
    presets = call("/v1/presets")["presets"]
    print(f"{URL} answers and knows {len(presets)} presets.", flush=True)
    link, preset = os.environ.get("SMOKE_LINK", ""), os.environ.get("SMOKE_PRESET", "best")
    if not link:
        return
    # A second test is a job of its own, not the first one's result.
    job = follow(call("/v1/jobs", {"url": link, "preset": preset, "force": True}))
    if job["status"] != "SUCCESS":
        sys.exit(f"Job {job['id']} is {job['status']}: {job['error']}")
    for file in job["files"]:
        if digest(file["url"]) != file["sha256"]:
            sys.exit(f"{file['name']} is not what was stored.")
        print(f"{file['name']}: {file['bytes']} bytes, SHA-256 as promised.", flush=True)


if __name__ == "__main__":
    main()
