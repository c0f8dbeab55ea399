#!/usr/bin/env python3
"""Runs the worked example's pipeline on generated data and prints rows per second and layer, and the peak memory.

    cargo build --release --locked
    tests/bench/pipeline.py [--rows 1000000] [--seed 42] [--days 30] [--programs target/release] [--keep DIR]

Two runs: a first load of everything, and a second one with nothing new. Absolute figures belong to the machine; to
compare, measure both sides in one session. Needs Python only.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def measured(command, folder):
    """Runs a command; its output, seconds, and the peak of its resident memory in MB."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            log.seek(0)
            sys.exit(f"{' '.join(map(str, command))} ended with {child.returncode}\n{log.read()}")
    return output, time.monotonic() - started, usage.ru_maxrss / 1024


def report(output):
    """One line per task and per layer: rows read, seconds, rows per second. Tasks run side by side."""
    print(f"  {'task':32} {'rows':>12} {'seconds':>9} {'rows/s':>12}")
    layers = {}
    for task in json.loads(output)["tasks"]:
        line(task["task"], task["read"], task["seconds"])
        layer = layers.setdefault(task["task"].split(".")[0], [0, 0.0])
        layer[0] += task["read"]
        layer[1] += task["seconds"]
    for layer, (rows, seconds) in layers.items():
        line(f"{layer}, sum of its tasks", rows, seconds)


def line(name, rows, seconds):
    print(f"  {name:32} {rows:>12,} {seconds:>9.2f} {rows / max(seconds, 1e-3):>12,.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "release")
    parser.add_argument("--keep", type=Path, help="work in this new folder and leave it")
    options = parser.parse_args()

    orchestrator = (options.programs / "orchestrator").resolve()
    if not orchestrator.is_file():
        sys.exit(f"`{orchestrator}` is not built: cargo build --release --locked")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="lake-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy(ROOT / "pipelines.yaml", folder)
        sample = [orchestrator, "sample", "landing", "--rows", str(options.rows), "--seed", str(options.seed), "--days", str(options.days)]
        _, seconds, peak_mb = measured(sample, folder)
        size = sum(path.stat().st_size for path in (folder / "landing").rglob("*") if path.is_file())
        print(f"sample: {options.rows:,} events, {size / 1e6:.0f} MB, made in {seconds:.2f} s, peak memory {peak_mb:.0f} MB")
        # Files that are older than `settle` are taken at once.
        for path in (folder / "landing").rglob("*"):
            os.utime(path, (0, 0))
        run = [orchestrator, "run", "--output", "json"]
        output, seconds, peak_mb = measured(run, folder)
        print(f"first run: {seconds:.2f} s, peak memory {peak_mb:.0f} MB")
        report(output)
        _, seconds, peak_mb = measured(run, folder)
        print(f"second run, nothing new: {seconds:.2f} s, peak memory {peak_mb:.0f} MB")
    finally:
        if not options.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
