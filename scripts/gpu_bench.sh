#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Figures on 2 GPUs, under 4 minutes: JSON lines and a table against first bars and goals.
# Usage: gpu_bench.sh [FOLDER [RESULTS.jsonl]]: a build tree or a folder of gpu_pack.sh; lines are appended.
# shellcheck source=scripts/gpu_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/gpu_common.sh"

kShape=(--ranks 2 --hidden 7168 --topk 8 --experts 256 --backend cuda)
kIters=${EP_BENCH_ITERS:-60}

results=''
lines=$(mktemp)
ceilings=$(mktemp)
trap 'rm -f "$lines" "$ceilings"' EXIT
failures=()

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
  local title=$1 json log before
  shift
  json=$(mktemp) log=$(mktemp) before=$(now_s)
  if timeout --kill-after=5 60 "$EP_BENCH" "$@" --json "$json" >"$log" 2>&1; then
    keep_lines "$json"
    echo "ok    $title, $(($(now_s) - before)) s"
  else
    failures+=("$title")
    echo "FAIL  $title: ep-bench $*"
    tail -n 15 "$log" | sed 's/^/      /'
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
  local mode
  for mode in graph eager; do
    sweep "dispatch bf16" dispatch "$mode" 12,14,16,132 4096
  done
  sweep "dispatch fp8 + scales" dispatch graph 12,14,16 4096 --dtype fp8
  sweep "combine from outside the arena" combine graph 16 4096 --placement outside
  sweep "dispatch of few tokens" dispatch graph 16 128,512,1024
  sweep "dispatch expert_major" dispatch graph 132,16 4096 --layout expert_major --align 128
  sweep "combine expert_major" combine graph 132,16 4096 --layout expert_major --align 128
  # Half a minute each: the rows of a combine are checked on the host.
  for mode in graph eager; do
    sweep "combine bf16" combine "$mode" 8,10,12,16,132 4096
  done
}

main() {
  local start
  find_binaries "${1:-}"
  need_gpus 2
  results=${2:-$(default_results)}
  start=$(now_s)
  mkdir -p "$(dirname "$results")"
  measure_ceilings
  measure_operations
  echo
  python3 "$kScripts/gpu_table.py" "$lines"
  echo
  echo "$(wc -l <"$lines") lines appended to $results, $(($(now_s) - start)) s"
  ((${#failures[@]} == 0)) || { printf 'failed: %s\n' "${failures[@]}" && exit 1; }
}

main "$@"
