# Sourced by the other scripts: where build output and peers live (outside the clone) and what is built how.
# QUANTYKUBE_CACHE moves all of it.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export QUANTYKUBE_CACHE=${QUANTYKUBE_CACHE:-$HOME/.cache/quantykube}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$QUANTYKUBE_CACHE/target}
case $(uname -m) in
    x86_64) target=x86_64-unknown-linux-gnu arch=amd64 ;;
    aarch64) target=aarch64-unknown-linux-gnu arch=arm64 ;;
    *) echo "error: no build for $(uname -m); x86_64 and aarch64 are known" >&2; exit 1 ;;
esac
release_dir=$CARGO_TARGET_DIR/$target/release

# One target folder serves every checkout, and cargo tells a stale build by the sources' times alone: sources that are
# older than another checkout's build would pass for built. So one run at a time holds the folder, and whoever takes it
# over from another checkout marks its own sources as new.
claim_target() {
    if [ "${QUANTYKUBE_CLAIMED:-}" = "$root" ]; then return; fi
    mkdir -p "$CARGO_TARGET_DIR"
    exec 8>"$CARGO_TARGET_DIR/.claim.lock"
    flock -n 8 || { echo "waiting for another run that builds in $CARGO_TARGET_DIR" >&2; flock 8; }
    if [ "$(cat "$CARGO_TARGET_DIR/.checkout" 2>/dev/null)" != "$root" ]; then
        find "$root" -path "$root/.git" -prune -o -type f -exec touch {} +
        echo "$root" >"$CARGO_TARGET_DIR/.checkout"
    fi
    export QUANTYKUBE_CLAIMED=$root
}

# Node programs are static, so that they run on any distribution of the architecture.
build_static() {
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --quiet --release --locked --target "$target" "$@"
}
