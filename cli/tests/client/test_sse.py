from __future__ import annotations

from sluice_cli.client.sse import Event, parse


def test_events_comments_and_a_cut_end() -> None:
    lines = [
        *("retry: 3000", ": comment", ""),
        *("id: 7-0", "event: job", 'data: {"a":', "data: 1}", ""),
        *("event: progress", "data:x", ""),
        *("id: 9-0", "event: job", "data: never finished"),
    ]
    assert list(parse(lines)) == [Event("job", '{"a":\n1}', "7-0"), Event("progress", "x", "7-0")]
