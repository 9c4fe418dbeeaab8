#!/bin/sh
# Collects the wheels from which images can be built without a network: collect.sh FOLDER PACKAGE...
#
# They suit this machine's processor and the Python that PYTHON names (default: python3), which must
# be of the same minor version as the base image's. Needs uv on PATH, or named by UV.
set -eu

folder=$1
shift
uv=${UV:-uv}
version=$(sed -n 's/^UV_VERSION=//p' "$(dirname "$0")/build.sh")
list=$(mktemp)
trap 'rm -f "$list"' EXIT

export_lock() {
    "$uv" export --quiet --frozen --no-dev --no-emit-workspace --no-annotate --no-header \
        --format requirements.txt "$@"
}

mkdir -p "$folder"
for package in "$@"; do export_lock --package "$package"; done >"$list"
export_lock --only-group image --only-group image-build --only-group image-dev >>"$list"
# Pinned with hashes all of them, and the same ones for several packages: once each will do.
"${PYTHON:-python3}" -c '
import re, sys
entries = sys.stdin.read().replace("\\\n", " ").splitlines()
# What only some patch releases need is taken too: the base image may be one of them.
entries = [re.sub(r";\s*python_full_version [<>=]+ .3\.\d+\.\d+.(?=\s)", "", e) for e in entries]
print("\n".join(sorted(set(" ".join(entry.split()) for entry in entries))))
' <"$list" >"$list.once"
mv "$list.once" "$list"
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --require-hashes --dest "$folder" -r "$list"
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --dest "$folder" "uv==$version"
