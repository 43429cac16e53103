"""Render the store as one page: results by combination and probe, separating values, first bad versions."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from zinc_rt.doctor.bundle.combination import MachineCombination
from zinc_rt.doctor.bundle.compare import (
    Regression,
    SuspectedCause,
    find_regressions,
    find_suspicions,
    natural_sort_key,
)
from zinc_rt.doctor.bundle.store import StoredMachine

WORST = ("fail", "flake", "pass", "skip", "blocked")  # what a cell shows where machines differ
DIFFERENCES_SHOWN = 200


@dataclass(slots=True)
class MatrixRow:
    """Machines with the same kernel, module and firmware. `cells`: by probe, counts by status."""

    combination: MachineCombination
    label: str
    machines: list[StoredMachine] = field(default_factory=list)
    cells: dict[str, Counter[str]] = field(default_factory=dict)

    def worst_status(self, probe: str) -> str:
        seen = self.cells.get(probe, Counter())
        return next((status for status in WORST if seen[status]), "")


@dataclass(frozen=True, slots=True)
class ProbeMatrix:
    rows: tuple[MatrixRow, ...]
    probes: tuple[str, ...]
    titles: dict[str, str]


def build_matrix(machines: Sequence[StoredMachine]) -> ProbeMatrix:
    """Return the table of combinations and probes, with combinations sorted by chip and then kernel."""
    rows: dict[str, MatrixRow] = {}
    titles: dict[str, str] = {}
    for machine in machines:
        configuration = machine.combination
        firmware = hashlib.sha256(json.dumps(dict(configuration.firmware), sort_keys=True).encode()).hexdigest()[
            :6
        ]
        key = json.dumps(
            [
                machine.simulated,
                configuration.chip,
                configuration.pci_id,
                configuration.kernel,
                configuration.module,
                firmware,
            ]
        )
        row = rows.setdefault(key, MatrixRow(configuration, firmware if configuration.firmware else "unknown"))
        row.machines.append(machine)
        for name, outcome in machine.probes().items():
            row.cells.setdefault(name, Counter())[outcome.status] += 1
            titles.setdefault(name, outcome.title)
    ordered = sorted(
        rows.values(),
        key=lambda row: (
            row.combination.simulated,
            row.combination.chip,
            natural_sort_key(row.combination.kernel),
            row.combination.module,
            row.label,
        ),
    )
    names = sorted(titles, key=lambda name: (name.partition("/")[2] != "host", natural_sort_key(name)))
    return ProbeMatrix(tuple(ordered), tuple(names), titles)


def render_page(machines: Sequence[StoredMachine]) -> str:
    """Return one HTML file without external resources."""
    from jinja2 import Environment

    source = files("zinc_rt.doctor.bundle").joinpath("page.html.jinja").read_text(encoding="utf-8")
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
    return template.render(**build_content(machines))


def build_content(machines: Sequence[StoredMachine]) -> dict[str, Any]:
    table = build_matrix(machines)
    worse: list[Regression] = find_regressions(machines)
    parts: list[SuspectedCause] = find_suspicions(machines)
    findings = Counter(
        (name, severity, title) for machine in machines for name, severity, title in machine.findings
    )
    return {
        "matrix": table,
        "regressions": worse[:DIFFERENCES_SHOWN],
        "suspicions": parts[:DIFFERENCES_SHOWN],
        "more": max(0, len(worse) - DIFFERENCES_SHOWN) + max(0, len(parts) - DIFFERENCES_SHOWN),
        "findings": findings.most_common(),
        "machines": len(machines),
        "simulated": sum(machine.simulated for machine in machines),
    }
