"""Behind a real nginx that buffers, below a path: the page, files and events as without it."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from pathlib import Path

import httpx
import pytest

from sluice_testing.process import ServerProcess, free_port, listens
from sluice_testing.require import require
from sluice_testing.waiting import PATIENCE, until

NGINX = shutil.which("nginx") or next(
    (str(p) for p in map(Path, ("/usr/sbin/nginx", "/usr/local/sbin/nginx")) if p.exists()), None
)
numbers = itertools.count(1)

#: What a person writes who knows nothing of event streams: buffering is on, as it is by default.
CONFIG = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location /sluice/ {{
      proxy_pass {upstream}/;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-Prefix /sluice;
      proxy_buffering on;
      proxy_buffers 8 64k;
      gzip on;
      gzip_proxied any;
      gzip_types text/event-stream application/json;
    }}
  }}
}}
"""


@pytest.fixture(scope="module")
def proxied(system, tmp_path_factory):
    """Address of the system behind nginx."""
    require(NGINX, "nginx")
    folder = tmp_path_factory.mktemp("nginx")
    # Its workers may run as another user.
    for each in (folder, *list(folder.parents)[:2]):
        each.chmod(0o755)
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, port=port, upstream=system.url))
    process = ServerProcess(
        [NGINX, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")],
        log=folder / "log",
        ready=lambda: listens(port),
    )
    process.start()
    yield f"http://127.0.0.1:{port}/sluice"
    process.stop()


def slow(world, seconds):
    """A download that takes so long."""
    path = f"/clips/{next(numbers) + 70_000}/c.mp4"
    return world.url(f"{path}?bytes={seconds * 300_000}&throttle=300000")


def test_events_come_one_by_one(proxied, system, world):
    job = system.submit(slow(world, 8), preset="original")
    arrived = []
    begun = time.monotonic()
    url = f"{proxied}/v1/jobs/{job['id']}/events"
    with httpx.stream("GET", url, timeout=PATIENCE) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        rest = ""
        for text in answer.iter_text():
            *whole, rest = (rest + text).split("\n\n")
            arrived += [(time.monotonic() - begun, block) for block in whole if "data: " in block]
    figures = [(at, block) for at, block in arrived if "DOWNLOADING" in block]
    assert len(figures) >= 3
    # Buffered, all of them would have come with the last.
    assert figures[-1][0] - figures[0][0] > 2
    last = json.loads(arrived[-1][1].partition("data: ")[2])
    assert last["status"] == "SUCCESS"
    for link in (*last["links"].values(), last["files"][0]["url"]):
        assert link.startswith("/sluice/v1/jobs/")


def test_links_lead_through_the_proxy(proxied, world):
    root = proxied.removesuffix("/sluice")
    with httpx.Client(base_url=root, timeout=PATIENCE) as http:
        answer = http.post("/sluice/v1/jobs", json={"url": slow(world, 1), "preset": "original"})
        job = answer.json()
        assert answer.headers["location"] == job["links"]["self"] == f"/sluice/v1/jobs/{job['id']}"
        job = until(
            lambda: (
                (found := http.get(job["links"]["self"]).json())["status"] == "SUCCESS" and found
            )
        )
        file = job["files"][0]
        whole = http.get(file["url"])
        assert len(whole.content) == file["bytes"]
        part = http.get(file["url"], headers={"Range": "bytes=100-199"})
        assert (part.status_code, part.content) == (206, whole.content[100:200])
        [listed] = [j for j in http.get("/sluice/v1/jobs").json()["jobs"] if j["id"] == job["id"]]
        assert listed["links"] == job["links"]
        assert http.get("/sluice/openapi.json").json()["servers"] == [{"url": "/sluice"}]


@pytest.mark.parametrize(
    "told", ["//evil.example", "/a b", "javascript:x", "/" + "a" * 300, "/<x>"]
)
def test_a_prefix_that_is_no_path_is_not_taken(system, world, told):
    later = {"url": slow(world, 1), "not_before": "2199-01-01T00:00:00Z"}
    answer = system.http.post("/v1/jobs", json=later, headers={"X-Forwarded-Prefix": told})
    link = f"/v1/jobs/{answer.json()['id']}"
    assert answer.json()["links"]["self"] == link
    system.http.delete(link).raise_for_status()


@pytest.fixture
def page(browser):
    opened = browser.new_page()
    opened.set_default_timeout(120_000)
    yield opened
    opened.close()


def test_the_page_works_below_a_path(proxied, world, page):
    wrong = []
    page.on("requestfailed", lambda request: wrong.append((request.url, request.failure)))
    page.on("response", lambda a: wrong.append(a.url) if a.status >= 400 else None)
    page.goto(f"{proxied}/")
    link = slow(world, 2)
    page.fill("#links", link)
    page.click("#go")
    titled = f'.job:has(> .head .title[title="{link}"])'
    card = page.locator(f"#jobs > {titled}[data-status=SUCCESS]")
    card.wait_for()
    with page.expect_download() as caught:
        card.get_by_role("button", name="Download").first.click()
    assert Path(caught.value.path()).stat().st_size > 500_000
    wrong = [entry for entry in wrong if "/files/" not in str(entry)]
    page.goto(f"{proxied}/docs")
    page.wait_for_selector(".opblock")
    # Leaving the page ends its stream, and nothing else.
    assert not [entry for entry in wrong if "/events" not in str(entry)], wrong
