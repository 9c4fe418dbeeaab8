"""Install, upgrade, roll back, uninstall: what a real helm writes, and in which order."""

from __future__ import annotations

import pytest

from tests.chart.release import Server
from tests.chart.render import values_file

#: What runs our code, and waits for tables.
OURS = ("api", "scheduler", "parser", "downloader", "transcoder")


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path) as server:
        yield server


def done(result):
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def image(server, name):
    deployment = server.cluster.kind("Deployment")[f"sluice-{name}"]
    return deployment["spec"]["template"]["spec"]["containers"][0]["image"]


PRODUCTION = ("-f", str(values_file("production")))


@pytest.mark.parametrize("values", [(), PRODUCTION], ids=["trial", "production"])
def test_an_install_waits_for_nothing_that_is_not_there_yet(server, values):
    said = done(server.helm("install", *values))
    assert "STATUS: deployed" in said
    assert "helm -n media test sluice" in said
    writes = server.cluster.wrote("Deployment", "Job", "Secret", "ConfigMap")
    made = {(kind, name) for _, kind, name in writes}
    assert {("Deployment", f"sluice-{name}") for name in OURS} <= made
    # The migration is no hook: its Secrets are there when it is.
    job = next(i for i, write in enumerate(writes) if write[1] == "Job")
    own = [i for i, w in enumerate(writes) if w[1] == "Secret" and w[2].startswith("sluice-")]
    assert all(i < job for i in own)


def test_later_migrations_come_before_anything_is_replaced(server):
    done(server.helm("install", *PRODUCTION))
    server.cluster.wrote()
    done(server.helm("upgrade", *PRODUCTION, "--set", "image.tag=v9"))
    writes = server.cluster.wrote("Deployment", "Job", "ConfigMap")
    first = next(i for i, (_, kind, name) in enumerate(writes) if "sluice-migrate" in name)
    assert writes[first][1] == "Job"
    replaced = [
        i for i, (verb, kind, _) in enumerate(writes) if (verb, kind) == ("update", "Deployment")
    ]
    assert len(replaced) >= len(OURS)
    assert first < min(replaced)
    assert image(server, "api").endswith("sluice-api:v9")


def test_a_migration_that_fails_replaces_nothing(server):
    done(server.helm("install", *PRODUCTION))
    before = image(server, "api")
    server.cluster.failing.add("sluice-migrate")
    server.cluster.wrote()
    result = server.helm("upgrade", *PRODUCTION, "--set", "image.tag=v9")
    assert result.returncode != 0
    assert "pre-upgrade hooks failed" in result.stderr
    assert not server.cluster.wrote("Deployment", "ConfigMap")
    assert image(server, "api") == before
    # The failed one stays, for its log.
    assert "sluice-migrate" in server.cluster.kind("Job")
    server.cluster.failing.clear()
    done(server.helm("upgrade", *PRODUCTION, "--set", "image.tag=v9"))
    assert image(server, "api").endswith("sluice-api:v9")


def test_the_first_key_and_trial_passwords_stay(server):
    done(server.helm("install"))
    secrets = server.cluster.kind("Secret")
    key = secrets["sluice-api-key"]["data"]["api-key"]
    password = secrets["sluice-dev"]["data"]["password"]
    sealing = secrets["sluice-site-secrets"]["data"]
    done(server.helm("upgrade", "--set", "image.tag=v9"))
    assert server.cluster.kind("Secret")["sluice-api-key"]["data"]["api-key"] == key
    assert server.cluster.kind("Secret")["sluice-dev"]["data"]["password"] == password
    said = server.helm("uninstall")
    done(said)
    assert "sluice-api-key" in said.stdout + said.stderr
    assert server.cluster.kind("Secret")["sluice-api-key"]["data"]["api-key"] == key
    assert not server.cluster.kind("Deployment")
    done(server.helm("install"))
    assert server.cluster.kind("Secret")["sluice-api-key"]["data"]["api-key"] == key
    assert server.cluster.kind("Secret")["sluice-site-secrets"]["data"] == sealing


@pytest.mark.parametrize("mode", ["builtin", "external"])
def test_an_upgrade_leaves_the_number_of_pods_alone(server, mode):
    done(server.helm("install", "--set", f"autoscaler.mode={mode}"))
    server.cluster.kind("Deployment")["sluice-downloader"]["spec"]["replicas"] = 7
    done(server.helm("upgrade", "--set", f"image.tag=v9,autoscaler.mode={mode}"))
    assert image(server, "downloader").endswith("sluice-downloader:v9")
    assert server.cluster.kind("Deployment")["sluice-downloader"]["spec"]["replicas"] == 7


@pytest.mark.parametrize("values", [(), PRODUCTION], ids=["trial", "production"])
def test_rolling_back_replaces_pods_and_waits_for_no_migration(server, values):
    done(server.helm("install", *values))
    first = image(server, "parser")
    for tag in ("v9", "v10"):
        done(server.helm("upgrade", *values, "--set", f"image.tag={tag}"))
    # To a release that came by an upgrade, and to the one that came by the install.
    for revision, expected in (("2", first.rpartition(":")[0] + ":v9"), ("1", first)):
        server.cluster.wrote()
        said = done(server.helm("rollback", revision))
        assert "Rollback was a success" in said
        assert image(server, "parser") == expected
        assert not [w for w in server.cluster.wrote("Job") if w[2] == "sluice-migrate"]


def test_a_migration_that_was_deleted_comes_back_with_the_next_upgrade(server):
    """A trial without volumes loses its tables with a pod, and the Job is done."""
    done(server.helm("install"))
    [job] = server.cluster.kind("Job")
    del server.cluster.objects["Job", job]
    done(server.helm("upgrade", "--reset-then-reuse-values"))
    assert job in server.cluster.kind("Job")


def test_helm_test_runs_the_smoke_test(server):
    done(server.helm("install"))
    said = done(server.helm("test"))
    assert "Phase:          Succeeded" in said
    assert "sluice-test" in server.cluster.kind("Pod")
