#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws JSON lines of ep-bench (standard input). Of `sweep`: time and GB/s over SMs and over tokens. Of `model`:
bytes and time over ranks."""

import collections
import json
import sys

MISSING = "plot_bench.py: matplotlib is missing (Debian and Ubuntu: apt install python3-matplotlib)"


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


def draw_sweep(pyplot, lines, path):
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8))
    draw_row(axes[0], lines, "sms", "tokens")
    draw_row(axes[1], lines, "tokens", "sms")
    first = lines[0]
    figure.suptitle(f"{first['op']} {first['dtype']} {first['layout']}, {first['ranks']} ranks, "
                    f"hidden {first['hidden']}, top-{first['topk']} of {first['experts']}, {first['mode']}\n"
                    f"{first['device']}, commit {first['commit']}, {first['date']}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


MODEL_PANELS = (
    ("dispatch", "KB per token over the network", lambda line: line["net_row_bytes_per_token"] / 1e3),
    ("dispatch", "MB that the busiest NIC receives", lambda line: line["net_received_bytes_max"] / 1e6),
    ("dispatch", "messages that the busiest NIC sends", lambda line: line["signals_max"]),
    ("dispatch", "dispatch, estimated ms", lambda line: line["estimated_us"] / 1e3),
    ("combine", "combine, estimated ms", lambda line: line["estimated_us"] / 1e3),
)


def draw_model_panel(axis, lines, title, value_of):
    groups = collections.defaultdict(list)
    for line in lines:
        groups[line["routing"], line["dedup"]].append(line)
    for (routing, dedup), group in sorted(groups.items(), reverse=True):
        group.sort(key=lambda line: line["ranks"])
        axis.plot([line["ranks"] for line in group], [value_of(line) for line in group], marker="o", markersize=3,
                  linestyle="-" if dedup == "node" else "--", label=f"{routing}, dedup: {dedup}")
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted({line["ranks"] for line in lines}), sorted({line["ranks"] for line in lines}), fontsize=7)
    axis.set_xlabel("ranks")
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.3)


def draw_model(pyplot, lines, path):
    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6.5))
    for axis, (what, title, value_of) in zip(axes.flat, MODEL_PANELS):
        draw_model_panel(axis, [line for line in lines if line["what"] == what], title, value_of)
    for axis in axes.flat[2:len(MODEL_PANELS)]:
        axis.set_yscale("log", nonpositive="mask")
    for axis in axes.flat[:2]:
        axis.set_ylim(bottom=0)
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="center")
    first = lines[0]
    figure.suptitle(f"{first['tokens']} tokens per rank, hidden {first['hidden']}, top-{first['topk']}, {first['dtype']}, "
                    f"nodes of {first['lsa_size']}, chunks of {first['chunk_tokens']} tokens; NIC {first['net_gbps']:g} "
                    f"GB/s, {first['message_us']:g} us per message", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot_bench.py FILE.png < lines.jsonl; or plot_bench.py --check")
    pyplot = load_pyplot()
    if sys.argv[1] == "--check":
        return
    lines = [json.loads(line) for line in sys.stdin if line.strip()]
    if not lines:
        sys.exit("plot_bench.py: no lines")
    draw = draw_model if lines[0]["op"] == "model" else draw_sweep
    draw(pyplot, lines, sys.argv[1])


if __name__ == "__main__":
    main()
