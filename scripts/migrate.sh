#!/usr/bin/env bash
# Moves what an unmodified kube-apiserver wrote from a real etcd onto the store out of a bundle, and compares everything.
# usage: scripts/migrate.sh [--bundle FILE] [--objects N] [--seed N]
#        scripts/migrate.sh --control [--objects N] [--seed N]   the same on etcd alone: proves the driver
#        scripts/migrate.sh --control --spoil   one key is changed behind the driver's back: the run must fail
# Without --bundle it takes the newest dist/*.tar.gz. It ends with a table of what it compared.
set -euo pipefail

. "$(dirname "$0")/env.sh"

bundle="" control=false arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --control) control=true; arguments+=(--control); shift ;;
        --spoil) arguments+=(--spoil); shift ;;
        --bundle | --objects | --seed)
            [ $# -ge 2 ] || { echo "scripts/migrate.sh: $1 needs a value" >&2; exit 2; }
            if [ "$1" = --bundle ]; then bundle=$2; else arguments+=("$1" "$2"); fi
            shift 2 ;;
        *) sed -n '3,5s/^# //p' "$0" >&2; exit 2 ;;
    esac
done

peers=$("$root/scripts/peers" etcd kube-apiserver | tail -n 1)
(cd "$root" && cargo build -q --locked -p quantykube-api-driver --bin quantykube-api-driver)

work=$(mktemp -d "${TMPDIR:-/tmp}/quantykube-migrate.XXXXXX")
clean() {
    local code=$?
    if [ $code = 0 ]; then
        rm -rf "$work"
    else
        # What the servers said is all that helps to find the cause.
        find "$work" -depth -mindepth 1 ! -type d ! -name '*.log' -delete
        echo "scripts/migrate.sh: the servers' logs are kept in $work" >&2
    fi
}
trap clean EXIT

if ! $control; then
    if [ -z "$bundle" ]; then
        bundle=$(find "$root/dist" -maxdepth 1 -name '*.tar.gz' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-)
    fi
    [ -f "$bundle" ] || { echo "scripts/migrate.sh: there is no bundle in dist/. hint: run scripts/bundle" >&2; exit 1; }
    mkdir "$work/bundle"
    tar xzf "$bundle" -C "$work/bundle"
    opened=$(echo "$work"/bundle/*/)
    echo "bundle: $(basename "$bundle"), extracted"
    arguments+=(--run "${opened}run" --store "${opened}bin/quantykube-store")
fi

mkdir "$work/run"
"$CARGO_TARGET_DIR/debug/quantykube-api-driver" --peers "$peers" --work "$work/run" "${arguments[@]}"
