"""Cookies and passwords of sites, from the operator to the site, and nowhere else."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from base64 import b64encode
from contextlib import contextmanager
from urllib.parse import quote

import pytest
import redis

from sluice_core.adapters.db.schema import metadata
from sluice_core.adapters.seal import new_key
from sluice_core.domain.errors import SluiceError
from sluice_testing.parts import SETS, parts_of
from sluice_testing.site import KEEPER, MEMBER, SampleSite
from sluice_testing.system import running
from sluice_testing.waiting import until

HOST = "127.0.0.1"
PAIR = b64encode(":".join(KEEPER).encode()).decode()
#: What may be seen nowhere.
SECRETS = tuple(word.encode() for word in (MEMBER, KEEPER[1], PAIR))
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def world():
    with SampleSite(hosts=(HOST, "127.0.0.2")) as site:
        yield site


@pytest.fixture(scope="module", params=SETS)
def parts(request):
    return parts_of(request.param, request)


@pytest.fixture(params=SETS)
def own_parts(request):
    """Of one test: another system on the same database would take its jobs, with another key."""
    return parts_of(request.param, request)


@contextmanager
def started(folder, world, parts, **env):
    allowed = ",".join(world.address(host=n) for n in (0, 1))
    with running(
        folder / "data", **parts, SLUICE_EGRESS_ALLOW=allowed, SLUICE_MAX_TRIES="2", **env
    ) as system:
        yield system


@pytest.fixture(scope="module")
def system(world, parts, tmp_path_factory):
    with started(tmp_path_factory.mktemp("system"), world, parts) as up:
        yield up


@pytest.fixture
def no_sites(system):
    for site in system.http.get("/v1/sites").json()["sites"]:
        system.http.delete(f"/v1/sites/{site['host']}").raise_for_status()


@pytest.fixture
def sluice(system, tmp_path):
    """The command, on the running system; what it is given on standard input comes first."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}

    def run(given, *words):
        return subprocess.run(
            [sys.executable, "-m", "sluice_cli", *words],
            cwd=tmp_path,
            env={**kept, "SLUICE_URL": system.url},
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def cookie_file(*more):
    lines = ((HOST, MEMBER), *more)
    rows = (f"{host}\tFALSE\t/\tFALSE\t0\tmember\t{value}\n" for host, value in lines)
    return f"# Netscape HTTP Cookie File\n{''.join(rows)}"


def end_of(system, world, path, **fields):
    link = f"{path}{'&' if '?' in path else '?'}mark={next(numbers)}"
    job = system.submit(world.url(link), preset="original", **fields)
    return system.wait([job["id"]], timeout=120)[0]


def retried(system, job):
    system.http.post(f"/v1/jobs/{job['id']}/retry").raise_for_status()
    return system.wait([job["id"]], timeout=120)[0]


def succeeded(job):
    assert job["status"] == "SUCCESS", job["error"]


def sent(world):
    """Host -> Cookie and Authorization of all that was asked there."""
    found = {}
    for stats in world.all_stats().values():
        for exchange in stats.exchanges:
            host = exchange.host
            found.setdefault(host, set()).add((exchange.cookie, exchange.authorization))
    return found


MEMBERS = "/members/pages/video?media=/members/mp4/small.mp4"


@pytest.mark.usefixtures("no_sites")
def test_cookies_by_the_command(system, world, sluice, tmp_path):
    refused = end_of(system, world, MEMBERS)
    assert refused["error"]["code"] == "forbidden"
    (tmp_path / "cookies.txt").write_text(cookie_file(("example.com", "of-another-site")))
    added = sluice("", "sites", "add", HOST, "--cookies", "cookies.txt")
    assert (added.returncode, added.stdout) == (0, f"{HOST}: 1 cookie (1 foreign left out)\n")
    opened = retried(system, refused)
    assert opened["status"] == "SUCCESS", opened["error"]
    assert system.download(opened) == system.download(end_of(system, world, "/mp4/small.mp4"))
    listed = sluice("", "sites").stdout
    assert listed.splitlines()[1].startswith(f"{HOST}  1")
    [site] = system.http.get("/v1/sites").json()["sites"]
    assert site["used_at"] is not None
    assert sluice("", "sites", "remove", HOST).stdout == f"{HOST} removed\n"
    assert end_of(system, world, MEMBERS)["error"]["code"] == "forbidden"
    assert MEMBER not in added.stdout + added.stderr + listed


@pytest.mark.usefixtures("no_sites")
def test_a_password_by_the_command(system, world, sluice):
    refused = end_of(system, world, "/vault/hls/ts/master.m3u8")
    assert refused["error"]["code"] == "login_required"
    words = ("sites", "add", HOST, "--username", KEEPER[0], "--password-stdin")
    added = sluice(f"{KEEPER[1]}\n", *words)
    assert (added.returncode, added.stdout) == (0, f"{HOST}: a password\n")
    assert retried(system, refused)["status"] == "SUCCESS"
    both = sluice(cookie_file(), "sites", "add", HOST, "--cookies", "-")
    assert both.stdout == f"{HOST}: 1 cookie\n"
    # It took the password's place.
    assert end_of(system, world, "/vault/mp4/small.mp4")["error"]["code"] == "login_required"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", HOST), "give --cookies"),
        (
            ("add", HOST, "--cookies", "-", "--username", "me", "--password-stdin"),
            "--password-stdin goes with",
        ),
        (("add", "co.uk", "--cookies", "-"), "Anybody may have a site below co.uk"),
        (("add", "example.com", "--cookies", "-"), "None of the 1 cookies"),
        (("remove", "example.com"), "Nothing is kept for example.com"),
    ],
)
def test_the_command_refuses_in_one_sentence(sluice, words, said):
    done = sluice(cookie_file(), "sites", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert MEMBER not in done.stdout + done.stderr


def add_both(system):
    body = {"host": HOST, "cookies": cookie_file(), "username": KEEPER[0], "password": KEEPER[1]}
    system.http.post("/v1/sites", json=body).raise_for_status()


@pytest.mark.usefixtures("no_sites")
def test_collections_and_subscriptions_use_them_as_well(system, world):
    add_both(system)
    whole = end_of(system, world, "/members/collection?n=2&below=/members")
    assert (whole["status"], whole["children"]["success"]) == ("SUCCESS", 2)
    made = system.http.post(
        "/v1/subscriptions",
        json={
            "name": f"members-{next(numbers)}",
            "url": world.url(f"/members/feed?n=2&below=/members&mark={next(numbers)}"),
            "preset": "original",
            "every_seconds": 3600,
            "backfill": True,
        },
    ).json()
    system.http.post(f"/v1/schedules/{made['id']}/run").raise_for_status()

    def fetched():
        jobs = system.http.get("/v1/jobs", params={"q": world.url("/members/clips/")}).json()
        return [job for job in jobs["jobs"] if job["status"] == "SUCCESS"]

    until(lambda: len(fetched()) == 2, timeout=120)


@pytest.mark.usefixtures("no_sites")
@pytest.mark.parametrize("folder", ["members", "vault"])
def test_a_short_link_of_another_host_is_opened_with_them(system, world, folder):
    add_both(system)
    world.reset()
    there = world.url(f"/{folder}/mp4/small.mp4?mark={next(numbers)}")
    job = system.submit(world.url(f"/redirect/1?to={quote(there)}", host=1), preset="original")
    succeeded(system.wait([job["id"]], timeout=120)[0])
    shown = sent(world)
    assert shown["127.0.0.2"] == {(None, None)}
    assert shown[HOST] > {(None, None)}


@pytest.mark.usefixtures("no_sites")
def test_links_that_hold_a_cookie_are_fetched_and_never_shown(system, world):
    add_both(system)
    page = end_of(system, world, "/pages/keyed/pages/signed?bind=cookie")
    succeeded(page)
    whole = end_of(system, world, "/members/feed?n=2&keyed=1")
    assert (whole["status"], whole["children"]["success"]) == ("SUCCESS", 2)
    entries = system.http.get("/v1/jobs", params={"parent": whole["id"]}).json()["jobs"]
    assert all("/keyed/***/clips/" in entry["url"] for entry in entries)
    assert {name for name, text in everything(system).items() if MEMBER.encode() in text} == set()


@pytest.mark.usefixtures("no_sites")
def test_a_download_goes_on_with_what_is_kept_by_then(system, world):
    add_both(system)
    world.reset()
    path = "/members/clips/5/five.mp4"
    world.control(path, skip=1, times=1, fail=404)
    failed = end_of(system, world, path)
    assert failed["error"]["code"] == "not_found"
    assert retried(system, failed)["status"] == "SUCCESS"
    # What was parsed was not parsed again.
    assert system.outcomes(failed, "parse") == ["ok"]


@pytest.mark.usefixtures("no_sites")
def test_a_killed_download_goes_on_with_them(system, world):
    add_both(system)
    path = "/members/clips/9/nine.mp4"
    world.control(path, throttle=200_000)
    link = world.url(f"{path}?bytes=6000000&mark={next(numbers)}")
    job = system.submit(link, preset="original")
    until(lambda: (system.job(job["id"])["progress"]["bytes"] or 0) > 1_000_000)
    system.kill("downloader")
    world.control(path)
    [ended] = system.wait([job["id"]], timeout=120)
    assert ended["status"] == "SUCCESS", ended["error"]
    resumed = [e for e in world.stats(path).exchanges if e.range and e.range != "bytes=0-"]
    assert resumed, "it began anew"
    assert {e.cookie for e in resumed} == {f"member={MEMBER}"}


@pytest.mark.usefixtures("no_sites")
def test_another_host_is_shown_nothing(system, world):
    add_both(system)
    world.reset()
    there = quote(world.url("/mp4/small.mp4", host=1))
    segment = quote(world.url("/hls/ts/v0-000.ts", host=1))
    for folder in ("members", "vault"):
        for path in (
            f"/{folder}/mp4/plain.mp4?redirect={there}",
            f"/{folder}/pages/og?media={there}",
            f"/{folder}/hostile/hls-private.m3u8?target={segment}",
        ):
            job = end_of(system, world, path)
            assert job["status"] == "SUCCESS", (path, job["error"])
    shown = sent(world)
    assert shown["127.0.0.2"] == {(None, None)}
    assert any(cookie for cookie, _ in shown[HOST])
    assert any(authorization for _, authorization in shown[HOST])


def everything(system):
    """Name of a place -> what lies there."""
    found = {"log": system.log.read_bytes()}
    for file in system.data.glob("sluice.db*"):
        found[file.name] = file.read_bytes()
    for table in metadata.tables:
        found[f"table {table}"] = repr(system.query(f"SELECT * FROM {table}")).encode()  # noqa: S608
    for database in (0, 1):
        with system.redis(database) as client:
            for key in client.scan_iter():
                found[f"redis {key!r}"] = repr(content(client, key)).encode()
    for key in system.stored():
        try:
            found[f"stored {key}"] = system.read_stored(key)
        except SluiceError:
            # Swept between the two questions; one that is still there must be readable.
            assert key not in system.stored()
    paths = ["/v1/sites", "/v1/audit?limit=200", "/v1/jobs?limit=200", "/v1/stats", "/v1/workers"]
    jobs = system.http.get("/v1/jobs?limit=200").json()["jobs"]
    paths += [f"/v1/jobs/{j['id']}{more}" for j in jobs for more in ("", "/attempts", "/explain")]
    for path in paths:
        found[path] = system.http.get(path).content
    return found


def content(client: redis.Redis, key):
    readers = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"list": lambda k: client.lrange(k, 0, -1),
        b"set": client.smembers,
        b"zset": lambda k: client.zrange(k, 0, -1),
        b"stream": client.xrange,
        # It has expired between the two questions.
        b"none": lambda _: None,
    }
    return readers[client.type(key)](key)


@pytest.mark.usefixtures("no_sites")
def test_nothing_of_it_lies_anywhere(system, world):
    add_both(system)
    # Its description stays in storage, its title has the cookie, its error would have it too.
    kept = end_of(system, world, "/members/pages/video?media=/members/broken/truncated.mp4")
    assert kept["error"]["code"] == "incomplete"
    title = end_of(system, world, "/members/pages/mirror")["title"]
    assert title.startswith("Seen: ***")
    world.control("/members/mp4/vfr.mp4", redirect=f"http://{MEMBER}.invalid/")
    said = end_of(system, world, "/members/mp4/vfr.mp4")
    assert "***.invalid" in said["error"]["message"]
    places = everything(system)
    assert any(name.endswith("info.json") for name in places), "no description was looked at"
    assert any(b"child_said" in text for text in places.values())
    for name, text in places.items():
        for secret in SECRETS:
            assert secret not in text, name


def test_a_wrong_key_is_told_and_the_right_one_opens_it_again(world, own_parts, tmp_path):
    old, new = new_key(), new_key()
    with started(tmp_path, world, own_parts, SLUICE_SITE_SECRETS_KEY=old) as system:
        add_both(system)
        succeeded(end_of(system, world, MEMBERS))
    with started(tmp_path, world, own_parts, SLUICE_SITE_SECRETS_KEY=new) as system:
        failed = end_of(system, world, MEMBERS)
        told = failed["error"]
        assert (told["code"], told["class"]) == ("login_required", "manual")
        assert f"what is kept for {HOST} can't be opened" in told["message"]
        assert "SLUICE_SITE_SECRETS_KEY" in told["message"]
        # The workers go on.
        elsewhere = system.submit(world.url(f"/mp4/small.mp4?n={next(numbers)}", host=1))
        succeeded(system.wait([elsewhere["id"]])[0])
    with started(tmp_path, world, own_parts, SLUICE_SITE_SECRETS_KEY=f"{new},{old}") as system:
        succeeded(retried(system, failed))
        told = system.http.post("/v1/sites:reseal").json()
        assert told == {"done": 1, "unreadable": []}
    with started(tmp_path, world, own_parts, SLUICE_SITE_SECRETS_KEY=new) as system:
        succeeded(end_of(system, world, MEMBERS))


def test_one_machine_makes_its_own_key(system):
    path = system.data / "site-secrets.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() not in system.log.read_text("utf-8", "replace")
