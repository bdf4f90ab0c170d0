#!/usr/bin/env bash
# Moves a real kubeadm cluster (real kubelet, containerd and all static pods, in an emulated machine without a network)
# onto the store out of a bundle and back, and compares everything.
# usage: scripts/kubeadm.sh move [--long] [--bundle FILE]
#        scripts/kubeadm.sh cuts [--bundle FILE]
#        scripts/kubeadm.sh seed [--long]
#        move    there, back, and there again through a power cut
#        --long  also kubeadm's own renewals on a moved node, and twelve power cuts; one more boot with the seed, and one
#                with a byte of its bundle changed
#        cuts    only the twelve power cuts
#        seed    a first boot with a seed of cloud-init that holds a signed bundle
# Without --bundle it takes the newest dist/*.tar.gz. The first run makes the machine (scripts/vm bake).
set -euo pipefail
. "$(dirname "$0")/env.sh"

usage() { sed -n '4,11s/^# //p' "$0" >&2; exit 2; }

case ${1-} in move | cuts | seed) verb=$1 ;; *) usage ;; esac
shift
bundle="" arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --long) [ "$verb" != cuts ] || usage; arguments+=(--long) ;;
        --bundle) [ $# -ge 2 ] && [ "$verb" != seed ] || usage; bundle=$2; shift ;;
        *) usage ;;
    esac
    shift
done

if [ "$verb" = seed ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    build_static -p quantykube-bundle -p quantykube-node-runner -p quantykube-store
    (
        cd "$work"
        program=$release_dir/quantykube-bundle
        "$program" keygen --no-password -o site
        "$program" build "$root/bundles/default.yaml" --sign site.key -o site.tar.gz
        "$program" seed --bundle site.tar.gz --public-key site.pub --no-network -o seed.iso
    ) >/dev/null
    "$root/scripts/vm" bake >/dev/null
    (cd "$root" && cargo build -q --locked -p quantykube-test-kubeadm)
    "$CARGO_TARGET_DIR/debug/quantykube-test-kubeadm" seed "$work/seed.iso" "${arguments[@]}"
    exit
fi

if [ -z "$bundle" ]; then
    bundle=$(find "$root/dist" -maxdepth 1 -name '*.tar.gz' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-)
fi
[ -f "$bundle" ] || { echo "scripts/kubeadm.sh: there is no bundle in dist/. hint: run scripts/bundle" >&2; exit 1; }
"$root/scripts/vm" bake >/dev/null
(cd "$root" && cargo build -q --locked -p quantykube-test-kubeadm)
exec "$CARGO_TARGET_DIR/debug/quantykube-test-kubeadm" "$verb" "$bundle" "${arguments[@]}"
