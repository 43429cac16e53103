"""A sanitizer rule is a row and a check: docs/extending.md's is reported, listed and on its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from extending import ExtendedTree, extend_tree

from zinc_rt.host.sanitizer_rules import RULES

REPORTED = """
import sys

sys.path.insert(0, sys.argv[1])
from cp_support import IB, CpBench
from zinc_rt.host.sanitizer_rules import Severity
from zinc_rt.pm4.packets import IndirectBuffer

for size_dw, count in ((1 << 19, 0), ((1 << 19) + 8, 1)):
    bench = CpBench()
    bench.queue().submit(IndirectBuffer(IB, size_dw))  # runs beyond the memory and faults there
    mine = [each for each in bench.kmd.findings if each.rule == "ib-large"]
    assert len(mine) == count, bench.kmd.findings
    assert all(each.severity is Severity.FINDING and str(size_dw) in each.sentence for each in mine)
"""
LISTED = "import sys; from zinc_rt.probes.learning.assumptions import main; sys.exit(main(['--all']))"


@pytest.fixture(scope="module")
def extended_tree(tmp_path_factory: pytest.TempPathFactory) -> ExtendedTree:
    return extend_tree("A sanitizer rule", tmp_path_factory.mktemp("rule"))


def test_new_rule_is_a_row_and_a_check(extended_tree: ExtendedTree) -> None:
    assert "ib-large" not in RULES
    assert extended_tree.files == ("zinc_rt/host/sanitizer_rules.py", "zinc_rt/sim/cp/execute/control.py")


def test_new_rule_is_reported_only_where_it_applies(extended_tree: ExtendedTree) -> None:
    result = extended_tree.interpreter_in("-c", REPORTED, str(Path(__file__).parent))
    assert result.returncode == 0, result.stderr


@pytest.mark.rest
def test_assumptions_lists_the_new_rule(extended_tree: ExtendedTree) -> None:
    result = extended_tree.interpreter_in("-c", LISTED)
    assert result.returncode == 0, result.stderr
    assert "an indirect buffer may have 2^19 dwords and more" in " ".join(result.stdout.split())
