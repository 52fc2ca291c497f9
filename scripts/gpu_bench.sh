#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Figures on 2 GPUs, under 4 minutes: JSON lines and a table against first bars and goals.
# Usage: gpu_bench.sh [FOLDER [RESULTS.jsonl]]: a build tree or a folder of gpu_pack.sh; lines are appended.
# shellcheck source=scripts/gpu_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/gpu_common.sh"

kShape=(--ranks 2 --hidden 7168 --topk 8 --experts 256 --backend cuda)
kIters=${EP_BENCH_ITERS:-60}
kBudget=${EP_BENCH_SECONDS:-230}
kDispatchSms=8,10,12,14,16,24,32,64,132
kCombineSms=6,8,10,12,16,24,132

results=''
lines=$(mktemp)
ceilings=$(mktemp)
trap 'rm -f "$lines" "$ceilings"' EXIT
failures=()
start=$(now_s)

seconds_left() { echo $((kBudget - ($(now_s) - start))); }

default_results() {
  if [[ -d $kRoot/bench ]]; then echo "$kRoot/bench/results/h200x2.jsonl"; else echo "$kBin/h200x2.jsonl"; fi
}

# At once: a run that is ended early leaves what it measured.
keep_lines() {  # json
  cat "$1" >>"$lines"
  cat "$1" >>"$results"
}

# A run that fails is reported at the end; the others go on.
measure() {  # title ep-bench arguments
  local title=$1 json log before left
  shift
  left=$(seconds_left)
  if ((left < 5)); then
    failures+=("$title: not run, the time is up")
    return
  fi
  json=$(mktemp) log=$(mktemp) before=$(now_s)
  if timeout --kill-after=5 "$((left < 60 ? left : 60))" "$EP_BENCH" "$@" --json "$json" >"$log" 2>&1; then
    keep_lines "$json"
    echo "ok    $title, $(($(now_s) - before)) s"
  else
    failures+=("$title")
    echo "FAIL  $title: ep-bench $*"
    tail -n 25 "$log" | sed 's/^/      /'
    # Wrong rows are figures, too: the table names them.
    keep_lines "$json"
  fi
  rm -f "$json" "$log"
}

sweep() {  # title op mode sms tokens [options]
  local title=$1 op=$2 mode=$3 sms=$4 tokens=$5
  shift 5
  local share=()
  [[ ! -s $ceilings ]] || share=(--ceilings "$ceilings")
  measure "$title, $mode" sweep --op "$op" --mode "$mode" --sms "$sms" --tokens "$tokens" --iters "$kIters" \
    --warmup 5 "${kShape[@]}" "${share[@]}" "$@"
}

measure_ceilings() {
  measure "ceilings" p2p
  cp "$lines" "$ceilings"
}

measure_operations() {
  local mode op
  for mode in graph eager; do
    sweep "dispatch bf16" dispatch "$mode" "$kDispatchSms" 4096
    sweep "combine bf16" combine "$mode" "$kCombineSms" 4096
    sweep "dispatch fp8 + scales" dispatch "$mode" "$kDispatchSms" 4096 --dtype fp8
  done
  sweep "combine from outside the arena" combine graph 16 4096 --placement outside
  for op in dispatch combine; do
    sweep "$op expert_major" "$op" graph 16,64,132 4096 --layout expert_major --align 128
    sweep "$op of few tokens" "$op" graph 16 128,512,1024
  done
}

main() {
  find_binaries "${1:-}"
  need_gpus 2
  results=${2:-$(default_results)}
  mkdir -p "$(dirname "$results")"
  measure_ceilings
  measure_operations
  echo
  python3 "$kScripts/gpu_table.py" "$lines" || failures+=("table")
  echo
  echo "$(wc -l <"$lines") lines appended to $results, $(($(now_s) - start)) s"
  ((${#failures[@]} == 0)) || { printf 'failed: %s\n' "${failures[@]}" && exit 1; }
}

main "$@"
