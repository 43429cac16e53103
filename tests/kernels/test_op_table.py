"""The reference table runs every opcode, and every opcode has a test of its own."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.reference.arithmetic import ORDERINGS
from zinc_rt.kernels.reference.table import ENTRIES, FUNCTIONS

RUNNABLE = set(Op) - {Op.BARRIER}  # which orders others and computes nothing


def ops_with_a_separate_test() -> set[str]:
    """Return the opcodes named in a test_op_*.py of this folder, except test_op_batches.py, which accepts any."""
    files = set(Path(__file__).parent.glob("test_op_*.py")) - {Path(__file__).with_name("test_op_batches.py")}
    return {
        node.attr
        for file in files - {Path(__file__)}
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Op"
    }


def test_every_opcode_has_an_entry_for_every_ordering() -> None:
    assert {entry.op for entry in ENTRIES} == RUNNABLE
    assert len(ENTRIES) == len(RUNNABLE)
    for entry in ENTRIES:
        assert entry.orderings == set(ORDERINGS)
        assert entry.weight_dtypes is None


def test_every_opcode_is_tested() -> None:
    untested = {op.name for op in RUNNABLE} - ops_with_a_separate_test()
    assert not untested, f"write a test in tests/kernels/test_op_*.py for {', '.join(sorted(untested))}"


def test_kernel_takes_the_operands_and_attributes_of_its_opcode() -> None:
    for op, code in FUNCTIONS.items():
        parameters = list(inspect.signature(code).parameters.values())[1:]
        operands = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        attributes = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        inputs = len(OPS[op].inputs)
        assert all(p.default is None for p in operands[inputs:]), op.name  # of another opcode of the function
        assert len(operands) == max(len(OPS[o].inputs) for o, other in FUNCTIONS.items() if other is code), op.name
        own = {attr.name for attr in OPS[op].attrs}
        of_others = {attr.name for o, other in FUNCTIONS.items() if other is code for attr in OPS[o].attrs} - own
        assert set(attributes) == own | of_others, op.name
        assert all(attributes[name] is not inspect.Parameter.empty for name in of_others), op.name
        for attr in OPS[op].attrs:
            declared = inspect.Parameter.empty if attr.default is None else attr.default
            assert attributes[attr.name] == declared, f"{op.name}.{attr.name}"
