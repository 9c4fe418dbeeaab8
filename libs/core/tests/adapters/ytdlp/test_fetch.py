import json
import time
from types import SimpleNamespace
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import pytest

from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import ForkServer, child_environment, is_alive
from sluice_testing.site import router
from sluice_testing.waiting import fastest, until

MIB = 1024 * 1024


def after_bytes(child, count, reason="drained"):
    """Stop the child once it has reported so many bytes."""
    return lambda: reason if any(e.get("bytes", 0) >= count for e in child.events) else None


@pytest.mark.parametrize("path", ["/mp4/plain.mp4", "/webm/vp9.webm", "/audio/tone.mp3"])
def test_direct_file_is_the_same_byte_for_byte(sample_site, child, sha256, path):
    dest = child.fetch(child.info(sample_site.url(path)))
    assert sha256(dest) == sample_site.sha256(path)
    assert child.events[0] == {"event": "start", "bytes": 0}
    assert child.events[-1] == {
        "event": "done",
        "bytes": sample_site.size(path),
        "resumed_bytes": 0,
    }
    left = {path.name for path in child.scratch.iterdir()} - {".writer.lock"}
    assert left == {"track.media"}


@pytest.mark.parametrize(
    "path", ["/hls/ts/master.m3u8", "/hls/audio/master.m3u8", "/dash/manifest.mpd"]
)
def test_every_chosen_stream_is_fetched(sample_site, child, path):
    info = child.info(sample_site.url(path))
    for fmt in info["formats"]:
        dest = child.fetch(info, fmt["format_id"])
        assert dest.stat().st_size > 10_000
        last = child.of_kind("progress")[-1]
        assert last["fragments"] >= 4
        assert last["estimated"]
        dest.unlink()


def test_fragments_in_parallel_give_the_same_file_as_one_by_one(sample_site, child, sha256):
    info = child.info(sample_site.url("/hls/many/40.m3u8"))
    files = []
    for at_once in (1, 4):
        dest = child.fetch(info, fragments_at_once=at_once)
        files.append(sha256(dest))
        dest.unlink()
    assert files[0] == files[1]


def test_progress_is_true_and_not_too_much(sample_site, child):
    path = f"/big/{4 * MIB}.mp4"
    info = child.info(sample_site.url(path))
    child.fetch({**info, "formats": [_with(info, f"?throttle={2 * MIB}")]})
    lines = child.of_kind("progress")
    assert 4 <= len(lines) <= 12
    assert [line["bytes"] for line in lines] == sorted(line["bytes"] for line in lines)
    assert {line["total"] for line in lines} == {4 * MIB}
    assert not any(line["estimated"] for line in lines)
    assert 1 * MIB < lines[-1]["speed"] < 4 * MIB


def _with(info, query):
    fmt = info["formats"][0]
    return {**fmt, "url": fmt["url"] + query}


def test_unknown_size_still_shows_bytes(sample_site, child):
    info = child.info(sample_site.url(f"/big/{2 * MIB}.mp4"))
    child.fetch({**info, "formats": [_with(info, f"?length=chunked&throttle={2 * MIB}")]})
    lines = child.of_kind("progress")
    assert {line["total"] for line in lines} == {None}
    assert lines[-1]["bytes"] > MIB


def interrupted(sample_site, child, path, *, at=8 * MIB, throttle=24 * MIB, **control):
    """Fetch a part of a file and lose the child; returns the description."""
    sample_site.control(path, throttle=throttle, **control)
    info = child.info(sample_site.url(path))
    child.fetch(info, stop=after_bytes(child, at))
    assert child.result.reason == "drained"
    sample_site.reset()
    return info


def test_interrupted_download_goes_on_and_fetches_nothing_twice(sample_site, child, sha256):
    path = f"/big/{24 * MIB}.mp4"
    info = interrupted(sample_site, child, path)
    part = (child.scratch / "track.media.part").stat().st_size
    dest = child.fetch(info)
    assert sha256(dest) == sample_site.sha256(path)
    assert child.events[0] == {"event": "start", "bytes": part}
    assert child.of_kind("done")[0]["resumed_bytes"] == part
    assert sample_site.stats(path).bytes == 24 * MIB - part


def test_resume_works_in_another_folder(sample_site, child, sha256, tmp_path):
    path = f"/big/{24 * MIB}.mp4"
    info = interrupted(sample_site, child, path)
    child.scratch = child.scratch.rename(tmp_path / "moved")
    (child.scratch / ".writer.lock").unlink()
    dest = child.fetch(info)
    assert sha256(dest) == sample_site.sha256(path)
    assert sample_site.stats(path).bytes < 17 * MIB


@pytest.mark.parametrize(
    "control",
    [
        {"change": 1},
        {"change": 1, "ranges": "no"},
        {"ranges": "no"},
        {"fail": 416, "times": 1},
    ],
)
def test_a_file_that_changed_or_takes_no_ranges_is_fetched_anew(
    sample_site, child, sha256, control
):
    path = f"/big/{24 * MIB}.mp4"
    info = interrupted(sample_site, child, path)
    sample_site.control(path, **control)
    dest = child.fetch(info)
    if "change" in control:
        reference = child.scratch / "reference"
        reference.write_bytes(_get(sample_site.url(path)))
        assert sha256(dest) == sha256(reference)
    else:
        assert sha256(dest) == sample_site.sha256(path)


def _get(url):
    with urlopen(url, timeout=60) as response:  # noqa: S310  # the sample site
        return response.read()


def test_partial_file_without_its_version_is_not_trusted(sample_site, child, sha256):
    path = f"/big/{24 * MIB}.mp4"
    info = interrupted(sample_site, child, path)
    (child.scratch / "track.media.part").write_bytes(b"of another file" * MIB)
    (child.scratch / "track.media.version").unlink()
    assert sha256(child.fetch(info)) == sample_site.sha256(path)


def test_interrupted_fragments_go_on(sample_site, child, sha256):
    path = "/hls/many/40.m3u8"
    info = child.info(sample_site.url(path))
    whole = child.fetch(info)
    expected = sha256(whole)
    whole.unlink()
    sample_site.reset()
    sample_site.control("/hls/ts/*.ts", latency=0.5)
    some = lambda event: (event.get("fragment") or 0) >= 5  # noqa: E731
    child.fetch(info, stop=lambda: "drained" if any(map(some, child.events)) else None)
    assert child.result.reason == "drained"
    assert sha256(child.fetch(info)) == expected
    asked = sum(s.requests for p, s in sample_site.all_stats().items() if p.endswith(".ts"))
    assert 40 <= asked <= 48


def test_connection_that_is_reset_is_continued(sample_site, child, sha256):
    path = f"/big/{8 * MIB}.mp4"
    info = child.info(sample_site.url(path))
    sample_site.control(path, reset=3 * MIB, times=2)
    dest = child.fetch(info)
    assert sha256(dest) == sample_site.sha256(path)
    assert len(sample_site.stats(path).ranges) >= 2


@pytest.mark.parametrize(
    ("path", "control", "code"),
    [
        (f"/big/{2 * MIB}.mp4", {"short": MIB, "ranges": "no"}, "incomplete"),
        ("/broken/empty.mp4", {}, "bad_media"),
        ("/broken/html.mp4", {}, "bad_media"),
        (f"/big/{2 * MIB}.mp4", {"html": 1}, "bad_media"),
        (f"/big/{2 * MIB}.mp4", {"fail": 404}, "not_found"),
        (f"/big/{2 * MIB}.mp4", {"fail": 304}, "server_error"),
        (f"/big/{2 * MIB}.mp4", {"fail": 500}, "server_error"),
        (f"/big/{2 * MIB}.mp4", {"fail": 403}, "forbidden"),
        (f"/big/{2 * MIB}.mp4", {"fail": 410}, "gone"),
        (f"/big/{2 * MIB}.mp4", {"length": "wrong"}, "server_error"),
        (f"/big/{2 * MIB}.mp4", {"redirect": "http://10.0.0.1/a.mp4"}, "blocked_address"),
        (f"/big/{2 * MIB}.mp4", {"redirect": "file:///etc/passwd"}, "unsupported_url"),
    ],
)
def test_transfers_that_end_badly_have_codes(sample_site, child, path, control, code):
    info = child.info(sample_site.url(path))
    if control:
        sample_site.control(path, **control)
    assert child.code(child.fetch, info) == code


@pytest.mark.parametrize(
    ("link", "liar"),
    [(f"/big/{2 * MIB}.mp4", f"/big/{2 * MIB}.mp4"), ("/hls/ts/master.m3u8", "/hls/ts/*.ts")],
)
def test_a_size_that_no_media_has_is_not_told(sample_site, child, link, liar):
    info = child.info(sample_site.url(link))
    sample_site.control(liar, length="huge")
    assert child.code(child.fetch, info) == "server_error"
    assert not any(event.get("total") for event in child.events)


def test_rate_limit_is_not_hammered(sample_site, child):
    info = child.info(sample_site.url("/hls/many/10.m3u8"))
    path = _segments(info)[3]
    sample_site.reset()
    sample_site.control(path, fail=429, retry_after=9)
    with pytest.raises(SluiceError) as failure:
        child.fetch(info, fragments_at_once=1)
    assert (failure.value.code, failure.value.retry_after) == ("rate_limited", 9.0)
    assert sample_site.stats(path).requests == 1


@pytest.mark.parametrize("length", ["known", "chunked"])
def test_too_large_file_is_not_fetched_to_its_end(sample_site, child, length):
    path = f"/big/{64 * MIB}.mp4"
    info = child.info(sample_site.url(path))
    sample_site.reset()
    if length == "chunked":
        sample_site.control(path, length="chunked")
    assert child.code(child.fetch, info, max_bytes=5 * MIB) == "too_large"
    assert sample_site.stats(path).bytes < 48 * MIB


@pytest.mark.parametrize("status", [404, 410, 500])
def test_missing_fragment_is_never_left_out(sample_site, child, status):
    info = child.info(sample_site.url("/hls/many/10.m3u8"))
    sample_site.control(_segments(info)[6], fail=status)
    code = child.code(child.fetch, info)
    assert code == {404: "incomplete", 410: "incomplete", 500: "server_error"}[status]
    assert not (child.scratch / "track.media").exists()


def _segments(info):
    link = info["formats"][0]["url"]
    lines = (line.strip() for line in _get(link).decode().splitlines())
    return [urlsplit(urljoin(link, line)).path for line in lines if line and line[0] != "#"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/hostile/hls-private.m3u8", "blocked_address"),
        ("/hostile/hls-file.m3u8", "unsupported_url"),
        ("/hostile/hls-file.m3u8?target=ftp://127.0.0.1:1/a.ts", "unsupported_url"),
        ("/hostile/key-file.m3u8?target=data:text/plain,0123456789abcdef", "unsupported_url"),
        ("/hostile/key-private.m3u8", "blocked_address"),
        ("/hostile/key-file.m3u8", "unsupported_url"),
        ("/hostile/dash-private.mpd", "blocked_address"),
        ("/hostile/dash-file.mpd", "unsupported_url"),
        ("/hostile/page-private", "blocked_address"),
    ],
)
def test_manifests_and_pages_that_point_inside_lead_nowhere(sample_site, child, path, code):
    def both():
        child.fetch(child.info(sample_site.url(path)))

    assert child.code(both) == code


SIGNED = "/pages/signed"


@pytest.fixture
def stale(sample_site, child, monkeypatch):
    """A description whose links have run out, while the page gives out good ones."""

    def make(query):
        sample_site.control(SIGNED, ttl=600)
        info = child.info(sample_site.url(f"{SIGNED}?{query}"))
        now = time.time
        monkeypatch.setattr(router, "time", SimpleNamespace(time=lambda: now() + 700))
        sample_site.control(SIGNED, ttl=7000)
        return info

    return make


@pytest.mark.parametrize("query", ["stale=403", "stale=410", "stale=403&media=/hls/ts/master.m3u8"])
def test_stale_link_is_found_again_from_its_page(stale, child, query):
    info = stale(query)
    dest = child.fetch(info)
    assert dest.stat().st_size > 100_000
    fresh = child.of_kind("reextracted")[0]["info"]
    assert [f["format_id"] for f in fresh["formats"]] == [f["format_id"] for f in info["formats"]]


def test_link_bound_to_a_cookie_is_fetched_with_it(sample_site, child):
    info = child.info(sample_site.url(f"{SIGNED}?bind=cookie"))
    assert child.fetch(info).stat().st_size > 100_000
    assert not child.of_kind("reextracted")


def test_link_that_stays_refused_is_a_failure(sample_site, stale, child):
    info = stale("stale=403")
    sample_site.control("/signed/*", fail=403)
    assert child.code(child.fetch, info) == "forbidden"
    assert child.code(child.fetch, info, reextract=False) == "forbidden"


def test_cancel_of_a_stalled_transfer_closes_its_connection(sample_site, child):
    path = f"/big/{8 * MIB}.mp4"
    info = child.info(sample_site.url(path))
    sample_site.control(path, stall=MIB)
    child.fetch(info, stop=lambda: "canceled" if child.of_kind("progress") else None)
    assert child.result.reason == "canceled"
    until(lambda: not sample_site.stats(path).connected)


@pytest.mark.parametrize("path", [f"/big/{4 * MIB}.mp4", "/hls/many/100.m3u8"])
def test_bandwidth_cap(sample_site, child, path):
    info = child.info(sample_site.url(path))
    rate = child.fetch(info).stat().st_size / 3

    def seconds():
        (child.scratch / "track.media").unlink()
        began = time.monotonic()
        child.fetch(info, rate_limit=rate)
        return time.monotonic() - began

    # A cap is no brake: four connections share it, and one has it for itself.
    assert 2 < fastest(seconds, below=9, tries=4) < 9


def test_description_goes_through_storage_as_json(sample_site, child, sha256):
    info = child.info(sample_site.url("/mp4/small.mp4"))
    dest = child.fetch(json.loads(json.dumps(info)))
    assert sha256(dest) == sample_site.sha256("/mp4/small.mp4")


def test_no_child_is_left(sample_site, child):
    child.fetch(child.info(sample_site.url("/mp4/small.mp4")))
    assert not is_alive(child.pid, 0)


def test_small_child_fetches_and_extracts_again(stale, child, tmp_path):
    info = stale("stale=403")
    env = child_environment(home=tmp_path, base={})
    module = "sluice_core.adapters.ytdlp.fetch_child"
    with ForkServer(module=module, env=env, cwd=tmp_path) as child.server:
        dest = child.fetch(info)
    assert dest.stat().st_size > 100_000
    assert child.of_kind("reextracted")
