from __future__ import annotations

from sluice_transcoder.progress import EncodeProgress, ProgressReader

#: As ffmpeg 8.1 writes it.
FIRST = """frame=0
fps=0.00
stream_0_0_q=0.0
bitrate=N/A
total_size=48
out_time_us=N/A
out_time_ms=N/A
out_time=N/A
dup_frames=0
drop_frames=0
speed=N/A
progress=continue
"""
LATER = """frame=150
fps=74.81
stream_0_0_q=23.0
bitrate= 104.9kbits/s
total_size=65536
out_time_us=5000000
out_time_ms=5000000
out_time=00:00:05.000000
dup_frames=0
drop_frames=0
speed=2.5x
progress=continue
"""


def read(reader: ProgressReader, text: str) -> list[EncodeProgress]:
    return [value for line in text.splitlines() if (value := reader.feed(line))]


def test_a_block_is_one_value() -> None:
    assert read(ProgressReader(20.0), LATER) == [
        EncodeProgress(percent=25.0, seconds=5.0, bytes=65536, speed=2.5, eta_seconds=6.0)
    ]


def test_before_the_first_packet_nothing_is_claimed() -> None:
    assert read(ProgressReader(20.0), FIRST) == [
        EncodeProgress(percent=0.0, seconds=0.0, bytes=48, speed=None, eta_seconds=None)
    ]


def test_an_unknown_length_stays_unknown() -> None:
    (value,) = read(ProgressReader(None), LATER)
    assert (value.percent, value.eta_seconds, value.seconds) == (None, None, 5.0)


def test_it_neither_falls_back_nor_finishes_early() -> None:
    reader = ProgressReader(5.0)
    backwards = LATER.replace("5000000", "-40000")
    values = read(reader, LATER + backwards)
    assert [value.percent for value in values] == [99.9, 99.9]
    assert reader.seconds == 5.0


def test_lines_that_are_no_progress_are_left_out() -> None:
    assert read(ProgressReader(1.0), "hello\n=\nout_time_us\nspeed=fast\nprogress=end") == [
        EncodeProgress(percent=0.0, seconds=0.0, bytes=0, speed=None, eta_seconds=None)
    ]
