#!/usr/bin/env python3
"""Times an upsert into a table of many rows, beside what a user would take instead, and prints the ratios.

    cargo build --release --locked -p lake -p orchestrator --example upsert
    python3 -m venv .bench                                     # Python 3.12 or newer
    .bench/bin/pip install deltalake==1.6.6 deltalite==0.1.15 polars duckdb pyarrow pysail==0.7.2 \
        pyspark-client==4.1.1 numpy
    .bench/bin/python tests/bench/upsert.py [--rows 10000000] [--changes 200000] [--runs 5] [--cases uniform,recent,append]
                                            [--peers deltars,deltars-streamed,deltalite,sail,duckdb,polars]
                                            [--programs target/release] [--keep DIR]

Cases: `uniform` hits every file, `recent` the newest, `append` none. Ours is a whole process, from its start to its exit,
in three ways: `vectors` (mode auto on a table with deletion vectors), `copy` (every touched file written anew), and
`auto` on a table without vectors. The peers are timed from inside, without their start and imports. DuckDB and Polars
have no transaction log: they show what rewriting plain Parquet costs. Every run begins with a fresh copy of the table;
runs alternate, medians are compared. Absolute figures belong to the machine; the ratio is what to look at.
"""
import argparse
import glob
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATUS = ["Processing", "Shipped", "Delivered", "Cancelled"]
FILES = 20
PEERS = ["deltars", "deltars-streamed", "deltalite", "sail", "duckdb", "polars"]
WITH_LOG = {"deltars", "deltars-streamed", "deltalite", "sail"}
OURS = {"vectors": "auto", "copy": "copy_on_write", "auto": "auto"}


def orders(dice, ids, total, start):
    import numpy as np
    import pyarrow as pa
    rows = len(ids)
    day = np.datetime64("2025-01-01") + (ids * 500 // total).astype("timedelta64[D]")
    words = np.zeros((rows, 2), np.int64)
    words[:, 0] = dice.integers(100, 10_000_000, rows)
    amount = pa.Array.from_buffers(pa.decimal128(18, 2), rows, [None, pa.py_buffer(words)])
    moment = np.datetime64(start) + dice.integers(0, 3600 * 10**6, rows).astype("timedelta64[us]")
    return pa.table({
        "order_id": pa.array(ids, pa.int64()),
        "customer_id": pa.array(np.char.add("CUST", dice.integers(0, 200_000, rows).astype(str))),
        "order_date": pa.array(day.astype("datetime64[D]")),
        "status": pa.array(np.array(STATUS)[dice.integers(0, 4, rows)]),
        "amount": amount,
        "updated_at": pa.array(moment, pa.timestamp("us", tz="UTC")),
    })


def make(folder, rows, changes, files):
    """The table, clustered by its key, once plain and once with deletion vectors allowed, and the change sets."""
    import numpy as np
    import pyarrow.parquet as pq
    from deltalake import DeltaTable, write_deltalake
    dice = np.random.default_rng(7)
    for number in range(files):
        ids = np.arange(number * rows // files, (number + 1) * rows // files)
        write_deltalake(str(folder / "plain"), orders(dice, ids, rows, "2026-05-01"), mode="append")
    shutil.copytree(folder / "plain", folder / "vectors")
    DeltaTable(str(folder / "vectors")).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    updates = int(changes * 0.8)
    new = np.arange(rows, rows + changes - updates)
    near = np.unique(rows - 1 - np.minimum(dice.exponential(rows / 200, updates).astype(np.int64), rows - 1))
    sets = {"uniform": np.concatenate([dice.choice(rows, updates, replace=False), new]),
            "recent": np.concatenate([near, new]), "append": new}
    for name, ids in sets.items():
        pq.write_table(orders(dice, ids, rows, "2026-05-02"), folder / f"{name}.parquet")
    return {name: len(ids) for name, ids in sets.items()}


def ours(folder, way, case, program):
    """Seconds, CPU seconds and peak MB of a whole process, and what it says of itself."""
    lake = folder / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    shutil.copytree(folder / ("vectors" if way == "vectors" else "plain"), lake / "silver" / "orders")
    command = [program, lake, "orders", folder / f"{case}.parquet", "order_id", "updated_at", OURS[way]]
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {child.returncode}")
    return [seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024], json.loads(output)


def peer(folder, name, case):
    """The same of a peer, in a process of its own that times itself."""
    target = folder / "target"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "plain", target)
    command = [sys.executable, __file__, "--as-peer", name, "--keep", str(folder), "--cases", case]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def timed(work):
    started, cpu = time.perf_counter(), sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    work()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([time.perf_counter() - started, sum(usage[:2]) - cpu, usage.ru_maxrss / 1024]), flush=True)


def as_peer(folder, name, case):
    target, changes = str(folder / "target"), str(folder / f"{case}.parquet")

    def deltars(streamed):
        merge = DeltaTable(target).merge(pq.read_table(changes), "t.order_id = s.order_id", source_alias="s",
                                         target_alias="t", streamed_exec=streamed)
        merge.when_matched_update_all(predicate="s.updated_at > t.updated_at").when_not_matched_insert_all().execute()

    if name.startswith("deltars"):
        import pyarrow.parquet as pq
        from deltalake import DeltaTable
        timed(lambda: deltars(name == "deltars-streamed"))
    elif name == "deltalite":
        import deltalite
        import pyarrow.parquet as pq
        timed(lambda: deltalite.DeltaLiteTable.open(target).upsert(pq.read_table(changes), ["order_id"]))
    elif name == "duckdb":
        import duckdb
        files = glob.glob(f"{target}/*.parquet")
        timed(lambda: duckdb.execute(
            f"COPY (SELECT * FROM read_parquet({files}) t ANTI JOIN '{changes}' s USING (order_id) "
            f"UNION ALL BY NAME SELECT * FROM '{changes}') TO '{folder}/out.parquet' (FORMAT parquet, COMPRESSION snappy)"))
    elif name == "polars":
        import polars as pl
        new = pl.scan_parquet(changes)
        old = pl.scan_parquet(f"{target}/*.parquet").join(new, on="order_id", how="anti")
        timed(lambda: pl.concat([old, new]).sink_parquet(f"{folder}/out.parquet", compression="snappy"))
    elif name == "sail":
        from pysail.spark import SparkConnectServer
        server = SparkConnectServer()
        server.start(background=True)
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
        spark.sql(f"CREATE TABLE orders USING delta LOCATION '{target}'")
        spark.read.parquet(changes).createOrReplaceTempView("s")
        spark.sql("SELECT count(*) FROM s").collect()
        timed(lambda: spark.sql("MERGE INTO orders t USING s ON t.order_id = s.order_id WHEN MATCHED AND "
                                "s.updated_at > t.updated_at THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *").collect())
        sys.stdout.flush()
        os._exit(0)


def report(case, rows, taken, said):
    medians = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in taken.items()}
    logged = [name for name in medians if name in WITH_LOG]
    best = min(logged, key=lambda name: medians[name][0]) if logged else None
    print(f"{case}: {rows:,} changes")
    print(f"  {'':18} {'seconds':>8} {'cpu s':>8} {'peak MB':>8}   best peer/this")
    for name, (seconds, cpu, peak_mb) in medians.items():
        ratio = f"{medians[best][0] / seconds:>8.2f}" if best else ""
        phases = said.get(name, {}).get("phases", {})
        phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in phases.items())
        print(f"  {name:18} {seconds:>8.3f} {cpu:>8.2f} {peak_mb:>8.0f} {ratio}   {phases}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cases", default="uniform,recent,append")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--ways", default=",".join(OURS))
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "release")
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it; its table is taken when it is there")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="upsert-bench-"))).resolve()
    if options.as_peer:
        return as_peer(folder, options.as_peer, options.cases)
    program = (options.programs / "examples" / "upsert").resolve()
    if not program.is_file():
        sys.exit(f"`{program}` is not built: cargo build --release --locked -p lake -p orchestrator --example upsert")
    try:
        if not (folder / "sizes.json").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "sizes.json").write_text(json.dumps(make(folder, options.rows, options.changes, options.files)))
        sizes = json.loads((folder / "sizes.json").read_text())
        peers = [name for name in options.peers.split(",") if name]
        ways = [name for name in options.ways.split(",") if name]
        for case in options.cases.split(","):
            taken, said = {name: [] for name in [*ways, *peers]}, {}
            for _ in range(options.runs):
                for way in ways:
                    figures, said[way] = ours(folder, way, case, program)
                    taken[way].append(figures)
                for name in peers:
                    taken[name].append(peer(folder, name, case))
            report(case, sizes[case], taken, said)
    finally:
        if not options.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
