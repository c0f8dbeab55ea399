#!/usr/bin/env python3
"""Times upkeep: 2,000 small files put together, beside delta-rs, and a large table clustered by customer.

    cargo build --release --locked
    python3 -m venv .bench && .bench/bin/pip install deltalake==1.6.6 pyarrow numpy
    .bench/bin/python tests/bench/optimize.py [--files 2000] [--file-rows 5000] [--rows 10000000] [--runs 3]
                                              [--programs target/release] [--keep DIR]

Each figure is a whole process from its start to its exit, the median of some runs, with the most memory that it held
(the Python of delta-rs has some 100 MB before it begins); every run begins with a fresh copy of the table. Then the large
table: how many files may hold one customer by their statistics, and the time of a query for it, before `optimize
--zorder-by customer_id` and after. Absolute figures belong to the machine; the ratio is what to look at.
"""
import argparse
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
LARGE_FILES = 20
CUSTOMER = "CUST123456"
SPEC = """
name: bench
storage: ./lakehouse
landing: ./landing
bronze:
  nothing: {path: nothing/, format: csv}
"""
PEER = """
import sys
from deltalake import DeltaTable
table = DeltaTable(sys.argv[1])
table.optimize.z_order(sys.argv[2:]) if sys.argv[2:] else table.optimize.compact()
"""


def run(command, folder):
    """Seconds, peak MB and output of a process."""
    with tempfile.TemporaryFile("w+") as output:
        started = time.monotonic()
        child = subprocess.Popen([str(part) for part in command], cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - started
        output.seek(0)
        text = output.read()
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{command} failed\n{text}")
    return seconds, usage.ru_maxrss / 1024, text


def table(folder, name, parts):
    """A Delta table of Parquet files with statistics, its log written by hand in one commit."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    place = folder / "lakehouse" / "gold" / name
    (place / "_delta_log").mkdir(parents=True)
    adds, schema = [], None
    for number, part in enumerate(parts):
        file = f"part-{number:05}.parquet"
        pq.write_table(part, place / file)
        schema = part.schema
        bounds = {key: pc.min_max(part[key]).as_py() for key in ["order_id", "customer_id"]}
        stats = {"numRecords": part.num_rows, "minValues": {key: value["min"] for key, value in bounds.items()},
                 "maxValues": {key: value["max"] for key, value in bounds.items()},
                 "nullCount": {key: 0 for key in bounds}}
        adds.append({"add": {"path": file, "partitionValues": {}, "size": (place / file).stat().st_size,
                             "modificationTime": 1_700_000_000_000 + number, "dataChange": True,
                             "stats": json.dumps(stats)}})
    names = {"int64": "long", "string": "string", "date32[day]": "date", "decimal128(18, 2)": "decimal(18,2)",
             "timestamp[us, tz=UTC]": "timestamp"}
    fields = [{"name": field.name, "type": names[str(field.type)], "nullable": True, "metadata": {}} for field in schema]
    lines = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
             {"metaData": {"id": name, "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                           "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": {},
                           "createdTime": 1_700_000_000_000}}, *adds,
             {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE", "operationParameters": {}}}]
    (place / "_delta_log" / f"{0:020}.json").write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def make(folder, files, file_rows, rows):
    import numpy as np
    (folder / "landing").mkdir()
    (folder / "pipelines.yaml").write_text(SPEC)
    dice = np.random.default_rng(7)
    small = (orders(dice, np.arange(n * file_rows, (n + 1) * file_rows), files * file_rows, "2026-05-01") for n in range(files))
    table(folder, "small", small)
    edges = [n * rows // LARGE_FILES for n in range(LARGE_FILES + 1)]
    table(folder, "large", (orders(dice, np.arange(a, b), rows, "2026-05-01") for a, b in zip(edges, edges[1:])))


def measured(name, command, folder, times, fresh):
    """Runs a command on fresh copies of a table; prints its figures."""
    lake = folder / "lakehouse" / "gold"
    seconds, peaks = [], []
    for _ in range(times):
        shutil.rmtree(lake / fresh, ignore_errors=True)
        shutil.copytree(folder / "kept" / fresh, lake / fresh)
        taken, peak, _ = run(command, folder)
        seconds.append(taken)
        peaks.append(peak)
    print(f"{name:34} {statistics.median(seconds):7.2f} s  {max(peaks):6.0f} MB")
    return statistics.median(seconds)


def one_customer(program, folder, times):
    """Files that may hold one customer, all files, and the seconds of a query for it."""
    _, _, text = run([program, "table", "files", "gold.large", "--output", "json"], folder)
    files = json.loads(text)
    bounds = [(file["columns"]["customer_id"]["min"], file["columns"]["customer_id"]["max"]) for file in files]
    may = [1 for least, most in bounds if least <= CUSTOMER <= most]
    query = f"SELECT count(*), sum(amount) FROM gold.large WHERE customer_id = '{CUSTOMER}'"
    seconds = statistics.median(run([program, "query", query], folder)[0] for _ in range(times))
    return len(may), len(files), seconds


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--files", type=int, default=2_000)
    asked.add_argument("--file-rows", type=int, default=5_000)
    asked.add_argument("--rows", type=int, default=10_000_000)
    asked.add_argument("--runs", type=int, default=3)
    asked.add_argument("--programs", type=Path, default=ROOT / "target" / "release")
    asked.add_argument("--keep", type=Path)
    asked = asked.parse_args()
    program = (asked.programs / "orchestrator").resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        make(folder, asked.files, asked.file_rows, asked.rows)
        shutil.move(folder / "lakehouse" / "gold", folder / "kept")
        lake = folder / "lakehouse" / "gold"
        peer = [sys.executable, "-c", PEER]
        print(f"{asked.files:,} files of {asked.file_rows:,} rows become few:")
        ours = measured("orchestrator table optimize", [program, "table", "optimize", "gold.small"], folder, asked.runs, "small")
        theirs = measured("delta-rs optimize.compact", [*peer, lake / "small"], folder, asked.runs, "small")
        print(f"{'':34} {theirs / ours:7.1f} times as fast")
        print(f"\n{asked.rows:,} rows clustered by customer_id:")
        measured("delta-rs optimize.z_order", [*peer, lake / "large", "customer_id"], folder, 1, "large")
        shutil.rmtree(lake / "large")
        shutil.copytree(folder / "kept" / "large", lake / "large")
        before = one_customer(program, folder, asked.runs)
        cluster = [program, "table", "optimize", "gold.large", "--zorder-by", "customer_id", "--target-file-size", "16MiB"]
        measured("orchestrator optimize --zorder-by", cluster, folder, 1, "large")
        after = one_customer(program, folder, asked.runs)
        for when, (may, all_files, seconds) in [("before", before), ("after", after)]:
            print(f"one customer {when:7} {may:4} of {all_files:4} files  {seconds:6.3f} s")


if __name__ == "__main__":
    main()
