"""Check the coverage of the driver interface, tests/sim/driver_map.yaml, and write docs/driver-map.md from it.

    python3 ci/driver_map.py [--check] [--compare kfdtest=FOLDER] [--compare IGT=FOLDER] [--compare libamdf=FILE]

--check compares the page and writes nothing. --compare lists the cases of a suite's sources that the map lacks,
and those of the map that the sources lack. FOLDER contains the C or C++ files, FILE is coverage.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.host.errors import InputError
from zinc_rt.host.facts import load_table
from zinc_rt.host.files import load_yaml
from zinc_rt.probes.learning.first_card import format_rows, format_versions
from zinc_rt.probes.registry import PROBES

ROOT = Path(__file__).resolve().parents[1]
TESTS, CLIENTS = ROOT / "tests", ROOT / "tests/sim/clients"
MAP, PAGE = TESTS / "sim/driver_map.yaml", ROOT / "docs/driver-map.md"

NAMES = {  # of the cases in a suite's sources
    "kfdtest": re.compile(r"^\s*TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE),
    "IGT": re.compile(r'\bigt_subtest(?:_with_dynamic)?(?:_f)?\(\s*"([^"]+)"'),
    "libamdf": re.compile(r"\]\((?:\.\./)?([\w/]+?)(?:_test\.cc|/README\.md)(#[\w-]+)?\)"),
}

TOP = """\
# Coverage of the driver interface

Three public suites test what this project simulates: kfdtest (AMD's tests of KFD), the amdgpu tests of IGT, and
the conformance suite of libamdf. This page assigns each of their cases once: to a test of this project, to a gap,
or to the reason why it does not apply. The differences between Linux versions are rows of the same table. Only the
names of cases are theirs; the tests are written for this project. A test that covers a case checks the same
behaviour, on the simulated card. That does not establish that the original passes.

`python3 ci/driver_map.py` writes this page from `tests/sim/driver_map.yaml` and checks that every test exists.
`--compare kfdtest=FOLDER` lists the cases that a newer version of a suite adds.

A test is a probe (`P20`, [probes.md](probes.md)), a scenario or a HIP program ([clients.md](clients.md)), or a
function in `tests/`.

"""


@dataclass(frozen=True)
class Suite:
    """`covered`: tests by case. `gap`, `not_applicable`: cases by the name of a reason."""

    name: str
    source: str
    count: int
    covered: Mapping[str, Sequence[str]]
    gap: Mapping[str, Sequence[str]]
    not_applicable: Mapping[str, Sequence[str]]

    def cases(self) -> Iterator[str]:
        yield from self.covered
        for reasons in (self.gap, self.not_applicable):
            for cases in reasons.values():
                yield from cases


@dataclass(frozen=True)
class DriverMap:
    """`linux`: the rules of Linux versions, as a suite whose cases are fields of `kernel/` in facts.yaml."""

    suites: Sequence[Suite]
    linux: Suite
    reasons: Mapping[str, str]

    def all(self) -> tuple[Suite, ...]:
        return (*self.suites, self.linux)


def linux_rules() -> list[str]:
    """Return the names of the differences between Linux versions."""
    return [id.partition("/")[2] for id, row in load_table().items() if row.kind == "kernel" and row.versions]


def read_map(path: Path = MAP) -> DriverMap:
    """Read the map. Raises InputError for a file of another form."""
    data = load_yaml(path.read_text())
    try:
        suites = tuple(
            Suite(row["name"], row["source"], row["count"], row["covered"], row["gap"], row["not applicable"])
            for row in data["suites"]
        )
        rules = data["linux"]
        linux = Suite("Linux versions", "zinc_rt/host/facts.yaml", len(linux_rules()), **rules, not_applicable={})
        return DriverMap(suites, linux, data["reasons"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a driver map: {error}") from None


def find_problems(mapped: DriverMap) -> list[str]:
    """Return what is wrong with the map, one sentence each."""
    problems, used = [], set[str]()
    known = _Tests()
    for suite in mapped.all():
        cases = list(suite.cases())
        problems += [
            f"{suite.name}: {case} is mapped twice" for case in sorted(set(cases)) if cases.count(case) > 1
        ]
        if len(set(cases)) != suite.count:
            problems.append(f"{suite.name}: {len(set(cases))} cases are mapped, the suite has {suite.count}")
        for case, tests in suite.covered.items():
            problems += [f"{suite.name}: {case} names no test"] * (not tests)
            problems += [f"{suite.name}: {case}: no such test: {test}" for test in tests if not known.has(test)]
        reasons = {*suite.gap, *suite.not_applicable}
        used |= reasons
        problems += [f"{suite.name}: no reason {name!r}" for name in sorted(reasons - set(mapped.reasons))]
    problems += [
        f"Linux versions: {name} is not mapped" for name in linux_rules() if name not in mapped.linux.cases()
    ]
    problems += [f"the reason {name!r} is not used" for name in mapped.reasons if name not in used]
    return problems


class _Tests:
    """The tests of this project that a map may name."""

    def __init__(self) -> None:
        scenarios = "".join(path.read_text() for path in (CLIENTS / "scenarios").glob("*.c"))
        programs = "".join(path.read_text() for path in (CLIENTS / "hip").glob("*.cpp"))
        self._listed = {probe.id for probe in PROBES}
        for name in re.findall(r'\bBOTH\("([^"]+)"', scenarios):
            self._listed |= {f"scenario {name}-pm4", f"scenario {name}-aql"}
        self._listed |= {
            f"scenario {name}" for name in re.findall(r'\{"([^"]+)", \w+, (?:PM4|AQL|SDMA)', scenarios)
        }
        self._listed |= {f"hip {name}" for name in re.findall(r'\{"(\w+)", \w+\}', programs)}

    def has(self, test: str) -> bool:
        file, separator, function = test.partition("::")
        if not separator:
            return test in self._listed
        path = TESTS / file
        return path.is_file() and re.search(rf"^\s*def {function}\(", path.read_text(), re.MULTILINE) is not None


def compare_sources(suite: Suite, path: Path) -> list[str]:
    """Return the differences between the map and a suite's sources, one sentence each."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    files = [path] if path.is_file() else sorted(item for item in path.iterdir() if item.suffix in (".c", ".cpp"))
    theirs = set[str]()
    for file in files:
        for match in NAMES[suite.name].finditer(file.read_text()):
            if suite.name == "kfdtest":
                theirs.add(f"{match[1]}.{match[2]}")
            elif suite.name == "IGT":
                theirs.add(f"{file.stem}@{match[1]}")
            else:
                theirs.add(match[1] + (match[2] or ""))
    if not theirs:
        raise InputError(f"{path}: no case of {suite.name}")
    ours = set(suite.cases())
    return [
        *(f"{suite.name}: not in the map: {case}" for case in sorted(theirs - ours)),
        *(f"{suite.name}: not in the sources: {case}" for case in sorted(ours - theirs)),
    ]


def build_page(mapped: DriverMap) -> str:
    """Return docs/driver-map.md."""
    head, rows = ("suite", "source", "cases", "covered", "gap", "not applicable"), []
    for suite in mapped.all():
        counts = [sum(map(len, reasons.values())) for reasons in (suite.gap, suite.not_applicable)]
        rows.append((suite.name, suite.source, str(suite.count), str(len(suite.covered)), *map(str, counts)))
    parts = [TOP, format_rows(head, rows), "\n"]
    for suite in mapped.suites:
        parts.append(f"\n## {suite.name}\n\n")
        parts.append(format_rows(("case", "covered by"), _covered_cells(suite)) + "\n")
        for title, reasons in (("gap", suite.gap), ("not applicable", suite.not_applicable)):
            cells = ((f"{name}: {mapped.reasons[name]}", _list_names(cases)) for name, cases in reasons.items())
            if reasons:
                parts.append("\n" + format_rows((title, "cases"), cells) + "\n")
    parts.append(
        f"\n## Linux versions\n\n{LINUX}\n" + format_rows(("rule", "values", "covered by"), _rule_cells(mapped))
    )
    return "".join(parts) + "\n"


LINUX = """\
Each value holds from its version on. The source of each row is in `zinc-rt assumptions --all kernel/`.
`--device sim:CHIP@VERSION` selects a version.
"""


def _covered_cells(suite: Suite) -> Iterator[tuple[str, str]]:
    for case, tests in suite.covered.items():
        yield f"`{case}`", _list_names(tests)


def _rule_cells(mapped: DriverMap) -> Iterator[tuple[str, str, str]]:
    reason = {case: name for name, cases in mapped.linux.gap.items() for case in cases}
    for rule in linux_rules():
        row = load_table()[f"kernel/{rule}"]
        tests = mapped.linux.covered.get(rule)
        yield (
            row.says,
            format_versions(row),
            _list_names(tests) if tests else f"gap: {mapped.reasons[reason[rule]]}",
        )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ci/driver_map.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs")
    parser.add_argument("--compare", action="append", default=[], metavar="SUITE=PATH", help="a suite's sources")
    arguments = parser.parse_args(argv)
    try:
        mapped = read_map()
        suites = {suite.name: suite for suite in mapped.suites}
        problems = find_problems(mapped)
        for text in arguments.compare:
            name, separator, path = text.partition("=")
            if not separator or name not in suites:
                parser.error(f"--compare {text}: expected SUITE=PATH with a suite of {', '.join(suites)}")
            problems += compare_sources(suites[name], Path(path))
        if problems:
            raise InputError("\n".join(problems))
        page = build_page(mapped)
        if arguments.check and PAGE.read_text() != page:
            raise InputError(f"{PAGE.name} differs from the map", next="python3 ci/driver_map.py")
    except InputError as error:
        print(error, file=sys.stderr)
        return 1
    if not arguments.check:
        PAGE.write_text(page)
    counts = [(suite.name, suite.count) for suite in mapped.all()]
    print(f"PASS  {', '.join(f'{name} {count}' for name, count in counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
