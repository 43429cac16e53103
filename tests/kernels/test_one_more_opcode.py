"""An opcode is four files: docs/extending.md's runs on the oracle, and is refused where it has no kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from extending import ExtendedTree, extend_tree

from zinc_rt.ir.op import Op

DOC_TEST = "tests/ir/test_ir_doc.py"
RUN = """
import numpy as np
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.ir.text import to_text
from zinc_rt.ir.verify import verify_graph
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.lower.lower import find_refusal

builder = Builder("squared")
for name, role in (("step.a", "step"), ("out.y", "output")):
    builder.buffer(name, (1, 37), "f32", role)
builder.node(Op.RELU_SQUARED, ("step.a",), ("out.y",))
graph = builder.build()
verify_graph(graph)
assert "RELU_SQUARED(step.a)" in to_text(graph)
(node,) = graph.nodes
assert find_refusal(node, graph, find_kernel_set("numpy-reference").entries, "canonical-1-q8") is None
print(find_refusal(node, graph, find_kernel_set("gfx1201").entries, "canonical-1"))
"""


@pytest.fixture(scope="module")
def extended_tree(tmp_path_factory: pytest.TempPathFactory) -> ExtendedTree:
    return extend_tree("An opcode", tmp_path_factory.mktemp("opcode"), DOC_TEST)


def test_opcode_is_new_and_touches_four_files(extended_tree: ExtendedTree) -> None:
    assert "RELU_SQUARED" not in Op.__members__
    assert sorted(Path(file).name for file in extended_tree.files) == [
        "ir.md",
        "op.py",
        "relu_squared.py",
        "test_op_relu_squared.py",
    ]


@pytest.mark.rest
def test_opcode_test_and_doc_test_pass(extended_tree: ExtendedTree) -> None:
    test = next(file for file in extended_tree.files if Path(file).name.startswith("test_"))
    result = extended_tree.interpreter_in(
        "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", test, DOC_TEST
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.rest
def test_graph_accepts_the_opcode_and_missing_kernel_is_reported(extended_tree: ExtendedTree) -> None:
    result = extended_tree.interpreter_in("-c", RUN)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "no kernel for this opcode"
