#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of scripts/gpu_check.sh, gpu_bench.sh and gpu_table.py with a program that plays ep-bench on two GPUs."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

# Reads its faults from FAKE_*: what info says, which SMs give another hash, which title fails.
FAKE = r'''#!/usr/bin/env python3
import json, os, sys

args = sys.argv[1:]
command = args[0]


def option(name, default=None):
    return args[args.index(name) + 1] if name in args else default


def lines():
    if command == "p2p":
        for what, gbps in (("push", 365.0), ("pull", 335.0), ("local_copy", 770.0)):
            directions = 1 if what == "local_copy" else 2
            yield {"op": "p2p", "what": what, "sms": 16, "directions": directions, "gbps": gbps}
        return
    for tokens in option("--tokens", "1024").split(","):
        for sms in option("--sms", "1").split(","):
            odd = command == "sweep" and sms == os.environ.get("FAKE_ODD_SMS")
            mode = option("--mode", "graph" if "--mode=graph" in args else "eager")
            yield {"op": option("--op", command), "dtype": option("--dtype", "bf16"), "tokens": int(tokens),
                   "layout": option("--layout", "flat"), "sms": int(sms), "mode": mode,
                   "placement": option("--placement", "arena"), "median_us": float(os.environ.get("FAKE_US", "170")),
                   "p10_us": 169.0, "p90_us": 171.0, "logical_gbps": 700.0, "physical_gbps": 340.0,
                   "fraction_of_ceiling": 0.93 if option("--ceilings") else None,
                   "host_us": 6.0 if mode == "eager" else None, "rows_wrong": 0,
                   "rows_checked": int(os.environ.get("FAKE_CHECKED", "8")), "fixed_bytes": 8 << 20,
                   "output_hash": "badbadbadbadbad0" if odd else "0123456789abcdef", "device": "a GPU",
                   "driver": "580", "clocks": 1980, "commit": "abc", "date": "today"}


if command == "info":
    gpus = int(os.environ.get("FAKE_GPUS", "2"))
    if gpus == 0:
        sys.exit("ep-bench: kUnsupported: no CUDA-capable device is detected")
    print("gpus (driver 580, runtime 13.0)")
    for gpu in range(gpus):
        print(f"  gpu {gpu}          a GPU, compute 9.0, 132 SMs, 143,771 MiB")
    sys.exit(0)
if command == os.environ.get("FAKE_FAILS"):
    sys.exit("ep-bench: kPeerTimeout: dispatch: rank 1 did not come")
if option("--json"):
    with open(option("--json"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines())
print("8 rows checked, 0 wrong")
'''

SKIPPING_TEST = "#!/bin/sh\nprintf '%s\\n' 'a_test.cc:3: Skipped' 'needs 8 GPUs' '[  SKIPPED ] A.B (0 ms)'\n"


class GpuScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("ep-bench", FAKE)

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    def run_script(self, script, *arguments, option=None, **faults):
        options = [option] if option else []
        return subprocess.run([str(SCRIPTS / script), *options, str(self.folder), *arguments], capture_output=True, text=True,
                              check=False, env={**os.environ, **faults})

    def test_check_passes_where_all_bits_agree(self):
        done = self.run_script("gpu_check.sh")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("dispatch --ranks 2: \"output_hash\":\"0123456789abcdef\" for SMs 1,2,3,5,7,12,13,16,24,31,64,132",
                      done.stdout)
        self.assertIn("0 failed", done.stdout)

    def test_check_fails_on_other_bits_of_one_budget(self):
        done = self.run_script("gpu_check.sh", FAKE_ODD_SMS="31")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAIL  dispatch --ranks 2: other bits", done.stdout)

    def test_check_fails_if_an_operation_fails(self):
        done = self.run_script("gpu_check.sh", FAKE_FAILS="sweep")
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank 1 did not come", done.stdout)

    def test_check_reports_failed_and_skipped_tests(self):
        self.write("tests/gpu/a_test", SKIPPING_TEST)
        self.write("tests/fault/c_test", "#!/bin/sh\ntest \"$EP_TEST_SCALE\" = 0.25\n")
        self.write("tests/moe/b_test", "#!/bin/sh\ntest \"$EP_TEST_BACKEND\" != cuda\n")
        done = self.run_script("gpu_check.sh")
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs 8 GPUs", done.stdout)
        self.assertIn("1 tests skipped", done.stdout)
        self.assertIn("failed: b_test (EP_TEST_BACKEND=cuda)", done.stdout)

    def test_soak_reports_rounds_and_failures(self):
        done = self.run_script("gpu_check.sh", option="--soak")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("soak --ranks 2: 8 rows checked, 0 wrong", done.stdout)
        done = self.run_script("gpu_check.sh", option="--soak", FAKE_FAILS="soak")
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank 1 did not come", done.stdout)

    def sanitize(self, tool):
        self.write("bin/compute-sanitizer", tool)
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return self.run_script("gpu_check.sh", option="--sanitize", PATH=path)

    def test_sanitizers_run_two_ranks_and_show_what_they_find(self):
        done = self.sanitize("#!/bin/sh\necho \"========= ERROR SUMMARY: 0 errors\"\n")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for tool in ("memcheck", "racecheck", "synccheck"):
            self.assertRegex(done.stdout, f"ok    {tool}: soak .*: +2 ========= ERROR SUMMARY: 0 errors")
        done = self.sanitize("#!/bin/sh\necho \"Invalid write of rank $RANK\"\nexit 99\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Invalid write of rank 1", done.stdout)
        done = self.sanitize("#!/bin/sh\necho Error: Device not supported\nexit 1\n")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("SKIP  memcheck", done.stdout)

    def test_an_option_that_there_is_not_is_an_error(self):
        self.assertEqual(self.run_script("gpu_check.sh", option="--what").returncode, 2)

    def test_both_say_why_they_skip_without_a_gpu(self):
        for script in ("gpu_check.sh", "gpu_bench.sh"):
            done = self.run_script(script, FAKE_GPUS="0")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("SKIP everything: ep-bench: kUnsupported: no CUDA-capable device", done.stdout)
        self.assertIn("needs 2 GPUs, found 1", self.run_script("gpu_bench.sh", FAKE_GPUS="1").stdout)

    def test_an_absent_program_is_an_error(self):
        (self.folder / "ep-bench").unlink()
        self.assertEqual(self.run_script("gpu_check.sh").returncode, 2)

    def bench(self, **faults):
        results = self.folder / "results.jsonl"
        results.touch()
        done = self.run_script("gpu_bench.sh", str(results), **faults)
        return done, [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]

    def test_bench_appends_every_line_and_judges_it(self):
        done, lines = self.bench(FAKE_US="90")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sum(line["op"] == "p2p" for line in lines), 3)
        measured = [line for line in lines if line["op"] != "p2p"]
        self.assertTrue(all(line["fraction_of_ceiling"] == 0.93 for line in measured), "ceilings are passed on")
        modes = {(line["op"], line["mode"], line["sms"]) for line in measured}
        for mode in ("graph", "eager"):
            for sms in (8, 10, 12, 14, 16, 24, 32, 64, 132):
                self.assertIn(("dispatch", mode, sms), modes)
            for sms in (6, 8, 10, 12, 16, 24, 132):
                self.assertIn(("combine", mode, sms), modes)
        for op in ("dispatch", "combine"):
            self.assertEqual({line["sms"] for line in measured if line["op"] == op and line["layout"] == "expert_major"},
                             {16, 64, 132})
        self.assertEqual({line["tokens"] for line in measured}, {128, 512, 1024, 4096})
        self.assertIn("goal", done.stdout)
        self.assertNotIn("MISSED", done.stdout)
        self.assertNotIn("WARNING", done.stdout)
        self.bench()
        self.assertEqual(len(self.bench()[1]), 3 * len(lines), "lines are appended")

    def test_bench_warns_of_lines_that_are_not_checked(self):
        done, _ = self.bench(FAKE_CHECKED="0")
        self.assertIn("WARNING: not checked: combine bf16 flat outside, graph, 16 SMs", done.stdout)

    def test_bench_stops_when_the_time_is_up(self):
        done, lines = self.bench(EP_BENCH_SECONDS="0")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(lines, [])
        self.assertIn("failed: ceilings: not run, the time is up", done.stdout)

    def test_bench_names_missed_bars(self):
        done, _ = self.bench(FAKE_US="500")
        self.assertIn("MISSED", done.stdout)

    def test_bench_goes_on_after_a_failure_and_reports_it(self):
        done, lines = self.bench(FAKE_FAILS="p2p")
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: ceilings", done.stdout)
        self.assertTrue(lines)
        self.assertTrue(all(line["fraction_of_ceiling"] is None for line in lines))


class GpuTableTest(unittest.TestCase):
    def test_an_empty_run_is_an_error(self):
        done = subprocess.run([sys.executable, str(SCRIPTS / "gpu_table.py"), "/dev/null"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no operation was measured", done.stderr)


if __name__ == "__main__":
    unittest.main()
