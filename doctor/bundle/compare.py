"""Compare two machines, machines that pass a probe with those that fail it, and adjacent versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from zinc_rt.doctor.bundle.combination import MachineCombination
from zinc_rt.doctor.bundle.format import Bundle
from zinc_rt.doctor.bundle.private import PLACEHOLDER
from zinc_rt.doctor.bundle.store import StoredMachine, outcomes

UNKNOWN = "unknown"
GOOD = ("pass", "flake")
_SCALARS = ("chip", "pci_id", "kernel", "module", "os", "vbios")
_MAPS = (("firmware", "firmware"), ("parameters", "parameter"), ("packages", "package"))
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
class Suspicion:
    """A value of every machine that fails a probe, and of no machine that passes."""

    probe: str
    chip: str
    variable: str
    bad: tuple[str, ...]
    good: tuple[str, ...]
    fails: int
    passes: int


def diff(a: Bundle, b: Bundle) -> list[MachineDifference]:
    """Compare two machines: first the configuration, then the behaviour."""
    found = [
        MachineDifference(kind, name, left, right)
        for (kind, name), left, right in _pairs(traits(a.combination), traits(b.combination))
    ]
    found += _files(a, b)
    left_findings, right_findings = ({str(each.get("id")): each for each in one.findings} for one in (a, b))
    for name in sorted(left_findings.keys() ^ right_findings.keys()):
        title = str((left_findings.get(name) or right_findings[name]).get("title", ""))
        words = (title, "") if name in left_findings else ("", title)
        found.append(MachineDifference("finding", name, *words))
    left_results, right_results = ({each.id: each for each in outcomes(one.reports)} for one in (a, b))
    for name in sorted(left_results.keys() & right_results.keys(), key=natural):
        left, right = left_results[name], right_results[name]
        if left.status != right.status:
            found.append(MachineDifference("result", name, _said(left), _said(right)))
    return found


def traits(combination: MachineCombination) -> dict[tuple[str, str], str]:
    """Return the complete configuration of a machine, by kind and name, without unknown values."""
    found = {("card", name): str(getattr(combination, name)) for name in _SCALARS}
    for attribute, kind in _MAPS:
        found |= {(kind, name): str(value) for name, value in getattr(combination, attribute).items()}
    return {key: PLACEHOLDER.sub("<…>", value) for key, value in found.items() if value}


def regressions(machines: Sequence[StoredMachine]) -> list[Regression]:
    """Find adjacent versions of the kernel, module or a firmware between which a probe starts to fail."""
    found = []
    for probe, chip, seen in _by_probe(machines):
        for variable in sorted({key for traits_, _ in seen for key in traits_ if _has_versions(key)}):
            passes: dict[str, list[Traits]] = {}
            fails: dict[str, list[Traits]] = {}
            for each, good in seen:
                if variable in each:
                    (passes if good else fails).setdefault(each[variable], []).append(each)
            versions = sorted(passes.keys() | fails.keys(), key=natural)
            for older, newer in pairwise(versions):
                if older in passes and older not in fails and newer in fails and newer not in passes:
                    alone = any(_only(variable, x, y) for x in passes[older] for y in fails[newer])
                    found.append(
                        Regression(
                            probe,
                            chip,
                            _variable(variable),
                            older,
                            newer,
                            len(passes[older]),
                            len(fails[newer]),
                            alone,
                        )
                    )
    return sorted(found, key=lambda each: (not each.alone, natural(each.probe), each.variable))


def suspicions(machines: Sequence[StoredMachine]) -> list[Suspicion]:
    """Find the values that separate passing from failing machines, for every probe with both."""
    found = []
    for probe, chip, seen in _by_probe(machines):
        passes = [each for each, good in seen if good]
        fails = [each for each, good in seen if not good]
        if not passes or not fails:
            continue
        for key in sorted({key for each in (*passes, *fails) for key in each}):
            bad = {each.get(key, UNKNOWN) for each in fails}
            good = {each.get(key, UNKNOWN) for each in passes}
            if not bad & good and UNKNOWN not in bad | good:
                ordered = (tuple(sorted(bad, key=natural)), tuple(sorted(good, key=natural)))
                found.append(Suspicion(probe, chip, _variable(key), *ordered, len(fails), len(passes)))
    return sorted(found, key=lambda each: (natural(each.probe), each.variable))


Traits = Mapping[tuple[str, str], str]


def _by_probe(machines: Iterable[StoredMachine]) -> Iterator[tuple[str, str, list[tuple[Traits, bool]]]]:
    """(probe, chip, what each machine is and whether it passed). Simulated machines are of another world."""
    seen: dict[tuple[str, str], list[tuple[Traits, bool]]] = {}
    for machine in machines:
        found = traits(machine.combination)
        chip = f"{machine.combination.chip or UNKNOWN}{' (simulated)' if machine.simulated else ''}"
        for name, outcome in machine.probes().items():
            if outcome.status in (*GOOD, "fail"):
                seen.setdefault((name, chip), []).append((found, outcome.status in GOOD))
    for (name, chip), rows in sorted(seen.items(), key=lambda item: natural(item[0][0])):
        yield name, chip, rows


def _has_versions(key: tuple[str, str]) -> bool:
    return key in (("card", "kernel"), ("card", "module"), ("card", "vbios")) or key[0] in ("firmware", "package")


def _only(variable: tuple[str, str], a: Traits, b: Traits) -> bool:
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)} == {variable}


def _variable(key: tuple[str, str]) -> str:
    return key[1] if key[0] == "card" else f"{key[1]} ({key[0]})"


def _pairs(a: Traits, b: Traits) -> Iterator[tuple[tuple[str, str], str, str]]:
    kinds = ["card", *(kind for _, kind in _MAPS)]
    for key in sorted(a.keys() | b.keys(), key=lambda key: (kinds.index(key[0]), key[1])):
        left, right = a.get(key, UNKNOWN), b.get(key, UNKNOWN)
        if left != right:
            yield key, left, right


def _files(a: Bundle, b: Bundle) -> list[MachineDifference]:
    """Small files of /sys and /proc that both have: link widths, power states, modes."""
    left, right = a.capture.files, b.capture.files
    told = (
        "sys/module/amdgpu/",
        "firmware.txt",
        "packages.txt",
        "proc/cmdline",
        "proc/version",
        "proc/sys/kernel/os",
    )
    found = []
    for name in sorted(left.keys() & right.keys()):
        if name.startswith(told) or _MOVES.search(name) or "/fw_version/" in name:
            continue
        texts = [PLACEHOLDER.sub("<…>", each[name].decode(errors="replace").strip()) for each in (left, right)]
        if texts[0] != texts[1] and max(map(len, texts)) <= _FILE_BYTES:
            found.append(MachineDifference("file", name, *texts))
    return found


def _said(outcome: object) -> str:
    status, reason = getattr(outcome, "status", ""), getattr(outcome, "reason", "")
    return f"{status}: {reason}" if reason and status != "pass" else str(status)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that orders versions by their numbers: 6.9 before 6.14, 0x84 before 0x110."""
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        return ((0, int(text, 16), ""),)
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)
