"""gfx1201 elementwise opcodes bit for bit against the oracle, at unkind shapes and values, without any finding."""

from __future__ import annotations

import numpy as np
import pytest
from harness import assert_same_bits, bench, check_op, run
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gfx1201.table import KERNELS

COLUMNS = [1, 3, 31, 32, 33, 127, 128, 255, 256, 257, 300, 512, 1029]
GATED = [Op.SWIGLU, Op.GEGLU, Op.SIGMOID_MUL, Op.ADD]
EDGES = np.array(
    [0, -0.0, 1e-45, -1e-45, 1e-38, -1e-42, 87, -87, 88.5, -200, 3e38, -3e38, np.inf, -np.inf, np.nan, 20, 0.5],
    np.float32,
)


def edge_rows(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """A row of ordinary values, then rows of zeros of both signs, denormals, infinities, NaN and values that exp
    clamps.
    """
    x = random_floats(seed, rows, columns) * np.float32(8)
    x[1:] = np.resize(np.roll(EDGES, seed), (rows - 1) * columns).reshape(rows - 1, columns)
    return x


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("columns", COLUMNS)
def test_one_operand_op_matches(columns: int) -> None:
    x = edge_rows(3, columns)
    check_op(Op.SOFTCAP, x, cap=30.0, capacity={"tokens": 4})
    check_op(Op.SOFTCAP, x, cap=1e-39)
    check_op(Op.SCALE, x, factor=0.3, capacity={"tokens": 4})
    check_op(Op.SCALE, x, make_weight(np.array([-1e-38], np.float32)), factor=1e30)
    check_op(Op.SCALE, x, make_weight(np.array([np.inf], np.float32)), factor=0.0)


def test_logits_launch_uses_the_row_count_of_its_buffer() -> None:
    """SOFTCAP over [rows, vocabulary]: the launch is as high as that buffer's own symbol says."""
    builder = Builder("logits")
    x, y = (builder.buffer(name, ("rows", 40), "f32", "activation") for name in "xy")
    builder.node(Op.SOFTCAP, (x,), (y,), cap=30.0)
    graph = builder.build()
    softcap = next(row for row in KERNELS.entries if row.op is Op.SOFTCAP)
    (launch,) = softcap.code(graph.nodes[0], graph, {"rows": 9})
    assert launch.grid == (1, "rows", 1)


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("op", [*GATED, Op.SOFTCAP, Op.SCALE])
def test_one_bit_fault_is_detected(op: Op) -> None:
    """The comparison these tests rest on: another input bit is another output."""
    x = [random_floats(seed, 1, 40) for seed in range(2 if op in GATED else 1)]
    attrs = {Op.SOFTCAP: {"cap": 30.0}}.get(op, {})
    result = bench(op, *x, outputs=(x[0],), **attrs)
    run(result)
    before = result.arrays["y"].copy()
    result.arrays[result.node.inputs[0]].view(np.uint32)[0, 39] ^= 1 << 22
    run(result)
    with pytest.raises(AssertionError, match=r"1 of 40 differ, first at \(0, 39\)"):
        assert_same_bits(result.arrays["y"], before, op.name)
