# Finds the bundle, copies it off its carrier, checks it, and runs it.
#   start begin   from cloud-init: starts the unit, waits for its end, ends with its exit code
#   start         in the unit; also at the next boot where this one was cut short
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 022
here=/usr/local/lib/quantykube/first-boot
data=/var/lib/quantykube/first-boot
unit=quantykube-first-boot.service
mnt=/run/quantykube/seed

say() { echo "quantykube-first-boot: $*" >&2; }

# The exit code that the outcome names.
recorded() { sed -n 's/^ *"exit": *\([0-9][0-9]*\),*$/\1/p' "$data/outcome.json" 2>/dev/null || true; }

# fail EXIT NAME MESSAGE: the message is ours and needs no escapes.
fail() {
    say "$3"
    printf '{\n  "exit": %s,\n  "message": "%s",\n  "name": "%s",\n  "outcome": "failed"\n}\n' "$1" "$3" "$2" >"$data/.outcome.json"
    sync "$data/.outcome.json"
    mv "$data/.outcome.json" "$data/outcome.json"
    sync "$data"
    systemctl disable --quiet "$unit" 2>/dev/null || true
    exit "$1"
}

if [ "${1-}" = begin ]; then
    rm -f "$data/outcome.json"
    systemctl daemon-reload
    systemctl enable --quiet "$unit"
    systemctl start "$unit"
    while :; do
        case $(systemctl show -p ActiveState --value "$unit") in
            active | activating | deactivating | reloading) sleep 1 ;;
            *) break ;;
        esac
    done
    code=$(recorded)
    [ -n "$code" ] || { say "it ended without an outcome: journalctl -u $unit"; exit 1; }
    cat "$data/outcome.json"
    exit "$code"
fi

mkdir -p "$here"
[ -d /var/lib/quantykube ] || mkdir -m 0700 /var/lib/quantykube
[ -d "$data" ] || mkdir -m 0700 "$data"
[ ! -e "$data/outcome.json" ] || exit 0

# From a disk with a label: cloud-init mounts it only while it reads, and a disk may come late.
find_on_disk() {
    end=$(($(date +%s) + 60))
    while :; do
        for name in "$label" "$(echo "$label" | tr a-z A-Z)" "$(echo "$label" | tr A-Z a-z)"; do
            if [ -e "/dev/disk/by-label/$name" ]; then
                mkdir -p "$mnt"
                umount "$mnt" 2>/dev/null || true
                mount -o ro,nodev,nosuid,noexec "/dev/disk/by-label/$name" "$mnt" ||
                    fail 1 seed-mount "the disk with the label $label cannot be mounted"
                return
            fi
        done
        [ "$(date +%s)" -lt "$end" ] || fail 1 no-seed "no disk with the label $label is there"
        sleep 1
    done
}

if [ ! -d "$here/bundle" ]; then
    file=$path
    if [ -n "$label" ]; then
        find_on_disk
        file=$mnt/$path
    fi
    [ -f "$file" ] || fail 1 no-bundle "there is no bundle at $path${label:+ on the disk $label}"
    if [ -n "$sha256" ]; then
        echo "$sha256  $file" | sha256sum -c --status ||
            fail 3 checksum-differs "the bundle is not the one that the user-data names: its checksum differs; nothing was touched"
    fi
    rm -rf "$here/new"
    mkdir "$here/new"
    tar -xzf "$file" --no-same-owner -C "$here/new" || {
        rm -rf "$here/new"
        fail 3 extract "the bundle cannot be extracted: it is damaged, or there is no space; nothing was touched"
    }
    [ -z "$label" ] || umount "$mnt"
    set -- "$here/new"/*
    [ $# = 1 ] && [ -x "$1/run" ] || {
        rm -rf "$here/new"
        fail 3 no-run "the bundle holds no run; nothing was touched"
    }
    # What a boot that is cut short leaves is whole, or has another name.
    sync
    mv "$1" "$here/bundle"
    rmdir "$here/new"
fi

code=0
# shellcheck disable=SC2086
"$here/bundle/run" first-boot $options || code=$?
# Without an outcome the system is shutting down: the next boot goes on.
if [ -e "$data/outcome.json" ]; then
    systemctl disable --quiet "$unit" 2>/dev/null || true
    rm -rf "$here/bundle"
elif [ "$code" != 6 ]; then
    rm -rf "$here/bundle"
    fail "$code" not-run "the bundle could not be run; the journal of $unit says why; nothing was touched"
fi
exit "$code"
