"""Print every benchmark of perf/bench_*.py as one table, with its limit or baseline.

    python3 ci/run.py bench --table                      all of them, minutes
    python3 ci/run.py bench --table perf/bench_step.py -k TestPm4

A benchmark declares its limit in `extra_info`: limit_seconds, limit_median_us or limit_ratio (with the measured
`ratio`), and `peer`, the baseline of the ratio.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zinc_rt.host.terminal import Table, format_markdown
from zinc_rt.perf.machine import describe_machine

FOLDER = Path(__file__).resolve().parent
HEADERS = ("benchmark", "median", "spread", "rounds", "ratio", "limit", "", "peer or note")
# limits in extra_info: the compared measure and its unit
LIMITS: Mapping[str, tuple[str, float, str]] = {
    "limit_seconds": ("median", 1.0, "s"),
    "limit_median_us": ("median", 1e-6, "µs"),
    "limit_ratio": ("ratio", 1.0, ""),
}
NOTES = ("peer", "not_real", "ordering", "note")


def format_row(benchmark: Mapping[str, Any]) -> list[str]:
    """Return one line of the table from pytest-benchmark's JSON."""
    stats, info = benchmark["stats"], benchmark.get("extra_info", {})
    limit, verdict = _format_limit(stats, info)
    spread = (stats["q3"] - stats["q1"]) / stats["median"] if stats["median"] else 0.0
    ratio = info.get("ratio")
    return [
        _benchmark_name(benchmark["fullname"]),
        _format_seconds(stats["median"]),
        f"{spread:.0%}",
        str(stats["rounds"]),
        "" if ratio is None else f"{float(ratio):.2f}",
        limit,
        verdict,
        ", ".join(str(info[name]) for name in NOTES if info.get(name)),
    ]


def _benchmark_name(fullname: str) -> str:
    """Shorten perf/bench_step.py::TestRing::test_graph_replay[64] to `ring graph_replay[64]`."""
    _, group, test = fullname.split("::", 2)
    return f"{re.sub('(?<!^)(?=[A-Z])', '_', group.removeprefix('Test')).lower()} {test.removeprefix('test_')}"


FOLDED = 12  # variants of one benchmark without a limit that share a line


def format_table(content: Mapping[str, Any]) -> list[list[str]]:
    """Return one line per benchmark; variants of one share a line with their range."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for benchmark in content["benchmarks"]:
        groups.setdefault(benchmark["fullname"].partition("[")[0], []).append(benchmark)
    rows = []
    for group in groups.values():
        cells = [format_row(benchmark) for benchmark in group]
        rows += [_fold_row(group, cells)] if len(cells) > FOLDED and not any(line[5] for line in cells) else cells
    return rows


def _fold_row(group: list[Mapping[str, Any]], cells: list[list[str]]) -> list[str]:
    medians = [benchmark["stats"]["median"] for benchmark in group]
    name = f"{cells[0][0].partition('[')[0]} ({len(group)} variants)"
    return [name, f"{_format_seconds(min(medians))} to {_format_seconds(max(medians))}", "", "", "", "", "", ""]


def _format_limit(stats: Mapping[str, Any], info: Mapping[str, Any]) -> tuple[str, str]:
    """Return the limit as text, and whether it is met."""
    for name, (what, unit, text) in LIMITS.items():
        if info.get(name) is None:
            continue
        allowed = float(info[name])
        seen = stats["median"] if what == "median" else info.get("ratio")
        kept = seen is not None and float(seen) <= allowed * unit
        return f"{allowed:g} {text}".strip(), "ok" if kept else "over"
    return "", ""


def _format_seconds(value: float) -> str:
    for unit, parts in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * parts >= 1:
            return f"{value * parts:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def run(files: Sequence[str]) -> tuple[int, Mapping[str, Any]]:
    """Run pytest and return its exit code and the benchmarks; {} if none finished. Ignores an enclosing pytest."""
    with tempfile.TemporaryDirectory(prefix="zinc-rt-bench-") as folder:
        out = Path(folder) / "benchmarks.json"
        paths = list(files) or [str(path) for path in sorted(FOLDER.glob("bench_*.py"))]
        once = ["-n", "0", "-q", "--benchmark-enable", "--benchmark-quiet", f"--benchmark-json={out}"]
        alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        code = subprocess.call([sys.executable, "-m", "pytest", *once, *paths], stdout=sys.stderr, env=alone)
        return code, json.loads(out.read_text(encoding="utf-8")) if out.exists() and out.stat().st_size else {}


def main() -> int:
    """Run `python -m zinc_rt.perf.benchmarks [FILE ...]`. Return 1 if a benchmark failed or exceeds its limit."""
    code, content = run(sys.argv[1:])
    if not content.get("benchmarks"):
        print("no benchmark finished", file=sys.stderr)
        return 1
    rows = format_table(content)
    host = describe_machine()
    print(f"{host['processor']}, {host['cores']} cores, load {host['load_average'][0]}, {host['system']}")
    print(format_markdown(Table(HEADERS, rows)))
    over = sum(line[6] == "over" for line in rows)
    print(
        f"{'FAIL' if over or code else 'PASS'}  {len(content['benchmarks'])} benchmarks, {over} over their limit"
    )
    return 1 if over or code else 0


if __name__ == "__main__":
    sys.exit(main())
