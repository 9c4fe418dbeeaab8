"""Servers that ignore `If-Range`, answer strangely, or go on for ever."""

import io
from itertools import count

import pytest
from yt_dlp.networking import Request
from yt_dlp.networking.common import Response
from yt_dlp.networking.exceptions import HTTPError

from sluice_core.adapters.ytdlp.exchange import Exchange, StaleLinkError
from sluice_core.adapters.ytdlp.extract import _collection
from sluice_core.adapters.ytdlp.progress import Progress
from sluice_core.adapters.ytdlp.resume import PartialFile, Version
from sluice_core.domain.errors import SluiceError

URL = "https://example.com/a.mp4"


class Server:
    """Plays answers in order, and keeps the headers that it was sent."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def __call__(self, request):
        self.asked.append({k: v for k, v in request.headers.items() if "ange" in k})
        status, headers = self.answers.pop(0)
        response = Response(io.BytesIO(b"x"), URL, headers, status)
        if status >= 400:
            raise HTTPError(response)
        return response


@pytest.fixture
def file(tmp_path):
    return PartialFile(tmp_path / "a")


def ask(server, file, *, whole=True, **headers):
    return Exchange(server, file, whole=whole)(Request(URL, headers=headers))


KNOWN = Version('"v1"', None, 9)


def test_first_answer_is_noted(file):
    ask(Server((200, {"ETag": '"v1"', "Content-Length": "9"})), file)
    assert file.load().version == KNOWN


def test_same_version_goes_on(file):
    file.note(version=KNOWN)
    server = Server((206, {"ETag": '"v1"', "Content-Range": "bytes 4-8/9"}))
    assert ask(server, file, Range="bytes=4-").status == 206
    assert server.asked == [{"Range": "bytes=4-", "If-Range": '"v1"'}]


@pytest.mark.parametrize(
    "answer",
    [
        {"ETag": '"v2"', "Content-Range": "bytes 4-8/9"},
        {"ETag": '"v1"', "Content-Range": "bytes 4-9/10"},
        {"Content-Range": "bytes 4-9/10"},
    ],
)
def test_server_that_ignores_if_range_is_caught(file, answer):
    file.note(version=KNOWN)
    server = Server((206, answer), (200, {"ETag": '"v2"', "Content-Length": "10"}))
    assert ask(server, file, Range="bytes=4-").status == 200
    assert server.asked[1] == {}
    assert file.load().version == Version('"v2"', None, 10)


def test_another_part_than_was_asked_for_is_not_put_behind_the_first(file):
    file.note(version=KNOWN)
    other = {"ETag": '"v1"', "Content-Range": "bytes 2-8/9"}
    server = Server((206, other), (200, {"ETag": '"v1"', "Content-Length": "9"}))
    assert ask(server, file, Range="bytes=4-").status == 200
    assert server.asked[1] == {}


def test_a_part_that_nobody_asked_for_is_not_the_whole(file):
    with pytest.raises(SluiceError) as failure:
        ask(Server((206, {"Content-Range": "bytes 5-8/9"})), file)
    assert failure.value.code == "incomplete"
    assert ask(Server((206, {"Content-Range": "bytes 0-8/9"})), file).status == 206


def test_bytes_that_can_t_be_continued_are_gone_before_others_are_announced(file):
    file.begin("1")
    file.note(version=KNOWN)
    file.part.write_bytes(b"1234")
    before = file.load()
    ask(Server((206, {"ETag": '"v1"', "Content-Range": "bytes 4-8/9"})), file, Range="bytes=4-")
    assert (file.load(), file.part_size()) == (before, 4)
    ask(Server((200, {"ETag": '"v1"', "Content-Length": "9"})), file, Range="bytes=4-")
    assert file.part_size() == 0
    assert file.load().generation not in {before.generation, None}


def test_without_a_known_version_no_range_is_asked_for(file):
    server = Server((200, {"Content-Length": "9"}))
    assert ask(server, file, Range="bytes=4-").status == 200
    assert server.asked == [{}]


def test_range_beyond_the_end_starts_again(file):
    file.note(version=KNOWN)
    server = Server((416, {"Content-Range": "bytes */3"}), (200, {"Content-Length": "3"}))
    assert ask(server, file, Range="bytes=4-").status == 200


def test_half_fragments_are_asked_for_whole_and_byte_ranges_are_kept(file):
    server = Server((200, {}), (206, {}))
    ask(server, file, whole=False, Range="bytes=4-")
    ask(server, file, whole=False, Range="bytes=100-199")
    assert server.asked == [{}, {"Range": "bytes=100-199"}]


@pytest.mark.parametrize("status", [401, 403, 410])
def test_refused_link_is_stale(file, status):
    with pytest.raises(StaleLinkError):
        ask(Server((status, {})), file)


@pytest.mark.parametrize("status", [404, 416, 500])
def test_other_answers_are_the_library_s(file, status):
    with pytest.raises(HTTPError):
        ask(Server((status, {})), file)


def test_rate_limit_ends_the_transfer(file):
    with pytest.raises(SluiceError) as failure:
        ask(Server((429, {"Retry-After": "9"})), file, whole=False)
    assert (failure.value.code, failure.value.retry_after) == ("rate_limited", 9.0)


def test_progress_is_told_four_times_a_second(file):
    lines, now = [], [0.0]
    progress = Progress(emit=lines.append, file=file, max_bytes=None, clock=lambda: now[0])
    for at in range(1000):
        now[0] = at * 0.01
        progress({"status": "downloading", "downloaded_bytes": at})
    assert 36 <= len(lines) <= 40


def test_collection_without_end_stops_at_the_cap():
    asked, events = [], []

    def endless():
        for number in count(1):
            asked.append(number)
            assert number < 100, "asked for more than anybody wanted"
            yield {"_type": "url", "url": f"https://example.com/{number}"}

    found = {"_type": "playlist", "entries": endless()}
    _collection(None, found, {"url": URL, "max_entries": 10}, events.append)
    assert events[-1] == {"event": "end", "count": 10, "truncated": True}
    assert asked[-1] == 11


def test_entries_are_told_before_the_next_page_is_asked_for():
    order = []

    def pages():
        for number in range(1, 6):
            order.append(f"asked {number}")
            yield {"_type": "url", "url": f"https://example.com/{number}"}

    found = {"_type": "playlist", "entries": pages()}
    _collection(None, found, {"url": URL}, lambda event: order.append(event["event"]))
    assert order[-3:] == ["asked 5", "entry", "end"]
    assert order.index("asked 4") > order.index("entry")
