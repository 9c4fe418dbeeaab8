"""The page for operators, in a real browser, on a system that wants keys."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest
from playwright.sync_api import expect

from sluice_testing.system import running
from sluice_testing.waiting import PATIENCE, until


def make_key(data, *scopes: str) -> str:
    words = [word for scope in scopes for word in ("--scope", scope)]
    env = {"PATH": os.environ["PATH"], "SLUICE_DATA_DIR": str(data)}
    command = [sys.executable, "-m", "sluice_cli", "keys", "create", "browser", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def keyed(world, tmp_path_factory):
    """A system that wants keys, and an operator's."""
    allow = world.address()
    data = tmp_path_factory.mktemp("keyed") / "data"
    with running(
        data,
        SLUICE_EGRESS_ALLOW=allow,
        SLUICE_API_KEYS_REQUIRED="true",
        SLUICE_MAX_TRIES="1",
    ) as system:
        yield system, make_key(data, "operate"), make_key(data, "submit", "read")


def sign_in(page, key):
    page.fill("#key", key)
    page.click("#sign-in button")


@pytest.fixture
def page(browser, keyed):
    """The page, opened; an error of its scripts fails the test."""
    wrong = []
    opened = browser.new_page(viewport={"width": 1280, "height": 1000})
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.set_default_timeout(PATIENCE * 1000)
    opened.goto(keyed[0].url)
    expect(opened.locator("#sign-in")).to_be_visible()
    yield opened
    opened.close()
    assert wrong == []


def test_signing_in_and_out(page, keyed, world):
    _, _, user = keyed
    sign_in(page, "sluice_wrong")
    expect(page.locator("#sign-in-wrong")).to_have_text("This key is not known.")
    sign_in(page, user)
    expect(page.locator("#submit")).to_be_visible()
    expect(page.locator("#view-operate")).to_be_hidden()
    # No script gets hold of the key or its cookie.
    assert page.evaluate("document.cookie") == ""
    assert user not in page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    page.fill("#links", world.url("/clips/7001/film.mp4"))
    page.select_option("#preset", "original")
    page.click("#go")
    card = page.locator("#jobs > .job").first
    expect(card).to_have_attribute("data-status", "SUCCESS")
    with page.expect_download() as saved:
        card.get_by_role("button", name="Download").click()
    assert saved.value.suggested_filename.endswith(".mp4")
    page.reload()
    expect(page.locator("#submit")).to_be_visible()
    page.click("#sign-out")
    expect(page.locator("#sign-in")).to_be_visible()
    page.reload()
    expect(page.locator("#sign-in")).to_be_visible()


def test_a_key_that_may_not_submit_is_told_so(page, keyed):
    """It sees nothing, as a key sees its own jobs alone: an empty list needs a reason."""
    system, _, user = keyed
    sign_in(page, make_key(system.data, "read"))
    # What is hidden has its text as well.
    expect(page.locator("#no-submit")).to_be_visible()
    expect(page.locator("#no-submit")).to_contain_text("lacks the scope submit")
    expect(page.locator("#submit")).to_be_hidden()
    expect(page.locator("#empty-words")).to_be_visible()
    expect(page.locator("#empty-words")).to_have_text("Nothing here.")
    page.click("#sign-out")
    expect(page.locator("#no-submit")).to_be_hidden()
    sign_in(page, user)
    expect(page.locator("#submit")).to_be_visible()
    expect(page.locator("#no-submit")).to_be_hidden()


def test_a_key_that_is_revoked_while_signed_in_says_so(page, keyed, world):
    """Until then each change of a job comes with the cookie alone; from then on none does."""
    system, boss, _ = keyed
    mine = make_key(system.data, "submit", "read")
    sign_in(page, mine)
    expect(page.locator("#live")).to_have_attribute("data-state", "on")
    submit(system, mine, world.url("/clips/7004/film.mp4"))
    card = page.locator("#jobs > .job").first
    expect(card).to_have_attribute("data-status", "SUCCESS")
    with httpx.Client(base_url=system.url, headers=bearer(boss), timeout=PATIENCE) as client:
        newest = client.get("/v1/keys").json()["keys"][-1]["id"]
        client.delete(f"/v1/keys/{newest}").raise_for_status()
    expect(page.locator("#sign-in")).to_be_visible()
    expect(page.locator("#sign-in-wrong")).to_have_text("The key is not known, or was revoked.")
    expect(page.locator("#work")).to_be_hidden()


def test_an_operator_steers(page, keyed, world):
    system, boss, _ = keyed
    sign_in(page, boss)
    page.click("#view-operate")
    page.click("#operate-all")
    row = page.locator("#queues-rows tr[data-key='download.default']")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused by browser")
    until(lambda: paused(system, boss) == ["download.default"])
    # A job of this moment waits, and says for what.
    waiting = submit(system, boss, world.url("/clips/7002/film.mp4"))
    until(lambda: "paused" in job(system, boss, waiting)["step"])
    row.get_by_role("button", name="Resume").click()
    expect(row).not_to_contain_text("paused by")
    until(lambda: paused(system, boss) == [])
    until(lambda: job(system, boss, waiting)["status"] == "SUCCESS")

    worker = page.locator("#workers-rows tr", has_text="transcode").first
    first = worker.get_attribute("data-key")
    worker.get_by_role("button", name="Drain").click()
    worker.get_by_role("button", name="Drain?").click()
    expect(page.locator(f"#workers-rows tr[data-key='{first}']")).to_have_count(0)
    expect(page.locator("#audit-rows tr").first).to_contain_text("worker.drain")
    expect(page.locator("#stats-facts")).to_contain_text("success")


def test_letters_are_requeued_and_dropped(page, keyed, world):
    system, boss, _ = keyed
    dead = submit(system, boss, world.url("/clips/7003/film.mp4?fail=500"))
    until(lambda: job(system, boss, dead)["status"] == "FAILED")
    sign_in(page, boss)
    page.click("#view-operate")
    letters = page.locator("#letters-rows tr", has_text="server_error")
    expect(letters).to_have_count(1)
    first = letters.get_attribute("data-key")
    letters.get_by_role("button", name="Requeue").click()
    # It fails again, and leaves another letter.
    expect(page.locator(f"#letters-rows tr[data-key='{first}']")).to_have_count(0)
    expect(letters).to_have_count(1)
    # Dropping can't be undone: it wants a second click.
    letters.get_by_role("button", name="Drop").click()
    expect(letters).to_have_count(1)
    letters.get_by_role("button", name="Drop?").click()
    expect(letters).to_have_count(0)
    assert job(system, boss, dead)["status"] == "FAILED"


def submit(system, key, link):
    asked = {"url": link, "preset": "original"}
    answer = httpx.post(f"{system.url}/v1/jobs", json=asked, headers=bearer(key), timeout=PATIENCE)
    answer.raise_for_status()
    return answer.json()["id"]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def paused(system, key):
    return httpx.get(f"{system.url}/v1/stats", headers=bearer(key), timeout=PATIENCE).json()[
        "paused"
    ]


def job(system, key, job_id):
    answer = httpx.get(f"{system.url}/v1/jobs/{job_id}", headers=bearer(key), timeout=PATIENCE)
    return answer.json()


def test_a_site_is_kept_and_forgotten(page, keyed):
    system, boss, _ = keyed
    sign_in(page, boss)
    page.click("#view-operate")
    secret = "kept-and-never-shown"  # noqa: S105  # a word to look for
    text = f"example.com\tFALSE\t/\tTRUE\t0\tsession\t{secret}\n"
    file = {"name": "cookies.txt", "mimeType": "text/plain", "buffer": text.encode()}
    page.fill("#site-host", "co.uk")
    page.fill("#site-user", "me")
    page.fill("#site-password", secret)
    page.click("#site button")
    expect(page.locator("#operate-wrong")).to_contain_text("Anybody may have a site")
    page.fill("#site-host", "example.com")
    page.set_input_files("#site-cookies", file)
    page.click("#site button")
    row = page.locator("#sites-rows tr[data-key='example.com']")
    expect(row.locator("td").nth(1)).to_have_text("1")
    expect(row.locator("td").nth(3)).to_have_text("yes")
    expect(page.locator("#site-password")).to_have_value("")
    assert secret not in page.content()
    expect(page.locator("#audit-rows")).to_contain_text("site.set")
    row.get_by_role("button", name="Forget").click()
    row.get_by_role("button", name="Forget?").click()
    expect(row).to_have_count(0)
    answer = httpx.get(f"{system.url}/v1/sites", headers={"Authorization": f"Bearer {boss}"})
    assert answer.json() == {"sites": []}
