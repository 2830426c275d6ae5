#!/usr/bin/env bash
# Installs the C API: headers, libkiln and libkiln_runtime, plug-in backends, and files for pkg-config and CMake.
#   scripts/install_c.sh PREFIX           builds the libraries in release form
#   scripts/install_c.sh PREFIX FOLDER    takes the libraries that cargo built into FOLDER, such as target/debug
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ $# = 1 ] || [ $# = 2 ] || { echo "usage: scripts/install_c.sh PREFIX [FOLDER]" >&2; exit 2; }
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
# Of the interface, whose major version is the library's: 0.
soversion=0

if [ $# = 1 ]; then
    # One by one: together they would share features, and the small library would hold the builder.
    unset CARGO_RESOLVER_FEATURE_UNIFICATION
    cargo build --release --quiet -p kiln-c
    cargo build --release --quiet -p kiln-c-runtime
    cargo build --release --quiet -p kiln-backend-wgpu
    cargo build --release --quiet -p kiln-backend-cuda
    from=${CARGO_TARGET_DIR:-target}/release
else
    from=$2
fi

# put FILE PLACE: a hard link where that is possible, as libraries of debug builds are large.
put() { ln -f "$1" "$2" 2>/dev/null || cp -f "$1" "$2"; }

include=$prefix/include lib=$prefix/lib
mkdir -p "$include" "$lib/kiln" "$lib/pkgconfig" "$lib/cmake/kiln"
cp -f capi/include/*.h capi/include/*.hpp plugins/include/*.h "$include/"
for name in kiln kiln_runtime; do
    [ -f "$from/lib$name.so" ] || { echo "install_c: $from/lib$name.so is missing: run cargo build --workspace --lib" >&2; exit 1; }
    put "$from/lib$name.so" "$lib/lib$name.so.$version"
    ln -sf "lib$name.so.$version" "$lib/lib$name.so.$soversion"
    ln -sf "lib$name.so.$soversion" "$lib/lib$name.so"
done
for backend in "$from"/libkiln_backend_*.so; do
    case $backend in *_cpu.so | *_reference.so | *'*'*) continue ;; esac
    put "$backend" "$lib/kiln/$(basename "$backend")"
done

# pc NAME LIBRARY DESCRIPTION
pc() {
    cat >"$lib/pkgconfig/$1.pc" <<EOF
prefix=\${pcfiledir}/../..
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: $1
Description: $3
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -l$2
EOF
}
pc kiln kiln "Kiln: builds and runs engines of neural networks"
pc kiln-runtime kiln_runtime "Kiln: runs engines of neural networks"

cat >"$lib/cmake/kiln/kiln-config.cmake" <<'EOF'
# Targets kiln::kiln (builds and runs) and kiln::runtime (runs only).
get_filename_component(_kiln_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_kiln_pair "kiln;kiln" "runtime;kiln_runtime")
  list(GET _kiln_pair 0 _kiln_target)
  list(GET _kiln_pair 1 _kiln_library)
  if(NOT TARGET kiln::${_kiln_target})
    add_library(kiln::${_kiln_target} SHARED IMPORTED)
    set_target_properties(kiln::${_kiln_target} PROPERTIES
      IMPORTED_LOCATION "${_kiln_prefix}/lib/lib${_kiln_library}.so.0"
      IMPORTED_SONAME "lib${_kiln_library}.so.0"
      INTERFACE_INCLUDE_DIRECTORIES "${_kiln_prefix}/include")
  endif()
endforeach()
EOF
cat >"$lib/cmake/kiln/kiln-config-version.cmake" <<EOF
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
EOF
echo "installed in $prefix"
