"""docs/first-card.md lists the assumptions of facts.yaml, and they stay a small part of it."""

from __future__ import annotations

from pathlib import Path

from zinc_rt.host.facts import load_table
from zinc_rt.probes.learning.first_card import build_page

DOCS = Path(__file__).resolve().parents[2] / "docs" / "first-card.md"
MOST_ASSUMED = 0.25


def test_page_is_generated_from_the_table() -> None:
    assert DOCS.read_text() == build_page(), "python -m zinc_rt.probes.learning.first_card > docs/first-card.md"


def test_page_lists_every_assumption_and_its_probe() -> None:
    text = DOCS.read_text()
    for row in load_table().values():
        if row.assumed:
            assert f"| `{row.id}` |" in text and row.settled_by[0] in text, row.id


def test_at_most_a_quarter_of_the_rules_is_assumed() -> None:
    rows = list(load_table().values())
    assert sum(row.assumed for row in rows) <= MOST_ASSUMED * len(rows)
    of_linux = [row for row in rows if row.kind in ("kernel", "ioctl", "userq", "kfd", "file")]
    assert sum(row.assumed for row in of_linux) <= MOST_ASSUMED * len(of_linux)
