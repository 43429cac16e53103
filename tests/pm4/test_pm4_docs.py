"""docs/pm4.md lists what there is."""

from __future__ import annotations

from pathlib import Path

from zinc_rt.pm4.lint_rules import RULES
from zinc_rt.pm4.packets import PACKETS

TEXT = (Path(__file__).parents[2] / "docs" / "pm4.md").read_text(encoding="utf-8")


def test_every_packet_has_a_documentation_row() -> None:
    for cls in PACKETS:
        chips = "both" if len(cls.ON) == 2 else cls.ON[0].name.lower()
        file = cls.__module__.rsplit(".", 1)[1]
        row = f"| {cls.NAME} | 0x{cls.OP:02X} | {cls.sizes()} | {chips} | `{cls.__name__}` | {file}.py |"
        assert row in TEXT, row


def test_every_rule_has_a_documentation_row() -> None:
    for name, rule in RULES.items():
        assert f"| {name} | {rule.severity} | {rule.means} |" in TEXT, name
