#!/usr/bin/env bash
# Moves a real kubeadm cluster (real kubelet, containerd and all static pods, in an emulated machine without a network)
# onto the store out of a bundle and back, and compares everything.
# usage: scripts/kubeadm.sh move [--long] [--bundle FILE]
#        scripts/kubeadm.sh cuts [--bundle FILE]
#        move    there, back, and there again through a power cut
#        --long  also kubeadm's own renewals on a moved node, and twelve power cuts
#        cuts    only the twelve power cuts
# Without --bundle it takes the newest dist/*.tar.gz. The first run makes the machine (scripts/vm bake).
set -euo pipefail
. "$(dirname "$0")/env.sh"

usage() { sed -n '4,8s/^# //p' "$0" >&2; exit 2; }

case ${1-} in move | cuts) verb=$1 ;; *) usage ;; esac
shift
bundle="" arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --long) [ "$verb" = move ] || usage; arguments+=(--long) ;;
        --bundle) [ $# -ge 2 ] || usage; bundle=$2; shift ;;
        *) usage ;;
    esac
    shift
done

if [ -z "$bundle" ]; then
    bundle=$(find "$root/dist" -maxdepth 1 -name '*.tar.gz' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-)
fi
[ -f "$bundle" ] || { echo "scripts/kubeadm.sh: there is no bundle in dist/. hint: run scripts/bundle" >&2; exit 1; }
"$root/scripts/vm" bake >/dev/null
(cd "$root" && cargo build -q --locked -p quantykube-test-kubeadm)
exec "$CARGO_TARGET_DIR/debug/quantykube-test-kubeadm" "$verb" "$bundle" "${arguments[@]}"
