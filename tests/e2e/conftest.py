"""One running system and one sample site, shared by the tests of one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sluice_testing.parts import SETS, parts_of
from sluice_testing.redis import RedisServer
from sluice_testing.site import SampleSite
from sluice_testing.system import System, running
from sluice_testing.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def world() -> Iterator[SampleSite]:
    with SampleSite(hosts=("127.0.0.1", "127.0.0.2")) as site:
        yield site


def allowed(site: SampleSite) -> str:
    """The site's exact addresses and ports, and nothing else."""
    return ",".join(site.address(host=n) for n in (0, 1))


@pytest.fixture(scope="session", params=SETS)
def stores(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Settings of both sets of parts; in a cluster's, Redis is a server of its own too."""
    found = parts_of(request.param, request)
    if not found:
        yield found
        return
    server = RedisServer(tmp_path_factory.mktemp("system-redis"))
    server.start()
    yield {**found, "SLUICE_REDIS_URL": server.url}
    server.stop()


@pytest.fixture(scope="session")
def system(
    world: SampleSite, stores: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    with running(
        tmp_path_factory.mktemp("system") / "data",
        **stores,
        SLUICE_EGRESS_ALLOW=allowed(world),
        SLUICE_MAX_FILE_SIZE="1000000000",
        # For the test that looks for it where untrusted input is handled.
        HOUSE_TOKEN="hunter2",  # noqa: S106  # that test's own word
    ) as started:
        yield started


@pytest.fixture
def page(browser: Browser, system: System) -> Iterator[Page]:
    """The page, opened and live; an error or a dialog of its scripts fails the test."""
    context = browser.new_context(accept_downloads=True, locale="en-GB")
    wrong: list[str] = []
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE * 1000)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    opened.goto(system.url)
    opened.wait_for_selector("#live[data-state=on]")
    yield opened
    context.close()
    assert wrong == []
