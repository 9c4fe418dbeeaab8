"""What the rendered objects do: who may what, who waits for whom, what scales."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest
import yaml

from sluice_autoscaler.config import read_pools
from sluice_core.adapters.seal import Sealer
from sluice_core.adapters.settings import StageSettings, load
from tests.chart.objects import containers, env, is_ours, of_kind, pods
from tests.chart.render import CHART, OWNED, ROOT, render

#: Seconds between the end of a drain and the kill, for handing back and ending children.
MARGIN = 30
#: Seconds that a process may be silent: on a node short of CPU many are so for half a minute.
SLOW_NODE = 120
#: What a cluster puts on a node that no longer answers.
LOST_NODE = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
#: Secrets that the user of the production values has.
FOREIGN = {"sluice-database", "sluice-redis", "sluice-s3", "sluice-ca", "sluice-first-key"}


def settings_of(objects, container):
    """All of a container's environment that is not secret, with `SLUICE_`."""
    maps = of_kind(objects, "ConfigMap")
    found = {}
    for source in container.get("envFrom", ()):
        if "configMapRef" in source:
            found |= maps[source["configMapRef"]["name"]]["data"]
    return found | {k: v for k, v in env(container).items() if isinstance(v, str)}


def test_no_pod_may_more_than_it_needs(objects):
    for name, template in pods(objects):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["enableServiceLinks"] is False, name
        assert not spec.get("hostNetwork"), name
        assert not any("hostPath" in v for v in spec["volumes"]), name
    for name, _, container in containers(objects):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True, name
        assert security["allowPrivilegeEscalation"] is False, name
        assert security["capabilities"] == {"drop": ["ALL"]}, name


def test_a_cluster_may_choose_the_user():
    """OpenShift does; both an image's and a chart's number are then in the way."""
    objects = render(
        "minimal", podDefaults={"securityContext": {"runAsUser": None, "fsGroup": None}}
    )
    spec = of_kind(objects, "Deployment")["sluice-api"]["spec"]["template"]["spec"]
    assert not {"runAsUser", "fsGroup"} & set(spec["securityContext"])
    assert spec["securityContext"]["runAsNonRoot"] is True


def test_what_is_said_of_all_pods_holds_for_all_pods():
    """Trial stores, hooks and the smoke test too."""
    defaults = {
        "annotations": {"example.com/inject": "false"},
        "labels": {"example.com/team": "media"},
        "nodeSelector": {"example.com/disk": "ssd"},
        "tolerations": [{"key": "example.com/media", "operator": "Exists"}],
        "securityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
    }
    for options in ((), ("--is-upgrade",)):
        for name, template in pods(render("minimal", *options, podDefaults=defaults)):
            for kind in ("annotations", "labels"):
                assert defaults[kind].items() <= template["metadata"][kind].items(), name
            spec = template["spec"]
            assert spec["nodeSelector"] == defaults["nodeSelector"], name
            assert spec["tolerations"][:1] == defaults["tolerations"], name
            assert not set(defaults["securityContext"]) & set(spec["securityContext"]), name


def test_only_the_autoscaler_has_a_token(objects):
    with_token = {
        template["metadata"]["labels"]["app.kubernetes.io/component"]
        for _, template in pods(objects)
        if template["spec"]["automountServiceAccountToken"] is not False
    }
    assert with_token <= {"autoscaler"}
    for binding in of_kind(objects, "RoleBinding").values():
        assert [s["name"] for s in binding["subjects"]] == ["sluice-autoscaler"]
    assert not of_kind(objects, "ClusterRole")
    assert not of_kind(objects, "ClusterRoleBinding")


#: What a one-node cluster of kind with 2 cores and 4 GiB has left beside its own pods: API server
#: 250m, controllers 200m, scheduler, etcd and network 100m each, two of DNS 100m each. The disk is
#: minikube's, without a tenth that the kubelet keeps free and what all images take.
SMALL = {"cpu": 2000 - 950, "memory": 4096 - 290 - 512, "ephemeral-storage": 18_000 - 1_800 - 5_000}


def quantity(resource, text):
    """Millicores, or MiB."""
    if resource == "cpu":
        return int(text.removesuffix("m")) if text.endswith("m") else int(text) * 1000
    number, unit = text[:-2], text[-2:]
    return int(number) * {"Mi": 1, "Gi": 1024}[unit]


@pytest.mark.parametrize("resource", sorted(SMALL))
def test_a_trial_fits_into_a_small_cluster(resource):
    """One pod of each, the migration and the smoke test, and one more while it is replaced."""
    asked = [
        quantity(resource, container["resources"]["requests"][resource])
        for _, _, container in containers(render("minimal"))
    ]
    assert sum(asked) + max(asked) <= SMALL[resource]


def test_a_start_is_given_the_time_that_three_stores_may_take(objects):
    for name, _, container in containers(objects):
        if not is_ours(container) or "startupProbe" not in container or "envFrom" not in container:
            continue
        probe = container["startupProbe"]
        given = probe["periodSeconds"] * probe["failureThreshold"]
        patience = load(settings_of(objects, container)).store.start_patience
        assert given > 3 * patience, name


def test_processes_of_a_trial_wait_for_the_images_of_its_stores():
    """Else they end, and Kubernetes holds each next try back for longer."""
    objects = render("minimal")
    for name, _, container in containers(objects):
        if is_ours(container) and name not in {"sluice-test", "sluice-sample-site"}:
            assert load(settings_of(objects, container)).store.start_patience >= 120, name
    mine = render("minimal", settings={"START_PATIENCE": 5})
    [api] = [c for n, _, c in containers(mine) if n == "sluice-api"]
    assert load(settings_of(mine, api)).store.start_patience == 5


def test_every_container_says_what_it_takes(objects):
    for name, _, container in containers(objects):
        # Who asks for no disk is the first to go when a node has too little.
        assert set(container["resources"]["requests"]) >= set(SMALL), name
        assert "memory" in container["resources"]["limits"], name
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError", name


def test_every_folder_that_is_written_is_a_volume_with_a_cap(objects):
    for name, template, container in containers(objects):
        mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
        if is_ours(container):
            assert {"/tmp", "/data"} <= set(mounts), name  # noqa: S108  # in a container
        volumes = {v["name"]: v for v in template["spec"]["volumes"]}
        assert set(mounts.values()) <= set(volumes), name
        for volume in volumes.values():
            assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"], name


def test_every_setting_exists(objects):
    groups = set(load({}).effective())
    known = groups | {f"SLUICE_{name.upper()}" for name in StageSettings.model_fields}
    for name, _, container in containers(objects):
        if is_ours(container) and name != "sluice-test":
            given = {*settings_of(objects, container), *env(container)}
            assert given <= known, name


def test_the_settings_can_be_read(objects):
    for name, _, container in containers(objects):
        if is_ours(container):
            load(settings_of(objects, container))
            assert name


@pytest.mark.parametrize("number", [7, 604_800, 31_536_000, 10 * 2**30, 0.25])
def test_numbers_reach_the_processes_as_they_were_written(number):
    """helm reads those of a values file as floats, and writes a large one as 3.1536e+07."""
    own = {"settings": {"MIN_FREE_BYTES": number}}
    objects = render("minimal", settings={"RETENTION_JOBS": number}, workers={"downloader": own})
    [worker] = [c for n, _, c in containers(objects) if n == "sluice-downloader"]
    found = settings_of(objects, worker)
    assert found["SLUICE_RETENTION_JOBS"] == found["SLUICE_MIN_FREE_BYTES"] == str(number)


def test_every_secret_and_key_that_is_asked_for_is_there(objects, case):
    secrets = of_kind(objects, "Secret")
    for name, _, container in containers(objects):
        for source in env(container).values():
            if not isinstance(source, dict) or "secretKeyRef" not in source:
                continue
            ref = source["secretKeyRef"]
            if ref["name"] in secrets:
                secret = secrets[ref["name"]]
                assert ref["key"] in secret.get("data", {}) | secret.get("stringData", {}), name
            else:
                assert case == "production", name
                assert ref["name"] in FOREIGN, name


def test_no_replicas_where_something_scales(objects, case):
    scaled = {"minimal", "production", "keda"}
    for name, deployment in of_kind(objects, "Deployment").items():
        if deployment["metadata"]["labels"]["app.kubernetes.io/component"] != "worker":
            continue
        assert ("replicas" in deployment["spec"]) == (case not in scaled), name


def test_what_others_scale_has_no_number_in_the_manifest():
    """With one, Helm 3 sets it back at each upgrade, and Helm 4 refuses the upgrade."""
    fixed = {"parser": {"autoscaling": {"enabled": False}, "replicas": 3}}
    objects = render(
        "minimal",
        autoscaler={"mode": "external"},
        workers=fixed,
        api={"autoscaling": {"enabled": True}},
        database={"maxConnections": 200},
    )
    numbers = {n: d["spec"].get("replicas") for n, d in of_kind(objects, "Deployment").items()}
    assert numbers["sluice-downloader"] is numbers["sluice-transcoder"] is None
    assert numbers["sluice-parser"] == 3
    assert numbers["sluice-api"] is None
    [scaler] = of_kind(objects, "HorizontalPodAutoscaler").values()
    assert scaler["spec"]["scaleTargetRef"]["name"] == "sluice-api"
    # Ours still tells which pods are idle, and scales nothing.
    pools = json.loads(of_kind(objects, "ConfigMap")["sluice-autoscaler"]["data"]["pools.json"])
    assert not any(pool["autoscaling"]["enabled"] for pool in pools.values())


def test_workers_get_the_grace_that_their_drain_takes(objects):
    drained = 0
    for name, template, container in containers(objects):
        grace = settings_of(objects, container).get("SLUICE_DRAIN_GRACE")
        if grace is not None:
            drained += 1
            assert template["spec"]["terminationGracePeriodSeconds"] >= float(grace) + MARGIN, name
    assert drained >= 3


@pytest.mark.parametrize(
    ("size", "size_in_bytes"),
    [("20Gi", 20 * 2**30), ("1.5Gi", 1.5 * 2**30), ("500M", 5e8), (20 * 2**30, 20 * 2**30)],
)
def test_downloads_know_what_their_volume_may_hold(size, size_in_bytes):
    """Kubernetes ends a pod whose volume holds more."""
    pool = {"scratch": {"size": size}}
    objects = render("minimal", workers={"downloader": pool})
    deployment = of_kind(objects, "Deployment")["sluice-downloader"]
    spec = deployment["spec"]["template"]["spec"]
    [data] = [v for v in spec["volumes"] if v["name"] == "data"]
    assert data == {"name": "data", "emptyDir": {"sizeLimit": size}}
    assert env(spec["containers"][0])["SLUICE_SCRATCH_SIZE"] == str(int(size_in_bytes))


def test_a_volume_of_ones_own_says_itself_what_it_holds():
    objects = render("production")
    spec = of_kind(objects, "Deployment")["sluice-downloader"]["spec"]["template"]["spec"]
    assert "SLUICE_SCRATCH_SIZE" not in env(spec["containers"][0])


def test_workers_are_not_asked_for_what_stores_do(objects):
    for name, template, container in containers(objects):
        if template["metadata"]["labels"]["app.kubernetes.io/component"] != "worker":
            continue
        assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "metrics"}, name
        assert container["startupProbe"]["periodSeconds"] * container["startupProbe"][
            "failureThreshold"
        ] >= 120, name  # fmt: skip


def test_a_node_without_cpu_to_spare_does_not_end_its_pods(objects):
    """All are slow there at once; ending busy ones and starting them anew makes it worse."""
    seen = set()
    for name, _, container in containers(objects):
        if probe := container.get("livenessProbe"):
            seen.add(name)
            silent = probe["periodSeconds"] * probe["failureThreshold"]
            assert silent >= SLOW_NODE, name
            assert probe["timeoutSeconds"] <= probe["periodSeconds"], name
    assert {"sluice-api", "sluice-downloader", "sluice-scheduler"} <= seen


def test_pods_of_a_lost_node_are_made_anew_within_two_minutes(case, objects):
    def seconds(found):
        return {
            o["metadata"]["name"]: [
                t["tolerationSeconds"]
                for t in o["spec"]["template"]["spec"].get("tolerations", ())
                if t.get("key") in LOST_NODE
            ]
            for o in found
            if o["kind"] == "Deployment"
        }

    of_pool = ("sluice-parser", "sluice-downloader", "sluice-transcoder")
    for name in ("sluice-api", "sluice-scheduler", *of_pool):
        assert seconds(objects)[name] == [60, 60], name
    values = {"podDefaults": {"tolerationSeconds": None, "tolerations": [{"operator": "Exists"}]}}
    for name, found in seconds(render(case, **values)).items():
        assert found == [], name


def test_links_are_taken_while_redis_is_away(objects):
    [api] = [c for n, _, c in containers(objects) if n == "sluice-api"]
    for probe in ("startupProbe", "readinessProbe"):
        assert "exclude=redis" in api[probe]["httpGet"]["path"]
    assert api["livenessProbe"]["httpGet"]["path"] == "/livez"


def test_a_changed_setting_restarts_and_a_new_chart_version_does_not(case):
    before = dict(pods(render(case)))
    after = dict(pods(render(case, settings={"LOG_LEVEL": "WARNING"})))
    for name, template in before.items():
        component = template["metadata"].get("labels", {})["app.kubernetes.io/component"]
        if component in {"worker", "api", "scheduler"}:
            assert template["metadata"] != after[name]["metadata"], name
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(
            template["metadata"]["labels"]
        ) or component == "test", name  # fmt: skip


def test_selectors_find_their_pods_and_no_others(objects):
    labels = {name: template["metadata"].get("labels", {}) for name, template in pods(objects)}

    def found(selector):
        wanted = selector["matchLabels"].items()
        return {n for n, have in labels.items() if wanted <= have.items()}

    for name, deployment in of_kind(objects, "Deployment").items():
        assert found(deployment["spec"]["selector"]) == {name}
    for name, budget in of_kind(objects, "PodDisruptionBudget").items():
        assert found(budget["spec"]["selector"]) == {name}
    for name, service in of_kind(objects, "Service").items():
        assert found({"matchLabels": service["spec"]["selector"]}) == {name}


def test_every_pod_of_ours_can_be_evicted(objects):
    for name, budget in of_kind(objects, "PodDisruptionBudget").items():
        assert budget["spec"].get("maxUnavailable") not in {None, 0, "0%"}, name
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", name


def test_no_node_is_kept_for_folders_that_nobody_misses(objects):
    """An autoscaler of nodes leaves those alone on which a pod has folders that it lists not."""
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    evictable = 0
    for name, template in pods(objects):
        listed = template["metadata"].get("annotations", {}).get(key, "").split(",")
        local = {v["name"] for v in template["spec"]["volumes"] if "emptyDir" in v}
        store = template["metadata"]["labels"]["app.kubernetes.io/component"] in {
            "postgresql", "redis", "s3",
        }  # fmt: skip
        if name != "sluice-test":
            assert (local <= set(listed)) is not store, name
            evictable += not store
    assert evictable >= 6
    mine = render("minimal", podDefaults={"annotations": {key: "none"}})
    template = of_kind(mine, "Deployment")["sluice-api"]["spec"]["template"]
    assert template["metadata"]["annotations"][key] == "none"


def is_hook(found):
    return "helm.sh/hook" in found["metadata"].get("annotations", {})


@pytest.mark.parametrize("case", ["minimal", "production"])
def test_the_first_migration_runs_beside_the_rest(case):
    """A hook before the install would wait for a database or Secret that is not there yet."""
    [job] = of_kind(render(case), "Job").values()
    assert not is_hook(job)


@pytest.mark.parametrize("case", ["minimal", "production"])
def test_the_first_migration_never_gives_up(case):
    """Images that are loaded an hour later change nothing in the Job: it must still be there."""
    [job] = of_kind(render(case), "Job").values()
    assert "activeDeadlineSeconds" not in job["spec"]
    assert job["spec"]["backoffLimit"] >= 1000
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_a_later_migration_reaches_the_database_of_its_own_revision():
    """It comes before the policies do; those of the last revision may know other stores."""
    objects = render("production", "--is-upgrade")
    hooks = {n: o for n, o in of_kind(objects, "NetworkPolicy").items() if is_hook(o)}
    [policy] = hooks.values()
    [job] = of_kind(objects, "Job").values()
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    ports = {p["port"] for rule in policy["spec"]["egress"] for p in rule["ports"]}
    assert {53, 5432} <= ports
    weights = [int(o["metadata"]["annotations"]["helm.sh/hook-weight"]) for o in (policy, job)]
    assert weights[0] < weights[1]


def test_later_migrations_run_before_anything_is_replaced():
    objects = render("production", "--is-upgrade", presets="[a]")
    [job] = of_kind(objects, "Job").values()
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    # What comes before the release's own objects leans on none of them.
    spec = job["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "default"
    assert "envFrom" not in spec["containers"][0]
    assert not any("configMap" in volume for volume in spec["volumes"])


def test_a_password_among_the_values_reaches_the_hook():
    url = "postgresql://u:new@db/x"
    objects = render("minimal", "--is-upgrade", database={"url": url})
    hooks = {n: o for n, o in of_kind(objects, "Secret").items() if is_hook(o)}
    [secret] = hooks.values()
    [job] = of_kind(objects, "Job").values()
    assert secret["stringData"] == {"database-url": url}
    source = env(job["spec"]["template"]["spec"]["containers"][0])["SLUICE_DATABASE_URL"]
    assert source == {"secretKeyRef": {"name": secret["metadata"]["name"], "key": "database-url"}}
    weights = [int(o["metadata"]["annotations"]["helm.sh/hook-weight"]) for o in (secret, job)]
    assert weights[0] < weights[1]


def test_a_database_of_the_release_is_migrated_beside_it():
    [job] = of_kind(render("minimal", "--is-upgrade"), "Job").values()
    assert not is_hook(job)


CHANGES = [
    {"image": {"tag": "2"}},
    {"image": {"pullSecrets": ["registry"]}},
    {"caSecret": "ca"},
    {"podDefaults": {"nodeSelector": {"a": "b"}}},
    {"auth": {"existingSecret": "mine"}},
    {"migration": {"resources": {"limits": {"memory": "1Gi"}}}},
    {"presets": "x"},
    {"settings": {"LOG_LEVEL": "DEBUG"}},
    {"nameOverride": "other"},
]


@pytest.mark.parametrize("change", CHANGES, ids=[next(iter(change)) for change in CHANGES])
def test_an_upgrade_changes_nothing_that_can_not_be_changed(change):
    """A Job's spec and a selector are for good: who needs others needs another name."""
    before, after = render("minimal"), render("minimal", "--is-upgrade", **change)
    jobs = of_kind(after, "Job")
    for name, job in of_kind(before, "Job").items():
        assert name not in jobs or jobs[name]["spec"] == job["spec"]
    deployments = of_kind(after, "Deployment")
    for name, deployment in of_kind(before, "Deployment").items():
        if name in deployments and "nameOverride" not in change:
            assert deployments[name]["spec"]["selector"] == deployment["spec"]["selector"]


def test_the_first_key_outlives_the_release():
    secret = of_kind(render("minimal"), "Secret")["sluice-api-key"]
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not is_hook(secret)
    assert "sluice-api-key" not in of_kind(render("production"), "Secret")


def test_the_key_of_what_sites_are_shown_is_good_kept_and_for_three_alone():
    objects = render("minimal")
    secret = of_kind(objects, "Secret")["sluice-site-secrets"]
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    Sealer([b64decode(secret["data"]["site-secrets-key"]).decode()]).seal(b"x")
    who = {
        found["metadata"]["name"]
        for found in objects
        if found["kind"] != "Secret" and "site-secrets" in str(found)
    }
    assert who == {"sluice-api", "sluice-parser", "sluice-downloader"}
    own = render("minimal", siteSecrets={"existingSecret": "mine", "secretKey": "k"})
    assert "sluice-site-secrets" not in of_kind(own, "Secret")
    assert str(own).count("{'name': 'mine', 'key': 'k'}") == 3


def test_trial_stores_come_only_for_what_is_not_named():
    objects = render("minimal", redis={"url": "redis://r.example"})
    names = set(of_kind(objects, "Deployment"))
    assert "sluice-redis" not in names
    assert {"sluice-postgresql", "sluice-s3"} <= names
    assert not {"sluice-redis", "sluice-postgresql", "sluice-s3", "sluice-sample-site"} & set(
        of_kind(render("production"), "Deployment")
    )


def test_a_store_of_a_trial_that_loses_its_pod_keeps_its_data():
    """Its tables are made once, by a Job that is done."""
    objects = render("minimal")
    claims = of_kind(objects, "PersistentVolumeClaim")
    for store in ("sluice-postgresql", "sluice-redis", "sluice-s3"):
        spec = of_kind(objects, "Deployment")[store]["spec"]
        [data] = [v for v in spec["template"]["spec"]["volumes"] if v["name"] == "data"]
        assert data["persistentVolumeClaim"] == {"claimName": store}
        # The cluster's own class; and never two pods on one volume.
        assert "storageClassName" not in claims[store]["spec"]
        assert spec["strategy"] == {"type": "Recreate"}


def test_files_of_a_trial_go_out_through_the_api():
    """An address inside the cluster is of no use to a browser."""
    settings = of_kind(render("minimal"), "ConfigMap")["sluice"]["data"]
    assert "presign=off" in settings["SLUICE_STORAGE_URL"]


def test_keda_scales_each_pool_on_the_one_figure():
    objects = render("keda")
    scaled = of_kind(objects, "ScaledObject")
    assert set(scaled) == {"sluice-parser", "sluice-downloader", "sluice-transcoder"}
    pools = json.loads(of_kind(objects, "ConfigMap")["sluice-autoscaler"]["data"]["pools.json"])
    for name, found in scaled.items():
        spec = found["spec"]
        assert spec["scaleTargetRef"]["name"] == name
        [trigger] = spec["triggers"]
        stage = pools[found["metadata"]["labels"]["sluice.dev/pool"]]["stage"]
        assert trigger["metadata"]["url"] == (
            f"http://sluice-api.media.svc:8080/v1/demand?pool={stage}"
        )
        # A fallback would set a number when the figure can't be had; without one nothing moves.
        assert "fallback" not in spec
        assert spec["initialCooldownPeriod"] > 0
        down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
        assert down["stabilizationWindowSeconds"] >= 300
    # Ours still tells which pods are idle, and scales nothing.
    assert {name: pool["autoscaling"]["enabled"] for name, pool in pools.items()} == {
        "parser": False, "downloader": False, "transcoder": False,
    }  # fmt: skip
    assert not of_kind(render("minimal"), "ScaledObject")


def test_the_autoscaler_reads_the_pools_that_there_are(objects, case, tmp_path):
    maps = of_kind(objects, "ConfigMap")
    if case == "dev":
        assert "sluice-autoscaler" not in maps
        return
    file = tmp_path / "pools.json"
    file.write_text(maps["sluice-autoscaler"]["data"]["pools.json"])
    deployments = of_kind(objects, "Deployment")
    pools = read_pools(file)
    assert len(pools) >= 3
    for name, pool in pools.items():
        labels = deployments[pool.deployment]["spec"]["template"]["metadata"]["labels"]
        assert labels["sluice.dev/pool"] == name
        assert labels["sluice.dev/stage"] == pool.stage
        assert pool.policy.target == pool.concurrency


def test_the_role_names_what_it_scales_and_no_more():
    objects = render("production")
    rules = of_kind(objects, "Role")["sluice-autoscaler"]["rules"]
    workers = [n for n, d in of_kind(objects, "Deployment").items()
               if d["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"]  # fmt: skip
    for rule in rules:
        assert "*" not in rule["verbs"] + rule["resources"]
        assert "delete" not in rule["verbs"]
        if rule["apiGroups"] == ["apps"]:
            assert sorted(rule["resourceNames"]) == sorted(workers)


def test_what_others_scale_the_autoscaler_may_only_look_at():
    by_hand = {"transcoder": {"autoscaling": {"enabled": False}}}
    for objects, expected in (
        (render("keda"), []),
        (render("minimal", autoscaler={"mode": "external"}), []),
        (render("minimal", workers=by_hand), ["sluice-downloader", "sluice-parser"]),
    ):
        rules = of_kind(objects, "Role")["sluice-autoscaler"]["rules"]
        named = {rule["resources"][0]: rule.get("resourceNames") for rule in rules}
        assert len(named["deployments"]) == 3
        assert named.get("deployments/scale", []) == expected


def test_owned_settings_are_really_set_by_the_chart():
    given = set()
    for case in ("minimal", "production"):
        objects = render(case, egress={"allow": ["10.0.0.1:80"], "proxy": "http://p:3128"})
        for _, _, container in containers(objects):
            given |= {*settings_of(objects, container), *env(container)}
    by_hand = {
        "AUTOSCALER_NAMESPACE",
        "API_METRICS_PORT",
        "CALLBACK_SECRET",
        "PRESETS_FILE",
        "FAILPOINTS",
        "FAILPOINTS_LOG",
    }
    assert {f"SLUICE_{name}" for name in OWNED - by_hand} <= given


def test_rules_and_dashboards_are_those_of_the_files():
    objects = render("production")
    [rule] = of_kind(objects, "PrometheusRule").values()
    files = [yaml.safe_load(p.read_text()) for p in sorted((CHART / "files/rules").glob("*.yaml"))]
    assert rule["spec"]["groups"] == [group for file in files for group in file["groups"]]
    shown = {
        name: json.loads(text)
        for found in of_kind(objects, "ConfigMap").values()
        if found["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in found["data"].items()
    }
    dashboards = (CHART / "files/dashboards").glob("*.json")
    assert shown == {f"sluice-{p.name}": json.loads(p.read_text()) for p in dashboards}


@pytest.mark.parametrize("page", ["https://wiki.example.com/sluice", ""])
def test_alerts_point_at_the_runbook_of_the_operator_or_at_its_file(page):
    there = {"enabled": True, "runbookUrl": page}
    [rule] = of_kind(render("production", prometheusRule=there), "PrometheusRule").values()
    links = [
        alert["annotations"]["runbook_url"]
        for group in rule["spec"]["groups"]
        for alert in group["rules"]
        if "alert" in alert
    ]
    assert links
    where = page or "docs/runbook.md"
    assert all(link.startswith(f"{where}#sluice") for link in links)
    if not page:
        assert (ROOT / where).is_file()
