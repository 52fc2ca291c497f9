#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the gpu_*.sh scripts: where the binaries are and how they are run.
set -euo pipefail

# Multicast stays off: nothing here needs it, and some machines forbid it.
export NCCL_NVLS_ENABLE=0

kScripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kRoot=$(dirname "$kScripts")

# Sets kBin and EP_BENCH from a build tree or a folder of gpu_pack.sh; default: the tree around this script.
find_binaries() {  # [folder]
  local candidate
  for candidate in "${1:-}" "$kRoot" "$kRoot/build/cuda"; do
    [[ -n $candidate ]] || continue
    for EP_BENCH in "$candidate/ep-bench" "$candidate/bench/ep-bench"; do
      if [[ -x $EP_BENCH && -f $EP_BENCH ]]; then
        kBin=$(cd "$candidate" && pwd)
        EP_BENCH=$(cd "$(dirname "$EP_BENCH")" && pwd)/ep-bench
        export LD_LIBRARY_PATH="$kBin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        return
      fi
    done
    [[ -z ${1:-} ]] || break
  done
  echo "no ep-bench in ${1:-$kRoot or $kRoot/build/cuda}; build it with cmake --preset cuda" >&2
  exit 2
}

# Sets kNumGpus; where there is none, says why and ends well.
need_gpus() {  # least
  local info
  if ! info=$("$EP_BENCH" info --backend cuda 2>&1); then
    echo "SKIP everything: $info"
    exit 0
  fi
  kNumGpus=$(grep -cE '^  gpu [0-9]+ .* SMs, ' <<<"$info" || true)
  grep -E '^(ep |gpus|  gpu )' <<<"$info"
  if ((kNumGpus < $1)); then
    echo "SKIP everything: needs $1 GPUs, found $kNumGpus"
    exit 0
  fi
}

now_s() { date +%s; }
