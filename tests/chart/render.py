"""The chart, rendered by a real helm: for tests, and `make chart` writes what they compare with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sluice_core.adapters.settings import StageSettings, load

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "charts" / "sluice"
SCHEMA = CHART / "values.schema.json"
GOLDENS = Path(__file__).parent / "goldens"
RELEASE, NAMESPACE = "sluice", "media"

#: Five times as fast where libyaml is there.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: Values files under `ci/`, by name.
CASES = ("minimal", "dev", "production", "keda")

#: Settings that the chart sets from values of its own; `settings:` refuses them.
OWNED = frozenset(
    [
        "CONCURRENCY",
        "LANES",
        "DRAIN_GRACE",
        "SCRATCH_SIZE",
        "DATABASE_URL",
        "DATABASE_POOL",
        "REDIS_URL",
        "REDIS_PASSWORD",
        "STORAGE_URL",
        "S3_ACCESS_KEY",
        "S3_SECRET_KEY",
        "DATA_DIR",
        "HTTP_HOST",
        "HTTP_PORT",
        "METRICS_HOST",
        "METRICS_PORT",
        "LOG_FORMAT",
        "EGRESS_ALLOW",
        "EGRESS_PROXY",
        "BOOTSTRAP_KEY",
        "POD_NAME",
        "CALLBACK_SECRET",
        "SITE_SECRETS_KEY",
        "PRESETS_FILE",
        "FAILPOINTS",
        "FAILPOINTS_LOG",
        "AUTOSCALER_POOLS",
        "AUTOSCALER_NAMESPACE",
        "AUTOSCALER_LEASE",
        "API_METRICS_PORT",
    ]
)


@cache
def helm() -> Path | None:
    """The helm of the development wheel, else the one on PATH (`SLUICE_HELM` names another)."""
    beside = Path(sysconfig.get_path("scripts"), "helm")
    named = os.environ.get("SLUICE_HELM")
    found = named or (str(beside) if beside.exists() else shutil.which("helm"))
    return Path(found) if found else None


class Refused(Exception):  # noqa: N818  # what helm does with wrong values
    """helm ended with an error, in its own words."""


@cache
def run(*arguments: str) -> str:
    """helm's standard output.

    Raises:
        Refused: it ended with another status than 0.

    """
    program = helm()
    if program is None:
        raise Refused("helm is not installed")
    done = subprocess.run(  # helm
        [str(program), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def values_file(case: str) -> Path:
    return CHART / "ci" / f"{case}-values.yaml"


def render(case: str = "minimal", *options: str, **values: object) -> list[dict[str, Any]]:
    """All objects of the chart, hooks and tests too.

    Args:
        case: one of `CASES`.
        options: further ones of helm, e.g. `--is-upgrade`.
        values: top-level values, over those of the case.

    Raises:
        Refused: by helm, the schema or the chart itself.

    """
    sets = [part for name, value in values.items() for part in _set(name, value)]
    text = run(
        "template", RELEASE, str(CHART), "-n", NAMESPACE, "-f", str(values_file(case)),
        *options, *sets,
    )  # fmt: skip
    return parse(text)


def parse(text: str) -> list[dict[str, Any]]:
    """Objects of many documents."""
    return [found for found in yaml.load_all(text, LOADER) if found]  # a safe one


def _set(name: str, value: object) -> tuple[str, str]:
    return "--set-json", f"{name}={json.dumps(value)}"


def canonical(objects: list[dict[str, Any]]) -> str:
    """One text for the same objects, whichever helm wrote them; what is random is named instead."""
    shown = [_without_files(found) for found in objects]
    ordered = sorted(filter(None, shown), key=lambda o: (o["kind"], o["metadata"]["name"]))
    text: str = yaml.safe_dump_all(ordered, sort_keys=True, width=100)
    text = re.sub(r"api-key: c2x1aWNl\S+", "api-key: RANDOM", text)
    text = re.sub(r"(?m)site-secrets-key: \S{60}$", "site-secrets-key: RANDOM", text)
    made = re.search(r"^  password: (\S{24})$", text, re.MULTILINE)
    return text.replace(made[1], "RANDOM") if made else text


def _without_files(found: dict[str, Any]) -> dict[str, Any] | None:
    """Rules and dashboards stand beside the chart's templates, with tests of their own."""
    if found["kind"] == "PrometheusRule":
        return {**found, "spec": {"groups": "files/rules"}}
    return None if "-dashboard-" in found["metadata"]["name"] else found


@cache
def setting_names() -> tuple[str, ...]:
    """Every setting's name, `SLUICE_` left out, without those that belong to the chart."""
    effective = {name.removeprefix("SLUICE_") for name in load({}).effective()}
    names = effective | {name.upper() for name in StageSettings.model_fields}
    owned = OWNED | {f"{s}_{n}" for s in ("PARSE", "DOWNLOAD", "TRANSCODE") for n in OWNED}
    return tuple(sorted(names - owned))


def schema_with_settings() -> str:
    """The schema's text with the names of today's settings in it."""
    schema = json.loads(SCHEMA.read_text())
    schema["definitions"]["settings"]["propertyNames"]["enum"] = list(setting_names())
    return json.dumps(schema, indent=2) + "\n"


def main() -> None:
    """Write schema and goldens anew; `git diff` then shows what changed for users."""
    SCHEMA.write_text(schema_with_settings())
    GOLDENS.mkdir(exist_ok=True)
    for case in CASES:
        (GOLDENS / f"{case}.yaml").write_text(canonical(render(case)))


if __name__ == "__main__":
    try:
        main()
    except Refused as exc:
        sys.exit(str(exc))
