"""Write docs/sanitizer.md from the table of sanitizer rules, zinc_rt/host/sanitizer_rules.py.

python3 ci/sanitizer_rules.py
"""

from __future__ import annotations

from pathlib import Path

from zinc_rt.host.sanitizer_rules import RULES, TOOLS, Severity

PAGE = Path(__file__).resolve().parent.parent / "docs" / "sanitizer.md"

HEAD = """# Sanitizer rules

Every finding of the simulated device belongs to one of these rules. `python3 ci/sanitizer_rules.py` generates this
page from `zinc_rt/host/sanitizer_rules.py`. To add a rule, add its row there and the check that reports it.

`from` is the first sanitizer mode (off, fast, full) that checks the rule; `zinc-rt launch --tool` selects rules by
the sections of this page ([launch.md](launch.md#tools)). After a finding, execution continues,
unless the description says that the wave ends. An *error* is a finding that makes hardware hang, fault or lose
data. Rules marked `lint` are also checked by `zinc-rt isa lint`, which does not run the code. `zinc-rt assumptions
--all` lists the hardware rule that each check assumes, and its source ([facts.md](facts.md)).
"""


ARGUABLE_HEAD = """
## Arguable findings

A finding is wrong if the outputs are right in every order of the work (`--reorder`) and the code is allowed by the
ISA manual or by LLVM's memory model. These classes lie between: what is reported has no effect on results in some
or all cases, and whether it is a fault depends on what the author promises. A suppression file accepts individual
findings ([launch.md](launch.md#suppressions)).

| class | reported as | why it is arguable |
|---|---|---|
"""

ARGUABLE = (
    (
        "`sgpr-read` in code of clang before release 20, or of a compiler that left no name",
        "remark",
        "the hazard is in no public manual, and older compilers do not know it",
    ),
    (
        "`lds-same-store`: several waves store the bytes that are there",
        "remark",
        "every order has the same result, but it is a data race in C and OpenCL",
    ),
    (
        "`race`: several waves or workgroups store one value to one place of global memory",
        "finding",
        "as in LDS; here the values are not compared",
    ),
    (
        "`race`: a plain load of a flag that others store atomically",
        "finding",
        "hardware loads it whole; LLVM's memory model calls it a data race, unless it only feeds a "
        "compare-and-swap",
    ),
    (
        "`race`: an order that the host of the kernel promises, like a launch of one workgroup only",
        "finding if waves race",
        "the device knows barriers, fences and scopes only",
    ),
    (
        "`out-of-bounds`: a load beyond a buffer whose lanes are discarded later",
        "finding",
        "on a card it may fault at the end of a mapping, or read a neighbour without effect",
    ),
    (
        "`uninitialised-memory`, `uninitialised-lds`, `uninitialised-scratch`: loaded bytes that are not used "
        "later",
        "finding",
        "reported at the load; registers carry undefined bits until they are used, memory does not",
    ),
    (
        "`uninitialised-vgpr`: bits that cannot change the result, in forms other than those of "
        "`checks/carried.py`",
        "finding",
        "the engine compares results for all zeros and all ones of the bits; for other forms it does not",
    ),
    (
        "`inactive-lane`: a permutation that reads a disabled lane whose result is discarded",
        "finding",
        "hardware returns what the register holds there",
    ),
    (
        "`unwritten-output`: elements that the kernel leaves on purpose",
        "finding",
        "declare the buffer `inout`",
    ),
    (
        "rules of `waitcheck` on a path that no launch takes",
        "finding",
        "they are checked without running the code",
    ),
)
"""Classes of findings between right and wrong: what, as what, why."""


def build_page() -> str:
    """Return the text of docs/sanitizer.md."""
    return HEAD + "".join(map(format_section, TOOLS)) + ARGUABLE_HEAD + "".join(map(format_row, ARGUABLE))


def format_row(cells: tuple[str, str, str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def format_section(tool: str) -> str:
    rows = [
        f"| {rule.id} | {rule.level} | {kind_of(rule.severity, lint=bool(rule.static))} | {rule.sentence} "
        f"| [{rule.doc.partition('.')[0]}]({rule.doc}) |\n"
        for rule in RULES.values()
        if rule.tool == tool
    ]
    return (
        f"\n## {tool}\n\n{TOOLS[tool].capitalize()}.\n\n"
        "| rule | from | kind | what is reported | more |\n|---|---|---|---|---|\n" + "".join(rows)
    )


def kind_of(severity: Severity, *, lint: bool) -> str:
    return severity.value + (", lint" if lint else "")


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
