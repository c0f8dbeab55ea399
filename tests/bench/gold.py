#!/usr/bin/env python3
"""Times models and snapshots over a large silver table: as a whole, and after a change that touches little of it.

    cargo build --release --locked
    python3 -m venv .bench && .bench/bin/pip install polars duckdb pyarrow numpy
    .bench/bin/python tests/bench/gold.py [--rows 10000000] [--changes 200000] [--runs 5] [--programs target/release]
                                          [--keep DIR]

Two tables, one clustered by `order_date` (500 days), one by `customer_id` (200,000), in files of 16 MiB. A change touches
1 % of the days of the one and as many neighbouring customers of the other; a last one touches everything.
Each figure is a whole process of `gold`, from its start to its exit, medians of some runs, with the bytes that it
read; DuckDB and Polars compute the same query over the same data files, timed from inside. Every run begins with a fresh
copy of the gold tables. Absolute figures belong to the machine; the ratio is what to look at.
"""
import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from upsert import orders  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FILES = 20
DAYS = 500
TOUCHED_DAYS = 5
DAILY = "SELECT order_date, count(*) AS orders, sum(amount) AS revenue FROM {} WHERE status <> 'Cancelled' GROUP BY order_date"
CUSTOMERS = "SELECT customer_id, count(*) AS orders, sum(amount) AS revenue FROM {} GROUP BY customer_id"
CUSTOMERS_ALL = 200_000
TOUCHED_CUSTOMERS = 2_000
SPEC = """
name: bench
storage: ./lakehouse
landing: ./landing
timezone: {zone}
bronze:
  days_files: {{path: days/, format: parquet, settle: 0s}}
  customers_files: {{path: customers/, format: parquet, settle: 0s}}
silver:
  orders: {{source: days_files, zorder_by: [order_date], {options}}}
  customer_orders: {{source: customers_files, zorder_by: [customer_id], {options}}}
gold:
  daily_sales: {{query: "{daily}"}}
  customer_sales: {{query: "{customers}"}}
  orders_copies: {{snapshot_of: silver.orders, strategy: full}}
  orders_changes: {{snapshot_of: silver.orders, strategy: changed_only}}
"""

OPTIONS = """cdc: plain, keys: [order_id], sequence_by: [updated_at], deletion_vectors: true, columns: {order_id: bigint not null,
    customer_id: string, order_date: date, status: string, amount: 'decimal(18,2)', updated_at: timestamp}"""


def spec(zone):
    return SPEC.format(zone=zone, options=OPTIONS, daily=DAILY.format("silver.orders"),
                       customers=CUSTOMERS.format("silver.customer_orders"))


def run(programs, folder, program, *args):
    """Seconds, peak MB and bytes read of a whole process, and what it printed."""
    script = '"$@"; code=$?; grep rchar /proc/$$/io >&2; exit $code'
    command = ["sh", "-c", script, "sh", str(programs / program), *args, "--output", "json"]
    started = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = child.communicate()
    seconds = time.monotonic() - started
    if child.returncode != 0:
        sys.exit(f"{program} {' '.join(args)} ended with {child.returncode}\n{output}\n{errors}")
    read = int(next(line for line in reversed(errors.splitlines()) if line.startswith("rchar")).split()[1])
    return seconds, read, output


def land(folder, name, table):
    import pyarrow.parquet as pq
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)


def make(folder, programs, rows, changes):
    """A lake with the tables and all gold tables, and a change of each that gold has not seen; its size."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute  # noqa: F401
    dice = np.random.default_rng(7)
    days, customers = folder / "landing" / "days", folder / "landing" / "customers"
    days.mkdir(parents=True)
    # The day before and the day after are days of zones at both ends of the world.
    (folder / "pipelines.yaml").write_text(spec("Etc/GMT+12"))
    names = np.sort(np.char.add("CUST", np.arange(CUSTOMERS_ALL).astype(str)))
    begin = int(dice.integers(0, CUSTOMERS_ALL - TOUCHED_CUSTOMERS))
    chosen = pa.array(names[begin:begin + TOUCHED_CUSTOMERS])
    touched = []
    for number in range(FILES):
        ids = np.arange(number * rows // FILES, (number + 1) * rows // FILES)
        table = orders(dice, ids, rows, "2026-05-01")
        touched.append(table.filter(pa.compute.is_in(table["customer_id"], chosen)).select(["order_id", "customer_id"]))
        land(days, f"1-{number:02}.parquet", table)
        land(customers, f"1-{number:02}.parquet", table)
    subprocess.run([programs / "orchestrator", "run"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    optimize = ["table", "optimize", "silver.orders", "silver.customer_orders", "--target-file-size", "16MiB"]
    subprocess.run([programs / "orchestrator", *optimize], cwd=folder, check=True)
    first = int(dice.integers(0, DAYS - TOUCHED_DAYS)) * rows // DAYS
    of_days = np.unique(dice.integers(first, first + TOUCHED_DAYS * rows // DAYS, changes))
    land(days, "2.parquet", orders(dice, of_days, rows, "2026-05-02"))
    touched = pa.concat_tables(touched)
    changed = orders(dice, touched["order_id"].to_numpy(), rows, "2026-05-02")
    place = changed.schema.get_field_index("customer_id")
    land(customers, "2.parquet", changed.set_column(place, "customer_id", touched["customer_id"]))
    for program in ["bronze", "silver"]:
        subprocess.run([programs / program, "run"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (folder / "pipelines.yaml").write_text(spec("Etc/GMT-14"))
    return len(of_days), len(changed)


def touch_everything(folder, programs, rows, changes):
    """Changes rows of every day."""
    import numpy as np
    dice = np.random.default_rng(8)
    ids = np.sort(dice.choice(rows, changes, replace=False))
    land(folder / "landing" / "days", "3.parquet", orders(dice, ids, rows, "2026-05-03"))
    for program in ["bronze", "silver"]:
        subprocess.run([programs / program, "run"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def peers(folder):
    """The seconds that DuckDB and Polars take for the query over all rows of the first load."""
    import duckdb
    import polars as pl
    files = sorted(glob.glob(str(folder / "landing" / "days" / "1-*.parquet")))

    def by_duckdb(query):
        return lambda: duckdb.sql(query.format(f"read_parquet({files!r})")).fetchall()

    def by_polars(key, filtered):
        rows = pl.scan_parquet(files)
        rows = rows.filter(pl.col("status") != "Cancelled") if filtered else rows
        query = rows.group_by(key).agg(orders=pl.len(), revenue=pl.col("amount").sum())
        return query.collect
    work = {
        "daily_sales": [by_duckdb(DAILY), by_polars("order_date", True)],
        "customer_sales": [by_duckdb(CUSTOMERS), by_polars("customer_id", False)],
    }

    def seconds(query):
        taken = []
        for _ in range(5):
            started = time.perf_counter()
            query()
            taken.append(time.perf_counter() - started)
        return statistics.median(taken)
    return {name: [seconds(query) for query in queries] for name, queries in work.items()}


def size(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "release")
    parser.add_argument("--keep", type=Path, help="make the lake in this folder, or use the one that is there")
    options = parser.parse_args()
    programs, folder = options.programs.resolve(), options.keep or Path(tempfile.mkdtemp(prefix="gold-bench-"))
    if not (folder / "pipelines.yaml").exists():
        by_day, by_customer = make(folder, programs, options.rows, options.changes)
        print(f"{options.rows:,} rows, {by_day:,} of them changed on {TOUCHED_DAYS} of {DAYS} days, and in the other table "
              f"{by_customer:,} of {TOUCHED_CUSTOMERS:,} of {CUSTOMERS_ALL:,} customers")
    gold, before = folder / "lakehouse" / "gold", folder / "gold-before"
    if not before.exists():
        shutil.copytree(gold, before)

    def medians(*args):
        taken = []
        for _ in range(options.runs):
            shutil.rmtree(gold)
            shutil.copytree(before, gold)
            taken.append(run(programs, folder, "gold", *args)[:2])
        return [statistics.median(column) for column in zip(*taken)]

    print(f"\n  {'':34} {'seconds':>8} {'MB read':>9}")
    told = {}
    for table in ["daily_sales", "customer_sales"]:
        for name, args in [("whole", ["rebuild", table]), ("after the change", ["run", "--select", table])]:
            told[table, name] = medians(*args)
            seconds, read = told[table, name]
            print(f"  {table + ', ' + name:34} {seconds:8.3f} {read / 1e6:9.1f}")
        whole, change = told[table, "whole"], told[table, "after the change"]
        print(f"  {'ratio':34} {change[0] / whole[0]:8.2f} {change[1] / whole[1]:9.3f}")
    for table, (duck, polars) in peers(folder).items():
        best = min(duck, polars)
        print(f"  {table}: DuckDB {duck:.3f} s, Polars {polars:.3f} s, ours as a whole process "
              f"{told[table, 'whole'][0] / best:.2f} of the faster")
    for table in ["orders_copies", "orders_changes"]:
        seconds, read = medians("run", "--select", table)
        more = size(gold / table) - size(before / table)
        told[table] = (seconds, more)
        print(f"  {table + ', the next day':34} {seconds:8.3f} {read / 1e6:9.1f}   {more / 1e6:,.1f} MB written")
    copy, changed = told["orders_copies"], told["orders_changes"]
    print(f"  {'ratio':34} {changed[0] / copy[0]:8.2f} {'':9}   {changed[1] / copy[1]:.3f} of the bytes")
    if not (folder / "landing" / "days" / "3.parquet").exists():
        touch_everything(folder, programs, options.rows, options.changes)
        print(f"\n  {options.changes:,} more rows changed, on all days")
        both = [medians("rebuild", "daily_sales"), medians("run", "--select", "daily_sales")]
        for name, (seconds, read) in zip(["whole", "after the change"], both):
            print(f"  {'daily_sales, ' + name:34} {seconds:8.3f} {read / 1e6:9.1f}")
        print(f"  {'ratio':34} {both[1][0] / both[0][0]:8.2f} {both[1][1] / both[0][1]:9.3f}")
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
