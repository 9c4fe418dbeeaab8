from __future__ import annotations

import json
import socket
from pathlib import Path

from .conftest import Cli, World


def test_show_tells_people_or_programs(sluice: Cli, world: World) -> None:
    figures = {"percent": 100.0, "eta_seconds": 0}
    job = world.new(
        "http://x/y", title="A \x1b[31mred\x1b[0m film", status="SUCCESS", progress=figures
    )
    code, out, _ = sluice("show", job["id"])
    assert code == 0
    assert "title:          A  [31mred [0m film" in out
    assert not any(line.startswith("progress:") for line in out)
    code, out, _ = sluice("show", "--json", job["id"])
    assert (code, json.loads(out[0])) == (0, job)


def test_an_unknown_job_is_exit_2(sluice: Cli) -> None:
    assert sluice("show", "nope") == (2, [], ["sluice: not_found: a sentence on not_found"])


def test_backfill_without_a_subscription_is_refused(sluice: Cli, world: World) -> None:
    code, _, err = sluice("schedules", "add", "x", "http://x/y", "--every", "60", "--backfill")
    assert (code, err) == (2, ["sluice: --backfill goes with --subscribe alone."])
    assert not world.seen


def test_watch_follows_to_the_end(sluice: Cli, world: World) -> None:
    world.succeeds("http://x/y", "f", b"x")
    good = world.new("http://x/y")
    assert sluice("watch", good["id"])[0] == 0
    world.fails("http://x/z", "gone")
    bad = world.new("http://x/z")
    code, _, err = sluice("watch", bad["id"])
    assert (code, err[-1]) == (1, "sluice: z: gone: it is gone. Look.")


def test_watch_of_no_one_job_asks_for_what_is_under_way(sluice: Cli, world: World) -> None:
    world.new("http://x/old", status="FAILED")
    assert sluice("watch") == (0, [], ["nothing is under way"])
    # Not of all the jobs that there ever were.
    assert "status=PENDING" in world.seen[-1][1]
    world.succeeds("http://x/y", "f", b"x")
    world.new("http://x/y")
    assert sluice("watch")[0] == 0


def test_cancel(sluice: Cli, world: World) -> None:
    job = world.new("http://x/y")
    assert sluice("cancel", job["id"]) == (0, [f"{job['id']} canceled"], [])
    assert job["status"] == "CANCELED"


def test_one_that_is_refused_keeps_nobody_waiting(sluice: Cli, world: World) -> None:
    first, last = world.new("http://x/y"), world.new("http://x/z")
    code, out, err = sluice("cancel", first["id"], "nope", last["id"])
    assert (code, out) == (2, [f"{first['id']} canceled", f"{last['id']} canceled"])
    assert err == ["sluice: nope: not_found: a sentence on not_found"]
    assert last["status"] == "CANCELED"


def test_no_server_and_no_instance_is_exit_3(tmp_path: Path) -> None:
    cli = Cli(tmp_path, "")
    code, _, err = cli("jobs")
    assert code == 3
    assert err == [
        "sluice: no Sluice runs on this data folder: start one with `sluice up`, or set SLUICE_URL."
    ]


def test_keys_are_shown_once_and_can_be_revoked(tmp_path: Path) -> None:
    cli = Cli(tmp_path, "")
    code, out, _ = cli("keys", "create", "laptop", "--scope", "read")
    assert code == 0
    (text,) = out
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    code, listed, _ = cli("keys", "list")
    assert code == 0
    assert text not in "".join(listed)
    key_id, name, scopes = listed[1].split()[:3]
    assert (name, scopes) == ("laptop", "read")
    assert cli("keys", "revoke", key_id) == (0, [f"{key_id} revoked"], [])
    assert cli("keys", "revoke", key_id)[0] == 2


def test_config_masks_secrets(tmp_path: Path) -> None:
    cli = Cli(tmp_path, "")
    cli.env["SLUICE_DATABASE_URL"] = "postgresql+psycopg://u:hush@db/x"
    code, out, _ = cli("config")
    assert code == 0
    assert "SLUICE_DATABASE_URL=postgresql+psycopg://u:***@db/x" in out
    assert not any("hush" in line for line in out)


def test_a_port_that_is_not_sluice(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        process = Cli(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}").start("jobs")
        with silent.accept()[0] as connection:
            connection.recv(65536)  # closing with unread bytes would reset the connection
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n<html>")
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.endswith("can't be reached: what answers there is not Sluice\n")
