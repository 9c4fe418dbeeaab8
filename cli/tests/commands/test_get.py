from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

from sluice_testing.waiting import until

from .conftest import PATIENCE, Cli, World, serving

LINK = "http://site.example/film.mp4"
CONTENT = bytes(range(256)) * 4096


def test_a_link_becomes_a_file_and_its_path(sluice: Cli, world: World) -> None:
    world.succeeds(LINK, "Film.mp4", CONTENT)
    code, out, err = sluice("get", LINK)
    assert (code, out) == (0, ["downloads/Film.mp4"])
    assert (sluice.folder / out[0]).read_bytes() == CONTENT
    assert err == [
        "[film.mp4] waiting for a worker",
        "[film.mp4] reading the link",
        "[film.mp4] downloading 50 %",
        "[film.mp4] done",
    ]


def test_what_is_asked_for_beside_the_link(sluice: Cli, world: World) -> None:
    options = ("--subtitles", "en", "--subtitles", "de", "--playlist", "all", "--items", "1-2")
    code, out, _ = sluice("get", "--no-wait", "--preset", "720p", *options, LINK)
    assert code == 0
    (job_id,) = out
    asked = {"preset": "720p", "subtitles": ["en", "de"], "playlist": "all", "items": "1-2"}
    assert asked.items() <= world.jobs[job_id].items()
    code, out, _ = sluice("get", "--no-wait", LINK)
    assert not asked.keys() & world.jobs[out[0]].keys()


def test_no_file_is_ever_overwritten(sluice: Cli, world: World) -> None:
    taken = sluice.folder / "out" / "Film.mp4"
    taken.parent.mkdir()
    taken.write_text("mine")
    world.succeeds(LINK, "Film.mp4", CONTENT)
    code, out, _ = sluice("get", "--out", "out", LINK)
    assert (code, out) == (0, ["out/Film (2).mp4"])
    assert taken.read_text() == "mine"
    assert sorted(p.name for p in taken.parent.iterdir()) == ["Film (2).mp4", "Film.mp4"]


def test_a_failed_job_is_code_message_help_and_exit_1(sluice: Cli, world: World) -> None:
    world.fails(LINK, "gone")
    code, out, err = sluice("get", LINK)
    assert (code, out) == (1, [])
    assert err[-1] == "sluice: film.mp4: gone: it is gone. Look."


def test_a_file_with_gaps_is_saved_and_what_is_missing_is_told(sluice: Cli, world: World) -> None:
    world.succeeds(LINK, "Film.mp4", CONTENT)
    words = "3 of 800 fragments are missing: 1:20-1:32"
    error = {"code": "incomplete", "message": words, "help": "Look."}
    world.scripts[LINK][-1] |= {"status": "PARTIAL", "step": "done in part", "error": error}
    code, out, err = sluice("get", "--allow-gaps", LINK)
    assert (code, out) == (1, ["downloads/Film.mp4"])
    assert err[-1] == f"sluice: film.mp4: incomplete: {words}. Look."
    [job] = world.jobs.values()
    assert job["allow_gaps"] is True
    sluice("get", LINK)
    assert "allow_gaps" not in list(world.jobs.values())[-1]


def test_what_to_do_about_a_refused_link_is_told(sluice: Cli, world: World) -> None:
    world.refuse["http://10.0.0.1/"] = (422, "blocked_address")
    _, _, err = sluice("get", "http://10.0.0.1/")
    assert err[-1].endswith("a sentence on blocked_address Name a public one.")


def test_a_refused_link_is_exit_2_and_stops_no_other(sluice: Cli, world: World) -> None:
    world.refuse["file:///x"] = (400, "unsupported_url")
    world.succeeds(LINK, "Film.mp4", CONTENT)
    code, out, err = sluice("get", "file:///x", LINK)
    assert (code, out) == (2, ["downloads/Film.mp4"])
    assert err[0] == "sluice: file:///x: unsupported_url: a sentence on unsupported_url"


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_asked_for(
    sluice: Cli, world: World
) -> None:
    (sluice.folder / "file").touch()
    code, out, err = sluice("get", "--out", "file/deeper", LINK)
    assert (code, out, err) == (2, [], ["sluice: file/deeper can't be written."])
    assert world.jobs == {}


def test_nobody_there_is_exit_3(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        code, out, err = Cli(tmp_path, url)("get", LINK)
    assert (code, out) == (3, [])
    assert err[0].startswith(f"sluice: {url} can't be reached: ")


def test_wrong_use_is_exit_2(sluice: Cli) -> None:
    assert sluice("get", "--priority", "urgent", LINK)[0] == 2
    assert sluice("get", "--no-such-option")[0] == 2
    code, _, err = sluice("get")
    assert (code, err) == (2, ["sluice: give a LINK: the sample site is not for another server."])


def test_cut_connections_are_mended(sluice: Cli, world: World) -> None:
    world.succeeds(LINK, "Film.mp4", CONTENT)
    world.cut_events = 2
    world.cut_files_at = 300_000
    code, out, _ = sluice("get", LINK)
    assert (code, out) == (0, ["downloads/Film.mp4"])
    assert (sluice.folder / out[0]).read_bytes() == CONTENT
    assert sum("/files/" in path for _, path in world.seen) == 4


def test_without_events_it_asks(sluice: Cli, world: World) -> None:
    world.succeeds(LINK, "Film.mp4", CONTENT)
    world.no_events = True
    assert sluice("get", LINK)[:2] == (0, ["downloads/Film.mp4"])


def test_a_file_that_is_not_what_the_job_made_is_not_kept(sluice: Cli, world: World) -> None:
    job = world.new(LINK, status="SUCCESS", step="done")
    job["files"] = [world.file(job["id"], "Film.mp4", CONTENT)]
    job["files"][0]["sha256"] = "0" * 64
    world.scripts[LINK] = [{"status": "SUCCESS", "step": "done", "files": job["files"]}]
    code, out, err = sluice("get", LINK)
    assert (code, out) == (1, [])
    assert err[-1] == "sluice: Film.mp4 did not arrive whole; nothing was kept."
    assert list((sluice.folder / "downloads").iterdir()) == []


def test_a_collection_saves_its_good_entries_and_names_the_others(
    sluice: Cli, world: World
) -> None:
    counts = {"total": 3, "success": 2, "failed": 1, "canceled": 0, "active": 0}
    world.scripts[LINK] = [{"status": "PARTIAL", "step": "done in part", "children": counts}]
    parent = f"{4:026}"
    for number in (1, 2):
        child = world.new("http://x/y", status="SUCCESS", parent_id=parent, title=f"E{number}")
        child["files"] = [world.file(child["id"], "Same.mp4", CONTENT[:number])]
    error = {"code": "not_found", "message": "no longer there", "help": "Check."}
    world.new("http://x/z", status="FAILED", parent_id=parent, title="E3", error=error)
    code, out, err = sluice("get", LINK)
    assert (code, out) == (1, ["downloads/Same.mp4", "downloads/Same (2).mp4"])
    # In the order of the collection.
    assert [(sluice.folder / path).stat().st_size for path in out] == [1, 2]
    assert "sluice: E3: not_found: no longer there. Check." in err


def test_files_that_name_each_other_are_saved_together(sluice: Cli, world: World) -> None:
    made = {"master.m3u8": b"#EXTM3U\n360p.m3u8\n", "360p.m3u8": b"#EXTM3U\n", "360p.mp4": CONTENT}
    files = [world.file("x", name, content) for name, content in made.items()]
    files = [{**file, "kind": "playlist" if "m3u8" in file["name"] else "video"} for file in files]
    done = {"status": "SUCCESS", "step": "done", "title": "A/B: film", "files": files}
    world.scripts[LINK] = [done]
    for number in ("", " (2)"):
        code, out, _ = sluice("get", LINK)
        folder = f"downloads/A_B: film{number}"
        assert (code, out) == (0, [f"{folder}/{name}" for name in made])
        assert {p.name: p.read_bytes() for p in (sluice.folder / folder).iterdir()} == made
    files[2]["sha256"] = "0" * 64
    assert sluice("get", LINK)[0] == 1
    assert len(list((sluice.folder / "downloads").iterdir())) == 2


def test_json_is_one_document_per_job(sluice: Cli, world: World) -> None:
    world.succeeds(LINK, "Film.mp4", CONTENT)
    code, out, _ = sluice("get", "--json", LINK)
    assert code == 0
    (job,) = [json.loads(line) for line in out]
    assert (job["status"], job["saved"]) == ("SUCCESS", ["downloads/Film.mp4"])


def test_no_wait_prints_the_id(sluice: Cli) -> None:
    assert sluice("get", "--no-wait", LINK) == (0, [f"{1:026}"], [])


def test_ctrl_c_cancels_what_it_asked_for(sluice: Cli, world: World) -> None:
    process = sluice.start("get", LINK)
    until(
        lambda: any("events" in path for _, path in world.seen), timeout=PATIENCE, why="it follows"
    )
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert world.seen[-1] == ("POST", f"/v1/jobs/{1:026}/cancel")


def test_the_key_goes_to_its_own_server_only(sluice: Cli, world: World) -> None:
    sluice.env["SLUICE_API_KEY"] = "secret"
    store = World()
    with serving(store) as elsewhere:
        file = store.file("x", "Film.mp4", CONTENT)
        file["url"] = elsewhere + file["url"]
        world.scripts[LINK] = [{"status": "SUCCESS", "step": "done", "files": [file]}]
        assert sluice("get", LINK)[0] == 0
    assert set(world.keys) == {"Bearer secret"}
    assert store.keys == [None]
