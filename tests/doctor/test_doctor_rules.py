"""Every rule finds what it is about, not what comes near, and nothing on a silent machine (rule_examples.yaml)."""

from __future__ import annotations

import pytest

from zinc_rt.doctor.examples import has_finding, load_rule_examples
from zinc_rt.doctor.rules import hung
from zinc_rt.doctor.rules.table import RULES

EXAMPLES = load_rule_examples()


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.rest(keep=20)
def test_rule_matches_its_machine_but_not_a_similar_one(name: str) -> None:
    row = EXAMPLES[name]
    assert has_finding(row, row["positive"]), "positive"
    assert not has_finding(row, row["near"]), "near miss"


def test_every_rule_has_an_example() -> None:
    assert {rule.id for rule in RULES} - {rule.id for rule in hung.RULES} == set(EXAMPLES)
