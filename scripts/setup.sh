#!/usr/bin/env bash
# Installs what Kiln's tests need on a Debian machine that has Rust: system packages, two releases of the ONNX test suite,
# whole networks with ONNX Runtime's answers, NVRTC.
# Does nothing, quickly, where all is there. The downloads go into .cache/ of this repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ONNX_VERSION=1.19.1
NVRTC_VERSION=13.0.88
SUITE=.cache/onnx-suite-$ONNX_VERSION
NEWEST_SUITE=.cache/onnx-suite-1.23.2
ONNX=.cache/onnx
NVRTC=.cache/nvrtc
PEER=.cache/peer
PERFETTO=.cache/perfetto
NETWORKS=.cache/topologies
POLYGRAPHY=.cache/polygraphy

fail() { echo "setup: $*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; return; fi
    command -v sudo >/dev/null || fail "not root and no sudo: install by hand: ${missing[*]}"
    sudo "$@"
}

# have COMMAND-OR-FILE: whether a program is on the path, or a file or library is there.
have() {
    case $1 in
        lib*.so*) [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p) == *"$1"* ]] ;;
        /*) compgen -G "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

system_packages() {
    missing=()
    have gcc && have cc || missing+=(gcc libc6-dev)
    have g++ || missing+=(g++)
    have unzip || missing+=(unzip)
    have cmake || missing+=(cmake make)
    have pkg-config || missing+=(pkgconf)
    have chromium || missing+=(chromium)
    have /usr/include/cbor.h || missing+=(libcbor-dev)
    have libvulkan.so.1 || missing+=(libvulkan1)
    have vulkaninfo || missing+=(vulkan-tools)
    have '/usr/share/vulkan/icd.d/lvp_icd*.json' || missing+=(mesa-vulkan-drivers)
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3 python3-pip)
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    [ ${#missing[@]} = 0 ] && return 0
    command -v apt-get >/dev/null || fail "no apt-get: install by hand: ${missing[*]}"
    echo "setup: installing ${missing[*]}"
    as_root apt-get update -qq || fail "apt-get update failed"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        >/dev/null || fail "apt-get could not install ${missing[*]}"
}

# fetch_wheel REQUIREMENT PATTERN TARGET STRIP: unpacks the files of a wheel that match, without their first STRIP folders.
fetch_wheel() {
    local requirement=$1 pattern=$2 target=$3 strip=$4 work from
    mkdir -p .cache
    work=$(mktemp -d .cache/wheel.XXXXXX)
    echo "setup: fetching $requirement"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$work" "$requirement" || { rm -rf "$work"; fail "pip could not download $requirement"; }
    unzip -q "$work"/*.whl "$pattern" -d "$work/files" || { rm -rf "$work"; fail "$requirement has no $pattern"; }
    from=$work/files/$strip
    rm -rf "$target"
    mv "$from" "$target"
    rm -rf "$work"
}

onnx_suite() {
    [ -f "$SUITE/node/test_abs/model.onnx" ] ||
        fetch_wheel "onnx==$ONNX_VERSION" 'onnx/backend/test/data/*' "$SUITE" onnx/backend/test/data
    local folder
    for folder in node simple light pytorch-converted pytorch-operator; do
        [ -d "$SUITE/$folder" ] || fail "$SUITE/$folder is missing; delete $SUITE and run again"
    done
}

nvrtc() {
    [ -f "$NVRTC/libnvrtc.so.13" ] ||
        fetch_wheel "nvidia-cuda-nvrtc==$NVRTC_VERSION" '*/lib/libnvrtc*.so*' "$NVRTC" nvidia/cu13/lib
    rm -f "$NVRTC"/*.alt.so*
    compgen -G "$NVRTC/libnvrtc-builtins.so.13*" >/dev/null ||
        fail "$NVRTC/libnvrtc-builtins.so.13 is missing; delete $NVRTC and run again"
}

# newest_suite: the suite of the newest wheel, whose cases are written by the wheel's own generators.
newest_suite() {
    local from=tests/onnx made
    made=$(cat "$from/requirements.txt" "$from/make.py" | sha256sum)
    [ "$(cat "$NEWEST_SUITE/made" 2>/dev/null)" = "$made" ] && return 0
    if ! cmp -s "$from/requirements.txt" "$ONNX/requirements.txt"; then
        echo "setup: fetching $(grep '^onnx==' "$from/requirements.txt")"
        rm -rf "$ONNX"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
            --only-binary :all: --target "$ONNX" -r "$from/requirements.txt" || fail "pip could not install onnx"
        cp "$from/requirements.txt" "$ONNX/requirements.txt"
    fi
    rm -rf "$NEWEST_SUITE.new"
    PYTHONPATH=$ONNX python3 "$from/make.py" "$NEWEST_SUITE.new" || fail "$from/make.py failed"
    echo "$made" >"$NEWEST_SUITE.new/made"
    rm -rf "$NEWEST_SUITE"
    mv "$NEWEST_SUITE.new" "$NEWEST_SUITE"
}

# Whole networks with ONNX Runtime's answers, made anew when what makes them changes. About 1.4 GB.
topologies() {
    local from=tests/topologies made
    made=$(cat "$from/requirements.txt" "$from/make.py" | sha256sum)
    [ "$(cat "$NETWORKS/made" 2>/dev/null)" = "$made" ] && return 0
    if ! cmp -s "$from/requirements.txt" "$PEER/requirements.txt"; then
        echo "setup: fetching ONNX Runtime"
        rm -rf "$PEER"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
            --only-binary :all: --target "$PEER" -r "$from/requirements.txt" || fail "pip could not install ONNX Runtime"
        cp "$from/requirements.txt" "$PEER/requirements.txt"
    fi
    echo "setup: making networks with weights"
    rm -rf "$NETWORKS"
    PYTHONPATH=$PEER python3 "$from/make.py" "$SUITE/light" "$NETWORKS" || fail "$from/make.py failed"
    echo "$made" >"$NETWORKS/made"
}

# Random operators with ONNX Runtime's answers, made anew when what makes them changes.
oracle() {
    local from=tests/oracle cases=.cache/oracle made
    made=$(cat tests/topologies/requirements.txt "$from"/*.py | sha256sum)
    [ "$(cat "$cases/made" 2>/dev/null)" = "$made" ] && return 0
    rm -rf "$cases"
    PYTHONPATH=$PEER python3 "$from/make.py" "$cases" --count 4 || fail "$from/make.py failed"
    echo "$made" >"$cases/made"
}

# Classes of Perfetto's messages, for tests of traces.
perfetto() {
    local from=tests/perfetto
    cmp -s "$from/requirements.txt" "$PERFETTO/requirements.txt" && return 0
    echo "setup: fetching $(grep '^perfetto==' "$from/requirements.txt")"
    rm -rf "$PERFETTO"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
        --only-binary :all: --target "$PERFETTO" -r "$from/requirements.txt" || fail "pip could not install perfetto"
    cp "$from/requirements.txt" "$PERFETTO/requirements.txt"
}

# Polygraphy, for tests of the interface of TensorRT.
polygraphy() {
    local from=python/tests/tensorrt
    cmp -s "$from/requirements.txt" "$POLYGRAPHY/requirements.txt" && return 0
    echo "setup: fetching $(grep '^polygraphy==' "$from/requirements.txt")"
    rm -rf "$POLYGRAPHY"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
        --only-binary :all: --target "$POLYGRAPHY" -r "$from/requirements.txt" || fail "pip could not install Polygraphy"
    cp "$from/requirements.txt" "$POLYGRAPHY/requirements.txt"
}

# python_tests: an environment for the Python package and what its tests import.
python_tests() {
    local from=python/requirements.txt environment=.cache/python
    cmp -s "$from" "$environment/requirements.txt" && return 0
    echo "setup: fetching packages for the tests of the Python package"
    rm -rf "$environment"
    python3 -m venv "$environment" || fail "python3 -m venv fails: install python3-venv"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$from" ||
        fail "pip could not install $from"
    cp "$from" "$environment/requirements.txt"
}

vulkan() {
    local summary
    summary=$(vulkaninfo --summary 2>/dev/null) || fail "vulkaninfo --summary fails; run it to see why"
    [[ $summary == *llvmpipe* ]] || fail "vulkaninfo --summary lists no llvmpipe device; is mesa-vulkan-drivers installed?"
}

[ -x "$(command -v cargo)" ] || fail "cargo is missing: install Rust 1.95 or later first"
system_packages
onnx_suite
newest_suite
topologies
oracle
perfetto
polygraphy
case $(uname -m) in
    x86_64 | aarch64) nvrtc ;;
    *) echo "setup: no NVRTC for $(uname -m); CUDA kernels are not compiled in tests" ;;
esac
python_tests
vulkan
echo "setup: ready"
