"""Whose cookies are whose, and which lines are fit to be sent."""

from __future__ import annotations

import http.cookiejar
from pathlib import Path

import pytest

from sluice_core.domain.sites import (
    MAX_FILE,
    MAX_KEPT,
    BadLoginError,
    Login,
    check_password,
    host_of,
    merged_cookies,
    read_cookies,
    site_host,
    sites_above,
)

NOW = 1_800_000_000.0
LATER = "1900000000"
SECRET = "never-to-be-quoted"  # noqa: S105  # a word to look for


def line(domain: str = "example.com", below: str = "FALSE", **fields: str) -> str:
    told = {"path": "/", "secure": "FALSE", "expires": LATER, "name": "session", "value": SECRET}
    told |= fields
    return "\t".join((domain, below, *told.values()))


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.COM", "example.com"),
        (" example.com. ", "example.com"),
        (".example.com", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127.1", "127.0.0.1"),
        ("::1", "[::1]"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
        ("nas", "nas"),
    ],
)
def test_a_host_has_one_spelling(text: str, host: str) -> None:
    assert site_host(text) == host
    assert host_of(f"https://{host}:8443/a?b") == host


@pytest.mark.parametrize(
    "text",
    ["", ".", "https://example.com", "example.com/a", "me@example.com", "example.com:443",
     "[::1]:80", "exa mple.com", "a..b", "*.example.com", "x" * 300],
)  # fmt: skip
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(BadLoginError):
        site_host(text)


def test_the_sites_that_a_host_lies_in() -> None:
    assert sites_above("a.example.com") == ["a.example.com", "example.com", "com"]
    assert sites_above("127.0.0.1") == ["127.0.0.1"]
    assert sites_above("[::1]") == ["[::1]"]
    for trick in ("evil-example.com", "example.com.evil.net", "example.comm"):
        assert "example.com" not in sites_above(trick)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (line(), line()),
        (line(".example.com", "TRUE"), line(".example.com", "TRUE")),
        # The second field decides; the dot must agree for those who read the file.
        (line("example.com", "TRUE"), line(".example.com", "TRUE")),
        (line(".example.com", "FALSE"), line("example.com", "FALSE")),
        (line("WWW.Example.com"), line("www.example.com")),
        (f"#HttpOnly_{line()}\r", line()),
        (line(expires="-1"), line(expires="0")),
        (line(expires=""), line(expires="0")),
        (line(expires="1900000000.75"), line()),
        (line(expires="13350000000000"), line(expires="253402300799")),
        (line(value='"a=b c,d"'), line(value='"a=b c,d"')),
    ],
)
def test_a_line_is_kept_in_one_form(given: str, kept: str) -> None:
    file = read_cookies(f"# comment\n\n{given}\n", "example.com", now=NOW)
    assert file.text == f"# Netscape HTTP Cookie File\n{kept}\n"


def test_what_is_kept_is_what_the_standard_library_reads(tmp_path: Path) -> None:
    given = [line(".example.com", "TRUE"), line("a.example.com", secure="TRUE", name="b")]
    file = read_cookies("\n".join(given), "example.com", now=NOW)
    (tmp_path / "cookies.txt").write_text(file.text)
    jar = http.cookiejar.MozillaCookieJar()
    jar.load(str(tmp_path / "cookies.txt"))
    read = {(c.domain, c.domain_specified, c.secure, c.expires, c.name, c.value) for c in jar}
    assert read == {
        (".example.com", True, False, int(LATER), "session", SECRET),
        ("a.example.com", False, True, int(LATER), "b", SECRET),
    }


def test_cookies_of_others_and_old_ones_are_left_out_and_counted() -> None:
    others = ["com", "notexample.com", "example.com.evil.net", "example.org", "not a host"]
    text = "\n".join([*map(line, others), line(expires="1"), line(), line(expires="0", name="b")])
    file = read_cookies(text, "example.com", now=NOW)
    assert (len(file.cookies), file.foreign, file.expired) == (2, 5, 1)
    assert file.expires_at == float(LATER)


def test_an_address_has_nothing_below_it() -> None:
    file = read_cookies(line("127.0.0.1", "TRUE"), "127.0.0.1", now=NOW)
    assert file.text.splitlines()[1].startswith("127.0.0.1\tFALSE\t")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no cookie"),
        ("# nothing\n", "there is no cookie"),
        ('[{"name": "session"}]', "line 1 has not the 7 fields"),
        (f"{line()}\n{SECRET}", "line 2 has not the 7 fields"),
        (line(below="yes"), "line 1 has something else than TRUE"),
        (line(secure="1"), "line 1 has something else than TRUE"),
        (line(expires=SECRET), "line 1 has a time"),
        (line(path=SECRET), "line 1 has a path"),
        (line(name=""), "line 1 has a name or a value"),
        (line(name="a;b"), "line 1 has a name or a value"),
        (line(value=f"{SECRET}\x00"), "line 1 has a name or a value"),
        (line(value=f"{SECRET}; evil=1"), "line 1 has a name or a value"),
        (line(value=f"{SECRET}é"), "line 1 has a name or a value"),
        (line(expires="1"), "have expired"),
        (line("example.org"), "none of the 1 cookies"),
        (line("com", "TRUE"), "none of the 1 cookies"),
        (line(value="x" * MAX_KEPT), "more than 65536 characters"),
        ("#" * (MAX_FILE + 1), "at most 2000000 characters"),
    ],
)
def test_what_is_wrong_is_told_without_a_word_of_it(text: str, said: str) -> None:
    with pytest.raises(BadLoginError, match=said) as failure:
        read_cookies(text, "example.com", now=NOW)
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize(
    ("username", "password"),
    [("me", None), (None, "x"), ("", "x"), ("a:b", "x"), ("me", "a\nb"), ("m" * 257, "x"),
     ("me", "p" * 1025)],
)  # fmt: skip
def test_passwords_that_no_header_carries(username: str | None, password: str | None) -> None:
    with pytest.raises(BadLoginError):
        check_password(username, password)


def test_passwords_that_one_does() -> None:
    check_password(None, None)
    check_password("me", "")
    check_password("mé", "pa:ss wörd")


def test_a_login_shows_nothing_of_itself() -> None:
    login = Login("example.com", SECRET, SECRET, SECRET)
    assert SECRET not in repr(login)
    assert SECRET not in repr(read_cookies(line(), "example.com", now=NOW))
    assert Login.loads(login.dumps()) == login


def test_several_sites_make_one_file() -> None:
    texts = [read_cookies(line(d), d, now=NOW).text for d in ("example.com", "a.example.com")]
    merged = merged_cookies([Login("a", texts[0]), Login("b"), Login("c", texts[1])])
    assert merged is not None
    assert merged.splitlines()[1:] == [line("example.com"), line("a.example.com")]
    assert merged_cookies([Login("a")]) is None
