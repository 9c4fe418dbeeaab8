import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluice_core.domain.egress import AddressPolicy
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.urls import MAX_LENGTH, check_url

NORMAL = [
    ("https://example.com", "https://example.com/"),
    (" https://Example.COM:443/Watch?v=1#t=3\n", "https://example.com/Watch?v=1#t=3"),
    ("HTTP://example.com:80/", "http://example.com/"),
    ("http://example.com:8080/a", "http://example.com:8080/a"),
    ("https://example.com./a", "https://example.com/a"),
    ("https://münchen.example/ü?ß=ü", "https://xn--mnchen-3ya.example/%C3%BC?%C3%9F=%C3%BC"),
    ("https://例え.jp/映画.mp4", "https://xn--r8jz45g.jp/%E6%98%A0%E7%94%BB.mp4"),
    ("https://example.com/a%20b%2Fc", "https://example.com/a%20b%2Fc"),
    ("https://a_b.example/", "https://a_b.example/"),
    ("https://1.1.1.1/", "https://1.1.1.1/"),
    ("https://0x01010101/", "https://1.1.1.1/"),
    ("https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]/"),
    ("https://[2606:4700:4700:0::1111]:8443/", "https://[2606:4700:4700::1111]:8443/"),
    ("https://example.com/\u202egpj", "https://example.com/%E2%80%AEgpj"),
    ("https://3com.example/", "https://3com.example/"),
]

UNSUPPORTED = [
    "",
    " \n",
    "not a link",
    "example.com/film",
    "-o/etc/passwd",
    "--exec=reboot",
    "ytsearch:cats",
    "ftp://example.com/a",
    "rtmp://example.com/a",
    "file:///etc/passwd",
    "data:video/mp4;base64,AAAA",
    "javascript:alert(1)",
    "http:example.com",
    "http:///etc/passwd",
    "https://",
    "https://user:secret@example.com/",
    "https://example.com@evil.example/",
    "https://evil.example\\@example.com/",
    "https://exa mple.com/",
    "https://example.com/a b",
    "https://example.com/\x00",
    "https://example.com/a\nb",
    "https://example.com:99999/",
    "https://example.com:0/",
    "https://example.com:port/",
    "https://[::1/",
    "https://[nonsense]/",
    "https://[fe80::1%25eth0]/",
    "https://%31%32%37.0.0.1/",
    "https://1.2.3.4.5/",
    "https://256.256.256.256/",
    "https://127.0.0.08/",
    "https://0x7f.0.0.0xfff/",
    "https://99999999999/",
    "https://a..b/",
    f"https://{'a' * 64}.example/",
    f"https://example.com/{'a' * MAX_LENGTH}",
    "https://example.com/" + "x" * 10_000,
    "https://example.com/#__youtubedl_smuggle=%7B%22force_videoid%22%3A+1%7D",
    "https://example.com/\ud800",
]

LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0177.0.0.1",
    "0177.1",
    "017700000001",
    "0x7F.0.0.0X1",
    "127.0.0.1.",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "film.localhost",
    "127。0。0。1",
    "①②⑦.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]",
    "0",
    "0.0.0.0",  # noqa: S104  # nothing is bound
]

PRIVATE = [
    "10.0.0.1",
    "192.168.0.1",
    "172.16.5.4",
    "169.254.169.254",
    "0xa9fea9fe",
    "100.64.0.1",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
]


@pytest.mark.parametrize(("text", "normal"), NORMAL)
def test_links_get_one_spelling(text, normal):
    assert check_url(text) == normal
    assert check_url(normal) == normal


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_what_is_no_supported_link_is_refused(text):
    with pytest.raises(SluiceError) as failure:
        check_url(text)
    assert failure.value.code == "unsupported_url"
    assert failure.value.message


@pytest.mark.parametrize("host", LOOPBACK + PRIVATE)
def test_special_addresses_are_refused_in_every_spelling(host):
    with pytest.raises(SluiceError) as failure:
        check_url(f"http://{host}/film.mp4")
    assert failure.value.code == "blocked_address"


@pytest.mark.parametrize("host", [host for host in LOOPBACK if not host.startswith(("[", "0."))])
def test_operator_may_allow_an_address(host):
    policy = AddressPolicy.parse(["127.0.0.0/8:8080", "0.0.0.0:8080"])
    assert check_url(f"http://{host}:8080/a", allowed=policy.is_allowed).endswith(":8080/a")
    with pytest.raises(SluiceError):
        check_url(f"http://{host}:8081/a", allowed=policy.is_allowed)


@given(st.text() | st.text().map("https://".__add__) | st.text().map("http://a.b/".__add__))
@example("http://[::1]:٣/")
@example("http://a.b/?\x80#")
def test_any_text_gives_a_normal_link_or_a_coded_error(text):
    link = _link_or_code(text)
    assert link in {"unsupported_url", "blocked_address"} or _is_normal(link), link


def _link_or_code(text):
    try:
        return check_url(text)
    except SluiceError as error:
        return error.code


def _is_normal(link):
    return link.isascii() and link.startswith(("http://", "https://")) and check_url(link) == link


@given(st.integers(0, 2**24 - 1).map(lambda low: 127 * 2**24 + low), st.integers(0, 3))
def test_all_of_loopback_is_refused_as_number(value, spelling):
    host = [str(value), hex(value), f"0{value:o}", f"0x7f.{value & 0xFFFFFF}"][spelling]
    with pytest.raises(SluiceError) as failure:
        check_url(f"http://{host}/")
    assert failure.value.code == "blocked_address"


def test_a_local_name_that_an_operator_opened():
    opened = AddressPolicy.parse(["localhost:8080"]).is_open
    assert check_url("http://localhost:8080/a", allowed=opened) == "http://localhost:8080/a"
    for link in ("http://localhost/a", "http://127.0.0.1:8080/a", "http://film.localhost:8080/a"):
        with pytest.raises(SluiceError):
            check_url(link, allowed=opened)
