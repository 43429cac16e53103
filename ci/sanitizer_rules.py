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


def page() -> str:
    """Return the text of docs/sanitizer.md."""
    return HEAD + "".join(map(_section, TOOLS))


def _section(tool: str) -> str:
    rows = [
        f"| {rule.id} | {rule.level} | {_kind(rule.severity, lint=bool(rule.static))} | {rule.sentence} "
        f"| [{rule.doc.partition('.')[0]}]({rule.doc}) |\n"
        for rule in RULES.values()
        if rule.tool == tool
    ]
    return (
        f"\n## {tool}\n\n{TOOLS[tool].capitalize()}.\n\n"
        "| rule | from | kind | what is reported | more |\n|---|---|---|---|---|\n" + "".join(rows)
    )


def _kind(severity: Severity, *, lint: bool) -> str:
    return severity.value + (", lint" if lint else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
