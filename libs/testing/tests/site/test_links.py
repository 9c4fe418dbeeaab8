"""Signed links hold under their conditions and no longer."""

from __future__ import annotations

import html
import re

from sluice_testing.site.links import Grant, Signer
from sluice_testing.waiting import until


def link_of(page: bytes) -> str:
    found = re.search(r'<video controls src="([^"]+)"', page.decode())
    assert found
    return html.unescape(found[1])


def test_a_fresh_link_serves_the_file_with_ranges(sample_site, get):
    link = link_of(get(sample_site.url("/pages/signed?ttl=60")).body)
    got = get(sample_site.url(link))
    assert len(got.body) == sample_site.size("/mp4/plain.mp4")
    assert get(sample_site.url(link), headers={"Range": "bytes=5-9"}).body == got.body[5:10]


def test_a_stale_link_is_refused_and_the_page_gives_another(sample_site, get):
    page = sample_site.url("/pages/signed?ttl=0.3&stale=410")

    def fresh() -> str | None:
        """A new link, if it was not stale before it could be asked for."""
        link = sample_site.url(link_of(get(page).body))
        return link if get(link).status == 200 else None

    link = until(fresh)
    until(lambda: get(link, headers={"Range": "bytes=0-0"}).status == 410)
    assert until(fresh) != link


def test_a_link_bound_to_a_cookie(sample_site, get):
    page = get(sample_site.url("/pages/signed?bind=cookie"))
    link = sample_site.url(link_of(page.body))
    cookie = page.headers["Set-Cookie"].partition(";")[0]
    assert get(link).status == 403
    assert get(link, headers={"Cookie": "pass=other"}).status == 403
    assert get(link, headers={"Cookie": cookie}).status == 200


def test_a_link_bound_to_an_address():
    signer = Signer(b"secret")
    grant = Grant("/mp4", client="127.0.0.1")
    path = signer.link(grant, "plain.mp4")
    assert signer.read(path) == (grant, "/mp4/plain.mp4")
    assert grant.allows(client="127.0.0.1", cookie="", now=0)
    assert not grant.allows(client="127.0.0.2", cookie="", now=0)


def test_a_link_bound_to_an_address_over_http(sample_site, get):
    link = link_of(get(sample_site.url("/pages/signed?bind=ip")).body)
    assert get(sample_site.url(link)).status == 200
    # A client that asks the second address comes from there, as loopback routes do.
    assert get(sample_site.url(link, host=1), source="127.0.0.2").status == 403


def test_a_signed_manifest_takes_its_segments_along(sample_site, get):
    link = link_of(get(sample_site.url("/pages/signed?media=/hls/ts/master.m3u8")).body)
    folder = link.rpartition("/")[0]
    assert get(sample_site.url(f"{folder}/v0-000.ts")).status == 200
    assert get(sample_site.url(f"{folder}/../mp4/small.mp4")).status in {403, 404}
    assert get(sample_site.url(f"{folder}/../../mp4/small.mp4")).status in {403, 404}


def test_forged_links_are_refused(sample_site, get):
    link = link_of(get(sample_site.url("/pages/signed?ttl=60")).body)
    assert get(sample_site.url(link.replace("/signed/", "/signed/X"))).status == 403
    assert get(sample_site.url("/signed/nonsense/plain.mp4")).status == 403
    forged = Signer(b"another secret").link(Grant("/mp4"), "plain.mp4")
    assert get(sample_site.url(forged)).status == 403
