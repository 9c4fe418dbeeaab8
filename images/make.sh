#!/bin/sh
# Builds images with the engine that is there: make.sh [NAME...], all without a name.
#
# ENGINE names one; PREFIX comes before each name (registry.example.com/team/), TAG after it (default:
# what the chart asks for). Build arguments are taken from the environment by the names that the
# Dockerfiles know.
set -eu
cd "$(dirname "$0")/.."

file_of() {
    case $1 in
    sample-site) echo libs/testing/Dockerfile ;;
    *) echo "services/$1/Dockerfile" ;;
    esac
}

works() { # a client without its daemon does not
    case $1 in
    docker) docker info >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

engine=${ENGINE:-}
for candidate in docker podman buildah; do
    [ -n "$engine" ] || ! works "$candidate" || engine=$candidate
done
[ -n "$engine" ] || {
    echo "Images need docker (with its daemon running), podman or buildah; none was found." >&2
    exit 2
}

names=$*
[ -n "$names" ] || names="api scheduler autoscaler parser downloader transcoder sample-site"
tag=${TAG:-$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' charts/sluice/Chart.yaml)}
revision=${REVISION:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
for name in $names; do
    file=$(file_of "$name")
    [ -e "$file" ] || {
        echo "There is no image $name: $file is missing." >&2
        exit 2
    }
    set -- --build-arg "REVISION=$revision"
    for argument in BASE_IMAGE WHEELS VERSION SOURCE PIP_INDEX_URL PIP_EXTRA_INDEX_URL \
        UV_INDEX_URL UV_EXTRA_INDEX_URL UV_DEFAULT_INDEX UV_INDEX; do
        eval "value=\${$argument:-}"
        # shellcheck disable=SC2154  # set by eval
        [ -z "$value" ] || set -- "$@" --build-arg "$argument=$value"
    done
    echo "${PREFIX:-}sluice-$name:$tag ($engine)" >&2
    case $engine in
    # Docker's newer image store puts a record of the build beside each image, which `docker save` leaves out:
    # without it `kind load docker-image` takes none of them.
    docker) DOCKER_BUILDKIT=1 BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build "$@" -f "$file" -t "${PREFIX:-}sluice-$name:$tag" . ;;
    *) "$engine" build "$@" -f "$file" -t "${PREFIX:-}sluice-$name:$tag" . ;;
    esac
done
