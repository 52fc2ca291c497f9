#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Correctness on GPUs, under 4 minutes: GoogleTest binaries, then outputs of ep-bench bitwise equal for every budget and
# equal to the host's. Usage: gpu_check.sh [FOLDER]: a build tree or a folder of gpu_pack.sh.
# shellcheck source=scripts/gpu_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/gpu_common.sh"

kBudget=${EP_CHECK_SECONDS:-230}
kSms=1,2,3,5,7,12,13,16,24,31,64,132
# Several ranks share a GPU: their budgets must fit on it together.
kSharedSms=1,2,5,13,16
# Other element types, each rank on a GPU of its own.
kFewSms=1,7,16,132
kShape=(--tokens 500 --hidden 2048 --topk 4 --experts 40 --exact --iters 4 --warmup 1)

num_passed=0
num_skipped=0
failures=()
start=$(now_s)

seconds_left() { echo $((kBudget - ($(now_s) - start))); }

note_failure() {  # what log
  failures+=("$1")
  echo "FAIL  $1"
  tail -n 25 "$2" | sed 's/^/      /'
}

run_gtest() {  # binary [VARIABLE=value]
  local binary=$1 log left name skipped
  shift
  name=$(basename "$binary")
  log=$(mktemp)
  left=$(seconds_left)
  if ((left < 5)); then
    failures+=("$name: not run, the time is up")
  elif env "$@" timeout --kill-after=5 "$((left < 90 ? left : 90))" "$binary" >"$log" 2>&1; then
    num_passed=$((num_passed + 1))
    skipped=$(grep -cE '^\[  SKIPPED \].*\(' "$log" || true)
    num_skipped=$((num_skipped + skipped))
    echo "ok    $name$( ((skipped == 0)) || echo ", $skipped skipped")"
    ((skipped == 0)) || grep -A1 ': Skipped$' "$log" | grep -vE ': Skipped$|^--$' | sort | uniq -c | sed 's/^/      /'
  else
    note_failure "$name${1:+ ($1)}" "$log"
  fi
  rm -f "$log"
}

run_gtests() {
  local binary
  for binary in "$kBin"/tests/gpu/*_test; do
    [[ -x $binary ]] && run_gtest "$binary"
  done
  for binary in "$kBin"/tests/moe/*_test; do
    # Touches gigabytes and takes minutes.
    [[ -x $binary && $binary != */large_test ]] && run_gtest "$binary" EP_TEST_BACKEND=cuda
  done
  return 0
}

# The hashes that a run prints, each once.
hashes_in() { grep -oE '"output_hash":"[0-9a-f]+"' "$1" | sort -u; }

# One operation and shape: a host run, and a sweep on the GPUs.
compare_hashes() {  # op sms [options]
  local op=$1 sms=$2 host gpu log what left
  shift 2
  what="$op $*"
  host=$(mktemp) gpu=$(mktemp) log=$(mktemp)
  left=$(seconds_left)
  if ((left < 5)); then
    failures+=("$what: not run, the time is up")
  elif ! timeout 60 "$EP_BENCH" "$op" "${kShape[@]}" "${@/--mode=*/--mode=eager}" --json "$host" >"$log" 2>&1; then
    note_failure "$what on the host" "$log"
  elif ! timeout 60 "$EP_BENCH" sweep --op "$op" --backend cuda --sms "$sms" "${kShape[@]}" "$@" --json "$gpu" \
    >"$log" 2>&1; then
    note_failure "$what" "$log"
  elif [[ $(hashes_in "$host") != "$(hashes_in "$gpu")" || $(wc -l <"$gpu") -ne $(tr , '\n' <<<"$sms" | wc -l) ]]; then
    { echo "host:" && hashes_in "$host" && echo "cuda, SMs $sms:" && hashes_in "$gpu"; } >"$log"
    note_failure "$what: other bits" "$log"
  else
    num_passed=$((num_passed + 1))
    echo "ok    $what: $(hashes_in "$gpu") for SMs $sms and on the host"
  fi
  rm -f "$host" "$gpu" "$log"
}

compare_all_hashes() {
  local op
  for op in dispatch combine; do
    compare_hashes "$op" "$kSms" --ranks 2
    compare_hashes "$op" "$kSms" --ranks 2 --mode=graph
    compare_hashes "$op" "$kSms" --ranks 2 --layout expert_major --align 16
    compare_hashes "$op" "$kFewSms" --ranks 2 --dtype fp8
    compare_hashes "$op" "$kFewSms" --ranks 2 --dtype fp32 --launch threads
    compare_hashes "$op" "$kSharedSms" --ranks 3 --launch threads
    compare_hashes "$op" "$kSharedSms" --ranks 5 --launch threads --layout expert_major
    compare_hashes "$op" 1,5,16 --ranks 8 --launch threads
  done
  compare_hashes combine "$kFewSms" --ranks 2 --placement outside
}

# The whole layer over a text, by processes and by threads.
run_layers() {
  local text=$kRoot/bench/data/persuasion.txt log launch
  [[ -f $text ]] || text=$kBin/persuasion.txt
  log=$(mktemp)
  for launch in fork threads; do
    if timeout 60 "$EP_BENCH" moe --backend cuda --text "$text" --launch "$launch" --iters 5 >"$log" 2>&1; then
      num_passed=$((num_passed + 1))
      echo "ok    moe by $launch: $(tail -n 1 "$log")"
    else
      note_failure "moe by $launch" "$log"
    fi
  done
  rm -f "$log"
}

main() {
  find_binaries "$@"
  need_gpus 1
  if ((kNumGpus < 2)); then echo "one GPU: no row crosses a link, SMs are shared"; kSms=$kSharedSms kFewSms=1,7,16; fi
  run_layers
  compare_all_hashes
  run_gtests
  echo "$num_passed passed, ${#failures[@]} failed, $num_skipped tests skipped, $(($(now_s) - start)) s"
  ((${#failures[@]} == 0)) || { printf 'failed: %s\n' "${failures[@]}" && exit 1; }
}

main "$@"
