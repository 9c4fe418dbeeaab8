"""What is below `/members` and `/vault` is given to who shows the right thing, and noted."""

from __future__ import annotations

from base64 import b64encode

import pytest

from sluice_testing.site import KEEPER, MEMBER

COOKIE = {"Cookie": f"member={MEMBER}"}
BASIC = {"Authorization": f"Basic {b64encode(':'.join(KEEPER).encode()).decode()}"}


@pytest.mark.parametrize(
    ("folder", "own", "status"), [("members", COOKIE, 403), ("vault", BASIC, 401)]
)
def test_a_gate(sample_site, get, folder, own, status):
    link = f"/{folder}/mp4/small.mp4"
    wrong = {name: f"{value}x" for name, value in own.items()}
    for headers in ({}, wrong, COOKIE | BASIC):
        opened = headers.keys() >= own.keys() and headers is not wrong
        assert get(sample_site.url(link), headers=headers).status == (200 if opened else status)
    plain = get(sample_site.url("/mp4/small.mp4"))
    assert get(sample_site.url(link), headers=own).body == plain.body
    last = sample_site.stats(link).exchanges[-1]
    assert (last.cookie, last.authorization) == (own.get("Cookie"), own.get("Authorization"))
    assert last.host == "127.0.0.1"


def test_the_mirror_and_its_link(sample_site, get):
    page = get(sample_site.url("/pages/mirror"), headers=COOKIE).body.decode()
    link = f"/seen/{MEMBER}/small.mp4"
    assert f"Seen: {MEMBER}" in page
    assert link in page
    assert get(sample_site.url(link), headers=COOKIE).status == 200
    assert get(sample_site.url("/seen/another/small.mp4"), headers=COOKIE).status == 404
