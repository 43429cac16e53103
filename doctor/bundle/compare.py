"""Compare two machines, machines that pass a probe with those that fail it, and adjacent versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zinc_rt.doctor.bundle.combination import MAPS, list_traits
from zinc_rt.doctor.bundle.format import Bundle
from zinc_rt.doctor.bundle.private import PLACEHOLDER
from zinc_rt.doctor.bundle.store import RESULT_COLUMNS, StoredMachine, build_frame, read_outcomes

if TYPE_CHECKING:
    import pandas

UNKNOWN = "unknown"
GOOD = ("pass", "flake")
VARIABLE = ["probe", "chip", "variable"]  # grouping of the values of one variable
# Files of /sys whose values move by themselves, and would differ between two looks at one machine.
_MOVES = re.compile(
    r"used|busy|temp\d|_input$|refcnt|kmsg|runtime_(?:active|suspended)_time|_average$|/uevent$|gpu_metrics|"
    r"pcie_replay|unique_id|serial|capture\.json|kernel\.log|ioctl\.json|meminfo|proc/(?:modules|uptime|interrupts)|"
    r"cgroup|iomem|pp_dpm|current_sclk"
)
_FILE_BYTES = 400


@dataclass(frozen=True, slots=True)
class MachineDifference:
    """One difference between two machines. `kind`: card, firmware, parameter, package, file, finding or
    result. `name` identifies the item."""

    kind: str
    name: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Regression:
    """A probe that passes with value `good` and fails with value `bad` of the same variable, on the same
    chip.

    `alone`: two machines exist that differ in nothing else known.
    """

    probe: str
    chip: str
    variable: str
    good: str
    bad: str
    passes: int
    fails: int
    alone: bool


@dataclass(frozen=True, slots=True)
class SuspectedCause:
    """A value of every machine that fails a probe, and of no machine that passes."""

    probe: str
    chip: str
    variable: str
    bad: tuple[str, ...]
    good: tuple[str, ...]
    fails: int
    passes: int


def diff_machines(a: Bundle, b: Bundle) -> list[MachineDifference]:
    """Compare two machines: first the configuration, then the behaviour."""
    differences = [
        MachineDifference(kind, name, left, right)
        for (kind, name), left, right in _pair_values(list_traits(a.combination), list_traits(b.combination))
    ]
    differences += _diff_files(a, b)
    left_findings, right_findings = (
        {str(finding.get("id")): finding for finding in one.findings} for one in (a, b)
    )
    for name in sorted(left_findings.keys() ^ right_findings.keys()):
        title = str((left_findings.get(name) or right_findings[name]).get("title", ""))
        words = (title, "") if name in left_findings else ("", title)
        differences.append(MachineDifference("finding", name, *words))
    left_results, right_results = (
        {outcome.id: outcome for outcome in read_outcomes(one.reports)} for one in (a, b)
    )
    for name in sorted(left_results.keys() & right_results.keys(), key=natural_sort_key):
        left, right = left_results[name], right_results[name]
        if left.status != right.status:
            differences.append(MachineDifference("result", name, _format_status(left), _format_status(right)))
    return differences


def find_regressions(machines: Sequence[StoredMachine]) -> list[Regression]:
    """Find adjacent versions of the kernel, module or a firmware between which a probe starts to fail. Raises
    UnsupportedError if pandas is not installed."""
    runs = _select_decided_runs(machines)
    counts = _count_outcomes(runs)
    newer = counts[counts.variable.map(_has_versions).astype(bool)]
    older = newer.groupby(VARIABLE).shift()  # the next lower version of the same variable
    starts = (older.fails == 0) & (newer.passes == 0)
    values = runs.drop(columns=[*RESULT_COLUMNS, "passed"]).astype(object).fillna("")
    rows = runs.groupby(["probe", "chip"]).indices
    starts_at = [
        Regression(
            bad.probe,
            bad.chip,
            _format_variable(bad.variable),
            good.value,
            bad.value,
            int(good.passes),
            int(bad.fails),
            _is_only_difference(values.iloc[rows[bad.probe, bad.chip]], bad.variable, good.value, bad.value),
        )
        for good, bad in zip(older[starts].itertuples(), newer[starts].itertuples(), strict=True)
    ]
    return sorted(
        starts_at, key=lambda start: (not start.alone, natural_sort_key(start.probe), start.variable, start.chip)
    )


def find_suspicions(machines: Sequence[StoredMachine]) -> list[SuspectedCause]:
    """Find the values that separate passing from failing machines, for every probe with both. Raises
    UnsupportedError if pandas is not installed."""
    counts = _count_outcomes(_select_decided_runs(machines))
    counts["both"] = (counts.passes > 0) & (counts.fails > 0)
    total = counts.groupby(VARIABLE)[["passes", "fails", "both"]].transform("sum")
    known = total.passes + total.fails == counts.runs  # every machine has a value
    separates = counts[known & (total.passes > 0) & (total.fails > 0) & (total.both == 0)]
    suspects = [
        SuspectedCause(
            probe,
            chip,
            _format_variable(variable),
            tuple(rows.value[rows.fails > 0]),
            tuple(rows.value[rows.passes > 0]),
            int(rows.fails.sum()),
            int(rows.passes.sum()),
        )
        for (probe, chip, variable), rows in separates.groupby(VARIABLE)
    ]
    return sorted(suspects, key=lambda suspect: (natural_sort_key(suspect.probe), suspect.variable, suspect.chip))


def _select_decided_runs(machines: Sequence[StoredMachine]) -> pandas.DataFrame:
    """Return the probe results that passed or failed, as `store.frame` with a column `passed`."""
    runs = build_frame(machines)
    return runs[runs.status.isin((*GOOD, "fail"))].assign(passed=lambda rows: rows.status.isin(GOOD))


def _count_outcomes(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Count passes and fails by probe, chip, variable and value, with values in natural order. `runs`: results
    of the probe on the chip, with or without a value."""
    values = runs.melt([*RESULT_COLUMNS, "passed"], var_name="variable").dropna(subset="value")
    counts = values.groupby([*VARIABLE, "value"], as_index=False).passed.agg(passes="sum", results="size")
    counts["fails"] = counts.results - counts.passes
    counts = counts.join(runs.groupby(["probe", "chip"]).size().rename("runs"), on=["probe", "chip"])
    order = {value: rank for rank, value in enumerate(sorted(set(counts.value), key=natural_sort_key))}
    return counts.sort_values("value", key=lambda column: column.map(order), kind="stable")


def _is_only_difference(values: pandas.DataFrame, variable: str, good: str, bad: str) -> bool:
    """Return whether two machines differ only in this variable. `values`: one machine per row."""
    left, right = (values[values[variable] == value].to_numpy() for value in (good, bad))
    return bool(((left[:, None] != right).sum(axis=2) == 1).any())


def _has_versions(variable: str) -> bool:
    return variable in ("kernel", "module", "vbios") or variable.startswith(("firmware.", "package."))


def _format_variable(variable: str) -> str:
    kind, dot, name = variable.partition(".")
    return f"{name} ({kind})" if dot else variable


def _pair_values(
    a: Mapping[tuple[str, str], str], b: Mapping[tuple[str, str], str]
) -> Iterator[tuple[tuple[str, str], str, str]]:
    kinds = ["card", *(kind for _, kind in MAPS)]
    for key in sorted(a.keys() | b.keys(), key=lambda key: (kinds.index(key[0]), key[1])):
        left, right = a.get(key, UNKNOWN), b.get(key, UNKNOWN)
        if left != right:
            yield key, left, right


def _diff_files(a: Bundle, b: Bundle) -> list[MachineDifference]:
    """Compare small files of /sys and /proc that both machines have: link widths, power states, modes."""
    left, right = a.capture.files, b.capture.files
    compared_elsewhere = (
        "sys/module/amdgpu/",
        "firmware.txt",
        "packages.txt",
        "proc/cmdline",
        "proc/version",
        "proc/sys/kernel/os",
    )
    differences = []
    for name in sorted(left.keys() & right.keys()):
        if name.startswith(compared_elsewhere) or _MOVES.search(name) or "/fw_version/" in name:
            continue
        texts = [PLACEHOLDER.sub("<…>", item[name].decode(errors="replace").strip()) for item in (left, right)]
        if texts[0] != texts[1] and max(map(len, texts)) <= _FILE_BYTES:
            differences.append(MachineDifference("file", name, *texts))
    return differences


def _format_status(outcome: object) -> str:
    status, reason = getattr(outcome, "status", ""), getattr(outcome, "reason", "")
    return f"{status}: {reason}" if reason and status != "pass" else str(status)


def natural_sort_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that orders versions by their numbers: 6.9 before 6.14, 0x84 before 0x110."""
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        return ((0, int(text, 16), ""),)
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)
