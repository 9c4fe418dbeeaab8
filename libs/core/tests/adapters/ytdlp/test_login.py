"""What a child shows to sites: cookies to their own hosts, a password to one, else nothing."""

import json
from base64 import b64encode
from contextlib import suppress
from urllib.parse import quote

import pytest

from sluice_core.adapters.ytdlp.login import SiteLogin
from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import ForkSpec
from sluice_testing.site import KEEPER, MEMBER, SampleSite

PAIR = b64encode(":".join(KEEPER).encode()).decode()


@pytest.fixture
def two_hosts():
    with SampleSite(hosts=("127.0.0.1", "127.0.0.2")) as site:
        yield site


def cookies(*lines):
    return "\n".join(("# Netscape HTTP Cookie File", *("\t".join(line) for line in lines), ""))


def member(domain="127.0.0.1", *, below="FALSE"):
    return (domain, below, "/", "FALSE", "0", "member", MEMBER)


def keeper(host="127.0.0.1"):
    return {"host": host, "username": KEEPER[0], "password": KEEPER[1]}


COOKIES = {"cookies": cookies(member()), "passwords": []}
PASSWORD = {"cookies": None, "passwords": [keeper()]}


def sent(site, path):
    """Cookie and Authorization of each request for a path."""
    return [(e.cookie, e.authorization) for e in site.stats(path).exchanges]


@pytest.mark.parametrize(("folder", "login"), [("members", COOKIES), ("vault", PASSWORD)])
class TestItsOwnHost:
    def test_page_and_media_are_opened(self, child, two_hosts, sha256, folder, login):
        page = two_hosts.url(f"/{folder}/pages/video?media=/{folder}/mp4/small.mp4")
        assert child.code(child.info, page) in {"forbidden", "login_required"}
        info = child.info(page, login=login)
        done = child.fetch(info, login=login)
        assert sha256(done) == two_hosts.sha256("/mp4/small.mp4")

    def test_fragments_are_opened_too(self, child, two_hosts, folder, login):
        info = child.info(two_hosts.url(f"/{folder}/hls/ts/master.m3u8"), login=login)
        child.fetch(info, login=login)

    def test_nothing_of_it_is_in_any_event(self, child, two_hosts, folder, login):
        page = two_hosts.url(f"/{folder}/pages/video?media=/{folder}/mp4/small.mp4")
        info = child.info(page, login=login)
        child.fetch(info, login=login)
        told = json.dumps([info, child.events])
        for word in (MEMBER, KEEPER[1], PAIR):
            assert word not in told
        assert all("cookies" not in fmt for fmt in info["formats"])

    def test_a_refused_link_is_looked_up_again_with_it(self, child, two_hosts, folder, login):
        page = two_hosts.url(f"/{folder}/pages/signed?bind=cookie&media=/mp4/small.mp4")
        info = child.info(page, login=login)
        child.fetch(info, login=login)
        [again] = child.of_kind("reextracted")
        assert "cookies" not in again["info"]["formats"][0]

    @pytest.mark.parametrize("way", ["redirect", "page", "manifest", "master", "dash", "subtitles"])
    def test_another_host_gets_nothing(self, child, two_hosts, folder, login, way):
        there = two_hosts.url("/mp4/small.mp4", host=1)
        segment = two_hosts.url("/hls/ts/v0-000.ts", host=1)
        playlist = two_hosts.url("/hls/ts/v0.m3u8", host=1)
        link = {
            "redirect": f"/{folder}/mp4/plain.mp4?redirect={quote(there)}",
            "page": f"/{folder}/pages/og?media={quote(there)}",
            "manifest": f"/{folder}/hostile/hls-private.m3u8?target={quote(segment)}",
            "master": f"/{folder}/hostile/master-private.m3u8?target={quote(playlist)}",
            "dash": f"/{folder}/hostile/dash-private.mpd?target={quote(segment)}",
            "subtitles": f"/{folder}/pages/video?media={quote(there)}",
        }[way]
        info = child.info(two_hosts.url(link), login=login, subtitles=["en"])
        child.fetch(info, login=login)
        exchanges = [e for s in two_hosts.all_stats().values() for e in s.exchanges]
        there_alone = {"/mp4/small.mp4", "/hls/ts/v0.m3u8", "/hls/ts/v0-000.ts"}
        others = [pair for path in there_alone for pair in sent(two_hosts, path)]
        assert others, "the other host was never asked"
        assert set(others) == {(None, None)}
        assert any(e.cookie or e.authorization for e in exchanges), "and its own was shown nothing"


@pytest.mark.parametrize(("folder", "login"), [("members", COOKIES), ("vault", PASSWORD)])
class TestShortLinks:
    """Of another host, they lead to a site that something is kept for."""

    SITES = ("example.com", "127.0.0.1")
    LEADS = ({"event": "elsewhere", "sites": [1]},)

    @pytest.mark.parametrize("path", ["mp4/small.mp4", "pages/video?media=/mp4/small.mp4"])
    def test_it_is_told_first_and_opened_with_what_is_kept(
        self, child, two_hosts, folder, login, path
    ):
        there = two_hosts.url(f"/{folder}/{path}")
        short = two_hosts.url(f"/redirect/2?to={quote(there)}", host=1)
        assert child.extract(short, sites=self.SITES) == [*self.LEADS]
        done = child.fetch(child.info(short, login=login), login=login)
        assert done.stat().st_size == two_hosts.size("/mp4/small.mp4")
        exchanges = [e for s in two_hosts.all_stats().values() for e in s.exchanges]
        assert {(e.cookie, e.authorization) for e in exchanges if e.host == "127.0.0.2"} == {
            (None, None)
        }

    def test_a_way_through_the_site_is_seen_although_it_ends_elsewhere(
        self, child, two_hosts, folder, login
    ):
        """As that of somebody who is sent to a page for logging in."""
        end = two_hosts.url("/pages/text", host=1)
        there = two_hosts.url(f"/redirect/1?to={quote(end)}&{folder}={len(login)}")
        short = two_hosts.url(f"/redirect/1?to={quote(there)}", host=1)
        assert child.extract(short, sites=self.SITES) == [*self.LEADS]

    @pytest.mark.parametrize("page", ["/pages/video?media=", "/pages/og?media="])
    def test_a_page_of_another_host_leads_nobody_there(self, child, two_hosts, folder, login, page):
        """It is asked there, as by anybody."""
        del login  # is kept, and not given
        there = f"/{folder}/hls/ts/master.m3u8"
        link = two_hosts.url(f"{page}{quote(two_hosts.url(there))}", host=1)
        with suppress(SluiceError):
            child.extract(link, sites=self.SITES)
        assert child.of_kind("elsewhere") == []
        assert sent(two_hosts, there) == [(None, None)]


class TestWholeLinks:
    """What is shown is masked, and what is fetched is not."""

    def test_entries_whose_links_hold_a_cookie(self, child, two_hosts):
        child.extract(two_hosts.url("/members/feed?n=2&keyed=1"), login=COOKIES)
        entries = child.of_kind("entry")
        assert [entry["url"].rpartition("/keyed/***/")[2] for entry in entries] == [
            "clips/1/clip-1.mp4",
            "clips/2/clip-2.mp4",
        ]
        for entry in entries:
            assert MEMBER in entry.pop("sealable")
        assert MEMBER not in json.dumps(child.events)

    @pytest.mark.parametrize("path", ["clips/1/clip.mp4", "pages/signed?bind=cookie"])
    def test_such_a_link_is_opened_and_its_page_is_found_again(self, child, two_hosts, path):
        link = two_hosts.url(f"/keyed/{MEMBER}/{path}")
        shown = link.replace(MEMBER, "***")
        [event] = child.extract(link, login=COOKIES, shown_url=shown)
        page = event.pop("sealable")
        assert MEMBER not in json.dumps(event)
        child.fetch(event["info"], login=COOKIES, page=page)
        [again] = child.of_kind("reextracted")
        assert again.pop("sealable") == page
        assert MEMBER not in json.dumps(child.events)

    def test_a_page_that_redirects_to_one_is_found_again(self, child, two_hosts):
        link = two_hosts.url("/pages/keyed/pages/signed?bind=cookie")
        [event] = child.extract(link, login=COOKIES)
        page = event.pop("sealable")
        assert (MEMBER in page, MEMBER in json.dumps(event)) == (True, False)
        child.fetch(event["info"], login=COOKIES, page=page)

    def test_a_format_is_found_by_its_masked_name(self, child, two_hosts):
        """A fresh description has the whole name, and the job knows the masked one alone."""
        info = child.info(two_hosts.url("/mp4/small.mp4"))
        info["formats"][0]["format_id"] = f"http-{MEMBER}"
        child.fetch(info, "http-***", login=COOKIES)

    def test_the_sites_own_name_is_no_secret(self, child, two_hosts):
        login = {"cookies": cookies((*member()[:6], "127.0.0.1")), "passwords": []}
        link = two_hosts.url("/mp4/small.mp4")
        assert child.info(link, login=login)["webpage_url"] == link


@pytest.mark.parametrize(
    "login",
    [
        {"cookies": cookies(member("127.0.0.2")), "passwords": []},
        {"cookies": cookies(member(".0.0.1", below="TRUE")), "passwords": []},
        {"cookies": cookies(member("example.com")), "passwords": []},
        {
            "cookies": None,
            "passwords": [keeper("127.0.0.2"), keeper("0.0.1"), keeper("evil127.0.0.1")],
        },
    ],
)
def test_what_is_of_another_host_stays_here(child, two_hosts, login):
    child.info(two_hosts.url("/mp4/small.mp4"), login=login)
    assert set(sent(two_hosts, "/mp4/small.mp4")) == {(None, None)}


class TestNames:
    """By way of a proxy, the only way to reach names that no server of names knows."""

    HOSTS = ("example.com", "www.example.com", "evil-example.com", "example.com.evil.net", "nas")

    @pytest.mark.parametrize(
        ("line", "hosts"),
        [
            (member("example.com"), {"example.com"}),
            (member(".example.com", below="TRUE"), {"example.com", "www.example.com"}),
            (member("www.example.com"), {"www.example.com"}),
            (member("nas"), {"nas"}),
        ],
    )
    def test_a_cookie_goes_where_its_domain_says(self, child, proxy, line, hosts):
        asked = self.ask_all(child, proxy, {"cookies": cookies(line), "passwords": []})
        assert {host for host, headers in asked if headers["Cookie"]} == hosts

    def test_a_password_goes_to_its_host_alone(self, child, proxy):
        login = {"cookies": None, "passwords": [keeper("example.com")]}
        asked = self.ask_all(child, proxy, login)
        assert {host for host, headers in asked if headers["Authorization"]} == {"example.com"}

    def ask_all(self, child, proxy, login):
        egress = {"allow": [], "proxy": f"http://127.0.0.1:{proxy.server_port}"}
        for host in self.HOSTS:
            child.info(f"http://{host}:8080/film.mp4", login=login, egress=egress)
        asked = [(headers["Host"].removesuffix(":8080"), headers) for headers in proxy.headers]
        assert {host for host, _ in asked} == set(self.HOSTS)
        return asked


@pytest.mark.parametrize("end", ["http://[", "http://a:b/"])
def test_a_host_that_redirects_nowhere_gets_nothing_either(child, two_hosts, end):
    """The library asks once more, by other means, where its usual ones met what they can't read."""
    there = two_hosts.url(f"/redirect/1?to={quote(end)}", host=1)
    login = {**COOKIES, "passwords": [keeper()]}
    child.code(child.info, two_hosts.url(f"/vault/redirect/1?to={quote(there)}"), login=login)
    asked = [e for e in two_hosts.stats("/redirect/1").exchanges if e.host == "127.0.0.2"]
    assert asked
    assert {(e.cookie, e.authorization) for e in asked} == {(None, None)}


def test_a_site_that_repeats_a_cookie_is_not_repeated(child, two_hosts, sha256):
    info = child.info(two_hosts.url("/members/pages/mirror"), login=COOKIES)
    assert MEMBER not in json.dumps(info)
    assert info["title"].startswith("Seen: ***")
    done = child.fetch(info, login=COOKIES)
    assert sha256(done) == two_hosts.sha256("/mp4/small.mp4")
    assert MEMBER not in json.dumps(child.events)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ('"in-double-quotes"', "in-double-quotes"),
        ("c29tZW9uZQ%3D%3D", "c29tZW9uZQ=="),
        ("c29tZW9uZQ==", "c29tZW9uZQ%3D%3D"),
    ],
)
def test_a_cookie_is_masked_in_each_spelling(value, seen):
    lines = cookies((*member()[:6], value))
    login = SiteLogin.from_request({"login": {"cookies": lines}})
    for word in (value, seen):
        assert login.masked(f"Seen: {word}!") == "Seen: ***!"
        assert word not in repr(login)


def test_a_request_that_is_printed_shows_nothing_of_it(ytdlp_server, tmp_path):
    spec = ForkSpec(server=ytdlp_server, request={"login": COOKIES}, scratch=tmp_path)
    assert MEMBER not in repr(spec)


def test_what_stands_in_the_path_of_the_link_is_no_secret(child, two_hosts, sha256):
    """A user's name, say: without it the page is not found again."""
    login = {"cookies": cookies((*member()[:6], "pages/signed")), "passwords": []}
    link = two_hosts.url("/pages/signed?bind=cookie&media=/mp4/small.mp4")
    info = child.info(link, login=login)
    assert info["webpage_url"] == link
    done = child.fetch(info, login=login)
    assert sha256(done) == two_hosts.sha256("/mp4/small.mp4")
    [again] = child.of_kind("reextracted")
    assert again["info"]["webpage_url"] == link


def test_errors_and_stderr_hold_nothing_of_it(child, two_hosts):
    elsewhere = quote(f"http://{MEMBER}.invalid/")
    link = two_hosts.url(f"/members/mp4/plain.mp4?redirect={elsewhere}")
    assert child.code(child.info, link, login=COOKIES) == "network"
    [event] = child.events
    assert "***.invalid" in event["message"]
    assert "***.invalid" in child.result.stderr_tail
    assert MEMBER not in json.dumps(event) + child.result.stderr_tail
