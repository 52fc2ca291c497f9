#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Correctness on GPUs, each under 4 minutes. Usage: gpu_check.sh [--soak | --sanitize] [FOLDER], where FOLDER is a build
# tree or a folder of gpu_pack.sh. Without an option: the GoogleTest binaries, and outputs of ep-bench bitwise equal for
# every budget and equal to the host's. --soak: 20,000 rounds with exact sums and a late rank, every row checked.
# --sanitize: small shapes under compute-sanitizer's memcheck, racecheck and synccheck.
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

note_failure() {  # what log [lines]
  failures+=("$1")
  echo "FAIL  $1"
  tail -n "${3:-40}" "$2" | sed 's/^/      /'
}

run_gtest() {  # binary [VARIABLE=value]
  local binary=$1 log left name skipped before
  shift
  before=$(now_s)
  name=$(basename "$binary")
  log=$(mktemp)
  left=$(seconds_left)
  if ((left < 5)); then
    failures+=("$name: not run, the time is up")
  elif env "$@" timeout --kill-after=5 "$((left < 90 ? left : 90))" "$binary" >"$log" 2>&1; then
    num_passed=$((num_passed + 1))
    skipped=$(grep -cE '^\[  SKIPPED \].*\(' "$log" || true)
    num_skipped=$((num_skipped + skipped))
    echo "ok    $name$( ((skipped == 0)) || echo ", $skipped skipped"), $(($(now_s) - before)) s"
    ((skipped == 0)) || grep -A1 ': Skipped$' "$log" | grep -vE ': Skipped$|^--$' | sort | uniq -c | sed 's/^/      /'
  else
    note_failure "$name${1:+ ($*)}" "$log"
  fi
  rm -f "$log"
}

run_gtests() {
  local binary
  # Each waits for deadlines: one round of each fault. A process whose threads have used a GPU forks no ranks.
  for binary in "$kBin"/tests/fault/*_test; do
    [[ -x $binary ]] || continue
    run_gtest "$binary" EP_TEST_BACKEND=cuda EP_TEST_SCALE=0.25 'GTEST_FILTER=-*Threads*'
    run_gtest "$binary" EP_TEST_BACKEND=cuda EP_TEST_SCALE=0.25 'GTEST_FILTER=*Threads*'
  done
  for binary in "$kBin"/tests/gpu/*_test; do
    [[ -x $binary ]] && run_gtest "$binary"
  done
  for binary in "$kBin"/tests/moe/*_test; do
    # Touches gigabytes: with --soak.
    [[ -x $binary && $binary != */large_test ]] && run_gtest "$binary" EP_TEST_BACKEND=cuda
  done
  return 0
}

# The hashes that a run prints, each once.
hashes_in() { grep -oE '"output_hash":"[0-9a-f]+"' "$1" | sort -u; }

# One operation and shape: a host run, and a sweep on the GPUs.
compare_hashes() {  # op sms [options]
  local op=$1 sms=$2 host gpu log what left before
  shift 2
  before=$(now_s)
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
    echo "ok    $what: $(hashes_in "$gpu") for SMs $sms and on the host, $(($(now_s) - before)) s"
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

# Soak ----------------------------------------------------------------------------------------

soak() {  # rounds options...
  local rounds=$1 log left
  shift
  log=$(mktemp)
  left=$(seconds_left)
  if ((left < 5)); then
    failures+=("soak $*: not run, the time is up")
  elif timeout --kill-after=5 "$left" "$EP_BENCH" soak --backend cuda --iters "$rounds" "$@" >"$log" 2>&1; then
    num_passed=$((num_passed + 1))
    echo "ok    soak $*: $(tail -n 2 "$log" | tr '\n' ' ')at $(($(now_s) - start)) s"
  else
    note_failure "soak --iters $rounds $*" "$log"
  fi
  rm -f "$log"
}

soak_all() {
  local rounds=${EP_SOAK_ROUNDS:-20000}
  soak "$rounds" --ranks 2
  soak "$rounds" --ranks 2 --mode graph --layout expert_major --align 16
  # Full capacity of what A01 and A03 of the field reports ran with.
  soak $((rounds / 10)) --ranks 2 --tokens 256 --hidden 7168 --topk 8 --experts 256
  soak $((rounds / 10)) --ranks 2 --placement outside
  soak $((rounds / 10)) --ranks 5 --launch threads --sms 8
  # Not rounds but gigabytes: rows beyond 2^32 bytes.
  [[ ! -x $kBin/tests/moe/large_test ]] || run_gtest "$kBin/tests/moe/large_test" EP_TEST_BACKEND=cuda
}

# Sanitizer -----------------------------------------------------------------------------------

# Waits of the library and of the bench; instrumented kernels are a hundred times slower.
kSanitizerTimeout=100

find_sanitizer() {
  local candidate
  for candidate in compute-sanitizer /usr/local/cuda/bin/compute-sanitizer \
    /usr/local/cuda/compute-sanitizer/compute-sanitizer /opt/nvidia/*/compute-sanitizer; do
    command -v "$candidate" && return
  done
  return 1
}

# Two ranks as a launcher starts them: the tool follows no fork that does not exec.
sanitize() {  # tool ep-bench arguments...
  local tool=$1 folder rank left status=0 what pids=() job=$RANDOM flags=(--error-exitcode 99 --print-limit 20)
  shift
  # Only what kernels do: the library tries calls of the driver that may fail, such as FABRIC handles.
  [[ $tool != memcheck ]] || flags+=(--report-api-errors no)
  what="$tool: $*"
  folder=$(mktemp -d)
  left=$(seconds_left)
  if ((left < 10)); then
    failures+=("$what: not run, the time is up")
    return
  fi
  for rank in 0 1; do
    env RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
      TORCHELASTIC_RUN_ID="sanitize-$$-$job" \
      timeout --kill-after=5 "$((left < 90 ? left : 90))" "$kSanitizer" --tool "$tool" "${flags[@]}" \
      "$EP_BENCH" "$@" --backend cuda --timeout "$kSanitizerTimeout" >"$folder/$rank" 2>&1 &
    pids+=($!)
  done
  for rank in 0 1; do wait "${pids[rank]}" || status=$?; done
  cat "$folder/0" "$folder/1" >"$folder/both"
  if ((status == 0)) && ! grep -q 'Device not supported' "$folder/both"; then
    num_passed=$((num_passed + 1))
    echo "ok    $what: $(grep -hE 'ERROR SUMMARY|hazard' "$folder/both" | sort | uniq -c | tr -s ' \n' ' ')"
  elif grep -q 'Device not supported' "$folder/both"; then
    num_skipped=$((num_skipped + 1))
    echo "SKIP  $what: $(grep -m1 'Device not supported' "$folder/both")"
  else
    # The first reports of both ranks: what follows mostly repeats them.
    for rank in 0 1; do { echo "rank $rank:" && head -n 40 "$folder/$rank"; } done >"$folder/both"
    note_failure "$what (status $status)" "$folder/both" 90
  fi
  rm -rf "$folder"
}

sanitize_all() {
  local tool shape=(--tokens 24 --hidden 256 --topk 3 --experts 8 --iters 6 --sms 2)
  kSanitizer=$(find_sanitizer) || { echo "SKIP everything: no compute-sanitizer on this machine"; exit 0; }
  "$kSanitizer" --version | tail -n 1 || true
  for tool in memcheck racecheck synccheck; do
    sanitize "$tool" soak "${shape[@]}"
    sanitize "$tool" soak "${shape[@]}" --layout expert_major --align 8
    sanitize "$tool" soak "${shape[@]}" --placement outside
    sanitize "$tool" soak "${shape[@]}" --dtype fp8 --capacity 30
  done
}

main() {
  local mode=''
  if [[ ${1:-} == --* ]]; then mode=$1; shift; fi
  find_binaries "$@"
  need_gpus 1
  if ((kNumGpus < 2)); then echo "one GPU: no row crosses a link, SMs are shared"; kSms=$kSharedSms kFewSms=1,7,16; fi
  case $mode in
    --soak) soak_all ;;
    --sanitize) sanitize_all ;;
    '')
      run_layers
      compare_all_hashes
      run_gtests
      ;;
    *) echo "gpu_check.sh: no option $mode" >&2; exit 2 ;;
  esac
  echo "$num_passed passed, ${#failures[@]} failed, $num_skipped tests skipped, $(($(now_s) - start)) s"
  ((${#failures[@]} == 0)) || { printf 'failed: %s\n' "${failures[@]}" && exit 1; }
}

main "$@"
