"""Sends one link through an installation and checks what comes out; needs Python alone.

SLUICE_URL, SLUICE_API_KEY; SMOKE_LINK (empty: only asks whether the installation is there), SMOKE_PRESET,
SMOKE_TIMEOUT (seconds).
"""

import hashlib
import json
import os
import sys
import time
import urllib.error
import urllib.request

URL = os.environ["SLUICE_URL"]
LINK = os.environ.get("SMOKE_LINK", "")
DEADLINE = time.monotonic() + float(os.environ.get("SMOKE_TIMEOUT", "240"))


def call(path: str, body: object = None) -> dict:
    """One request to the API, repeated while it is not there yet."""
    while True:
        request = urllib.request.Request(URL + path)
        request.add_header("Authorization", f"Bearer {os.environ['SLUICE_API_KEY']}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as exc:
            words = exc.read().decode("utf-8", "replace")
            if exc.code != 503 or time.monotonic() > DEADLINE:
                sys.exit(f"{path}: {exc.code} {words}")
        except OSError as exc:
            if time.monotonic() > DEADLINE:
                sys.exit(f"{URL} does not answer: {exc}")
        time.sleep(2)


def digest(address: str) -> str:
    """SHA-256 of what the address gives."""
    # A stored file may stand elsewhere, where our key means nothing; its address says so by itself.
    request = urllib.request.Request(address if "://" in address else URL + address)
    request.add_unredirected_header("Authorization", f"Bearer {os.environ['SLUICE_API_KEY']}")
    found = hashlib.sha256()
    with urllib.request.urlopen(request, timeout=60) as answer:
        while piece := answer.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


presets = call("/v1/presets")["presets"]
print(f"{URL} answers and knows {len(presets)} presets.", flush=True)
if not LINK:
    sys.exit(0)
# A second test is a job of its own, not the first one's result.
job = call("/v1/jobs", {"url": LINK, "preset": os.environ.get("SMOKE_PRESET", "best"), "force": True})
said = None
while job["status"] not in ("SUCCESS", "PARTIAL", "FAILED", "CANCELED"):
    if time.monotonic() > DEADLINE:
        sys.exit(f"Job {job['id']} is not done in time: {job['status']}, {job['step']}.")
    if job["step"] != said:
        said = job["step"]
        print(f"{job['id']} {said}", flush=True)
    time.sleep(1)
    job = call(f"/v1/jobs/{job['id']}")
if job["status"] != "SUCCESS":
    sys.exit(f"Job {job['id']} is {job['status']}: {job['error']}")
for file in job["files"]:
    if digest(file["url"]) != file["sha256"]:
        sys.exit(f"{file['name']} is not what was stored.")
    print(f"{file['name']}: {file['bytes']} bytes, SHA-256 as promised.", flush=True)
