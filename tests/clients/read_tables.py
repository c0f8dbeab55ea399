#!/usr/bin/env python3
"""Reads every table of a lake with the Python packages deltalake and polars, and compares with what the program says.

    read_tables.py LAKEHOUSE --orchestrator PATH --spec pipelines.yaml

For each table: rows, values that are not null per column, sums of numbers, total length of texts. The tables that
users query are compared with `orchestrator query`; those below `_state`, which it does not query, are compared between
the two packages. Exit 1 when a figure differs or a layer has no table. Needs requirements.txt beside this file.
"""
import argparse
import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import polars as pl
from deltalake import DeltaTable, QueryBuilder

LAYERS = ("bronze", "silver", "gold", "quarantine")


def figures_sql(columns, table):
    """One row of figures over all columns, in SQL that DataFusion understands on both sides."""
    parts = ['count(*) AS "rows"']
    for name, dtype in columns.items():
        column = '"' + name.replace('"', '""') + '"'
        parts.append(f'count({column}) AS "count {name}"')
        if dtype.is_numeric():
            parts.append(f'sum({column}) AS "sum {name}"')
        elif dtype == pl.String:
            parts.append(f'sum(character_length({column})) AS "length {name}"')
    return f"SELECT {', '.join(parts)} FROM {table}"


def by_polars(path, columns):
    parts = [pl.len().alias("rows")]
    for name, dtype in columns.items():
        parts.append(pl.col(name).count().alias(f"count {name}"))
        if dtype.is_numeric():
            parts.append(pl.col(name).sum().alias(f"sum {name}"))
        elif dtype == pl.String:
            parts.append(pl.col(name).str.len_chars().sum().alias(f"length {name}"))
    return pl.scan_delta(str(path)).select(parts).collect().row(0, named=True)


def by_deltalake(path, columns):
    result = QueryBuilder().register("t", DeltaTable(str(path))).execute(figures_sql(columns, "t"))
    return pl.DataFrame(result).row(0, named=True)


def by_orchestrator(options, table, columns):
    layer, name = table
    sql = figures_sql(columns, f'{layer}."{name}"')
    command = [options.orchestrator, "--spec", options.spec, "query", sql, "--output", "json"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"`orchestrator query` ended with {ended.returncode} for {layer}.{name}\n{sql}\n{ended.stderr}")
    return json.loads(ended.stdout)[0]


def same(one, other):
    """Whether two figures are equal: the sum of nothing is 0, floats to 12 digits, all else exactly."""
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(float(one or 0), float(other or 0), rel_tol=1e-12)
    return Decimal(str(one or 0)) == Decimal(str(other or 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lakehouse", type=Path)
    parser.add_argument("--orchestrator", required=True)
    parser.add_argument("--spec", required=True)
    options = parser.parse_args()

    tables = sorted(log.parent for log in options.lakehouse.rglob("_delta_log"))
    problems = [f"no table of the layer {layer}" for layer in LAYERS
                if not any(path.relative_to(options.lakehouse).parts[0] == layer for path in tables)]
    for path in tables:
        table = path.relative_to(options.lakehouse).parts
        columns = dict(pl.scan_delta(str(path)).collect_schema())
        figures = {"polars": by_polars(path, columns), "deltalake": by_deltalake(path, columns)}
        if table[0] in LAYERS:
            figures["orchestrator"] = by_orchestrator(options, table, columns)
        right = figures.get("orchestrator", figures["deltalake"])
        print(f"{'/'.join(table):40} {right['rows']:>8} rows  {len(columns):>3} columns  {len(right):>3} figures by {', '.join(figures)}")
        for client, found in figures.items():
            problems += [f"{'/'.join(table)}: {figure}: {client} says {found[figure]}, expected {right[figure]}"
                         for figure in right if not same(found[figure], right[figure])]
    for line in problems:
        print(line, file=sys.stderr)
    print(f"{len(tables)} tables, {len(problems)} differences")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
