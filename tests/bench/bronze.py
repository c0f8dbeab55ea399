#!/usr/bin/env python3
"""Times bringing one large file into a bronze table, beside DuckDB and Polars writing the same file to Parquet.

    cargo build --release --locked
    python3 -m venv .bench && .bench/bin/pip install duckdb polars
    .bench/bin/python tests/bench/bronze.py [--format csv] [--rows 10000000] [--runs 5] [--file FILE]
                                            [--programs target/release] [--without-peers] [--keep DIR]

Ours is a whole process, from its start to its exit: it finds the file, plans it in the ledger, and commits to a Delta
table with seven more columns. The peers are timed from inside, without their start and imports, and write the columns
of the file alone. All columns of CSV and JSON stay text on both sides of a CSV; for JSON the peers infer types. Runs
alternate, medians are compared. Absolute figures belong to the machine; the ratio is what to look at.
"""
import argparse
import datetime
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PEER = """
import json, resource, sys, time
peer, form, source, target = sys.argv[1:5]
module = __import__(peer)

def duckdb():
    module.execute("SET enable_progress_bar = false")
    reader = {"csv": f"read_csv('{source}', all_varchar=true)", "json": f"read_json('{source}')",
              "parquet": f"read_parquet('{source}')"}[form]
    module.execute(f"COPY (SELECT * FROM {reader}) TO '{target}' (FORMAT parquet, COMPRESSION snappy)")

def polars():
    frame = {"csv": lambda: module.scan_csv(source, infer_schema=False), "json": lambda: module.scan_ndjson(source),
             "parquet": lambda: module.scan_parquet(source)}[form]()
    frame.sink_parquet(target, compression="snappy")

started = time.perf_counter()
{"duckdb": duckdb, "polars": polars}[peer]()
seconds = time.perf_counter() - started
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""


def orders(rows):
    """Rows of a table of orders, as pairs of name and text."""
    dice = random.Random(7)
    start = datetime.datetime(2026, 5, 1)
    statuses = ["Processing", "Shipped", "Delivered", "Cancelled"]
    for row in range(rows):
        moment = start + datetime.timedelta(microseconds=dice.randrange(3_600_000_000))
        day = datetime.date(2025, 1, 1) + datetime.timedelta(days=row * 500 // rows)
        cents = dice.randrange(100, 10_000_000)
        yield (row, f"CUST{dice.randrange(200_000)}", day, dice.choice(statuses), f"{cents // 100}.{cents % 100:02}",
               f"{moment.isoformat(' ', 'microseconds')}Z", "I")


NAMES = ["order_id", "customer_id", "order_date", "status", "amount", "updated_at", "op"]


def write_csv(path, rows):
    with open(path, "w") as file:
        file.write(",".join(f'"{name}"' for name in NAMES) + "\n")
        for order, customer, day, status, amount, updated, op in orders(rows):
            file.write(f'{order},"{customer}",{day},"{status}",{amount},{updated},"{op}"\n')


def write_json(path, rows):
    with open(path, "w") as file:
        for order, customer, day, status, amount, updated, op in orders(rows):
            file.write(f'{{"order_id":{order},"customer_id":"{customer}","order_date":"{day}","status":"{status}",'
                       f'"amount":{amount},"updated_at":"{updated}","op":"{op}"}}\n')


def ours(program, folder):
    """Seconds, CPU seconds and peak memory in MB of one run over an empty lake, and the rows it appended."""
    shutil.rmtree(folder / "lakehouse", ignore_errors=True)
    started = time.monotonic()
    child = subprocess.Popen([program, "run", "--output", "json"], cwd=folder, stdout=subprocess.PIPE, text=True)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - started
    if child.returncode != 0:
        sys.exit(f"bronze ended with {child.returncode}\n{output}")
    rows = json.loads(output)["tasks"][0]["appended"]
    return [seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024], rows


def peer(name, form, source, folder):
    target = folder / "peer.parquet"
    done = subprocess.run([sys.executable, "-c", PEER, name, form, source, target], stdout=subprocess.PIPE, check=True)
    target.unlink()
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=["csv", "json", "parquet"], default="csv")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--file", type=Path, help="this file instead of generated orders")
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "release")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--keep", type=Path, help="work in this new folder and leave it")
    options = parser.parse_args()

    program = (options.programs / "bronze").resolve()
    if not program.is_file():
        sys.exit(f"`{program}` is not built: cargo build --release --locked")
    if options.format == "parquet" and not options.file:
        sys.exit("name the Parquet file with --file")
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="bronze-bench-"))).resolve()
    try:
        source = folder / "landing" / "orders" / f"orders.{options.format}"
        source.parent.mkdir(parents=True)
        if options.file:
            source.symlink_to(options.file.resolve())
        else:
            {"csv": write_csv, "json": write_json}[options.format](source, options.rows)
            os.utime(source, (0, 0))
        (folder / "pipelines.yaml").write_text(
            "name: bench\nstorage: ./lakehouse\nlanding: ./landing\n"
            f"bronze:\n  orders: {{path: orders/, format: {options.format}}}\n")
        names = [] if options.without_peers else ["duckdb", "polars"]
        taken, rows = {name: [] for name in ["bronze", *names]}, 0
        for _ in range(options.runs):
            figures, rows = ours(program, folder)
            taken["bronze"].append(figures)
            for name in names:
                taken[name].append(peer(name, options.format, source, folder))
        size = source.stat().st_size
        print(f"{options.format}, {rows:,} rows, {size / 1e6:,.0f} MB, median of {options.runs} runs")
        print(f"  {'':8} {'seconds':>8} {'MB/s':>8} {'cpu s':>8} {'peak MB':>8}")
        medians = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in taken.items()}
        for name, (seconds, cpu, peak_mb) in medians.items():
            print(f"  {name:8} {seconds:>8.2f} {size / 1e6 / seconds:>8.0f} {cpu:>8.2f} {peak_mb:>8.0f}")
        if names:
            best = min(names, key=lambda name: medians[name][0])
            print(f"  bronze takes {medians['bronze'][0] / medians[best][0]:.2f} times as long as {best}, the faster peer")
    finally:
        if not options.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
