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

# Node programs are static, so that they run on any distribution of the architecture.
build_static() {
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --quiet --release --locked --target "$target" "$@"
}
