#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copies what gpu_check.sh and gpu_bench.sh run into a folder for a machine with only bash, coreutils, python3 and the
# CUDA driver: usage: gpu_pack.sh OUT [BUILD], default build/cuda.
set -euo pipefail

kRoot=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  echo "usage: gpu_pack.sh OUT [BUILD]" >&2
  exit 2
}

# Of the system's C library and loader the target has its own; everything else travels.
copy_libraries() {  # out binary...
  local out=$1 path
  shift
  while read -r path; do
    cp -L "$path" "$out/lib/"
  done < <(ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libpthread|libdl|librt|libcuda|ld-linux[^/]*)\.so')
}

main() {
  (($# >= 1 && $# <= 2)) || usage
  local out=$1 build=${2:-$kRoot/build/cuda} kind binary
  local binaries=()
  mkdir -p "$out"/{lib,tests/gpu,tests/moe,tests/fault,scripts}
  [[ -x $build/bench/ep-bench ]] || { echo "no $build/bench/ep-bench: build it first" >&2; exit 2; }
  cp "$build/bench/ep-bench" "$out/"
  binaries+=("$out/ep-bench")
  for kind in gpu moe fault; do
    for binary in "$build/tests/$kind"/*_test; do
      [[ -f $binary && -x $binary ]] || continue
      cp "$binary" "$out/tests/$kind/"
      binaries+=("$out/tests/$kind/$(basename "$binary")")
    done
  done
  copy_libraries "$out" "${binaries[@]}"
  strip --strip-debug "${binaries[@]}"
  cp "$kRoot"/scripts/gpu_* "$out/scripts/"
  cp "$kRoot/tools/plot_bench.py" "$kRoot/bench/data/persuasion.txt" "$out/"
  echo "${#binaries[@]} binaries, $(find "$out/lib" -name '*.so*' | wc -l) libraries, $(du -sm "$out" | cut -f1) MiB in $out"
}

main "$@"
