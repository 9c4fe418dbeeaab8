"""The way out: a proxy as the only one."""

from pathlib import Path

from sluice_core.adapters.ytdlp.options import Network, base_params
from sluice_core.adapters.ytdlp.ydl import Downloader


def test_with_a_proxy_everything_goes_through_it(child, proxy):
    egress = {"allow": [], "proxy": f"http://127.0.0.1:{proxy.server_port}"}
    url = "http://media.example/film.mp4"
    info = child.ask({"kind": "extract", "url": url, "egress": egress})[0]["info"]
    dest = child.fetch(info, egress=egress)
    assert dest.read_bytes() == proxy.media
    assert set(proxy.asked) == {url}


def test_proxies_of_the_environment_are_not_used(proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
    with Downloader(base_params(Path("/nowhere"), Network()), extractors=False) as ydl:
        assert not ydl.proxies.get("http")
        assert ydl.proxies.get("all") == "__noproxy__"


def test_each_further_try_waits_longer():
    pauses = base_params(Path("/nowhere"), Network())["retry_sleep_functions"]
    for kind in ("http", "fragment"):
        assert [pauses[kind](number) for number in range(6)] == [0.5, 1, 2, 4, 4, 4]
