#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the JSON lines of `ep-bench sweep` (standard input): time and GB/s over SMs and over tokens."""

import collections
import json
import sys

MISSING = "plot_sweep.py: matplotlib is missing (Debian and Ubuntu: apt install python3-matplotlib)"


def load_pyplot():
    try:
        import matplotlib
    except ImportError:
        sys.exit(MISSING)
    matplotlib.use("Agg")
    from matplotlib import pyplot
    return pyplot


def rate_of(line):
    """What crosses between GPUs; on the host, what crosses between ranks."""
    return line["moved_gbps"] if line["physical_gbps"] is None else line["physical_gbps"]


def curves(lines, along, label):
    """{value of `label`: the lines in order of `along`}."""
    groups = collections.defaultdict(list)
    for line in lines:
        groups[line[label]].append(line)
    return {key: sorted(group, key=lambda line: line[along]) for key, group in sorted(groups.items())}


def draw_row(axes, lines, along, label):
    for key, group in curves(lines, along, label).items():
        positions = [line[along] for line in group]
        name = f"{label} = {key}"
        axes[0].plot(positions, [line["median_us"] for line in group], marker="o", label=name)
        axes[0].fill_between(positions, [line["p10_us"] for line in group],
                             [line["p90_us"] for line in group], alpha=0.2)
        axes[1].plot(positions, [rate_of(line) for line in group], marker="o", label=name)
    for axis, title in zip(axes, ("us (median, p10 to p90)", "GB/s per rank")):
        axis.set_xscale("log", base=2)
        ticks = sorted({line[along] for line in lines})
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.set_xlabel(along)
        axis.set_ylabel(title)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)


def draw(pyplot, lines, path):
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8))
    draw_row(axes[0], lines, "sms", "tokens")
    draw_row(axes[1], lines, "tokens", "sms")
    first = lines[0]
    figure.suptitle(f"{first['op']} {first['dtype']} {first['layout']}, {first['ranks']} ranks, "
                    f"hidden {first['hidden']}, top-{first['topk']} of {first['experts']}, {first['mode']}\n"
                    f"{first['device']}, commit {first['commit']}, {first['date']}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot_sweep.py FILE.png < lines.jsonl; or plot_sweep.py --check")
    pyplot = load_pyplot()
    if sys.argv[1] == "--check":
        return
    lines = [json.loads(line) for line in sys.stdin if line.strip()]
    if not lines:
        sys.exit("plot_sweep.py: no lines")
    draw(pyplot, lines, sys.argv[1])


if __name__ == "__main__":
    main()
