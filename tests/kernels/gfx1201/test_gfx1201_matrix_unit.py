"""canonical-1-q8 through v_wmma_i32_16x16x16_iu8: exact integers, the oracle's bits, no finding."""

from __future__ import annotations

import pytest
from harness import check_op

from zinc_rt.kernels.cases import parse
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.kernels.launch import Launch
from zinc_rt.lower.lower import choose_entry
from zinc_rt.validate.kernel_test.select import build_skeleton

Q8 = "canonical-1-q8"
PLAIN = "one=1 -bias -scale -norm_w -residual -gate"


def launched_kernels(line: str) -> list[str]:
    result = build_skeleton(parse(line))
    entry = choose_entry(result.node, result.graph, KERNELS.entries, Q8)
    assert isinstance(entry, Entry)
    steps = entry.code(result.node, result.graph, result.capacity)
    return [step.kernel for step in steps if isinstance(step, Launch)]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("dtype", "line"),
    [
        ("q8_0", "T=19 N=70 K=1024 values=outliers"),  # tokens and rows that fill no tile
        ("q4_0", "T=17 N=3 K=2048 values=mixed"),
        ("q4_0", "T=16 N=16 K=1024 values=edges"),  # blocks with infinity and NaN
        ("q8_0", "T=33 N=17 K=3072 values=denormals"),
        ("q8_0", "T=5 N=17 K=1024 values=mixed tokens=64"),  # a step that its capacity is too large for
    ],
)
@pytest.mark.slow(keep=3)
def test_sixteen_tokens_use_the_matrix_unit(dtype: str, line: str) -> None:
    """To the oracle's bits, and so to those of one token at a time."""
    case = parse(f"MATMUL {line} dtype={dtype} {PLAIN}")
    assert launched_kernels(case.text()) == ["quantise_32", f"matmul_q8_32_{dtype}"]
    check_op(case.op, *case.operands(), capacity=case.room, ordering=Q8, **case.attrs)


@pytest.mark.parametrize(
    "line",
    [
        f"MATMUL T=15 N=17 K=1024 dtype=q8_0 {PLAIN}",  # fewer tokens than a tile
        f"MATMUL T=17 N=17 K=1056 dtype=q8_0 {PLAIN}",  # a row's end that is no whole group
        "MATMUL T=17 N=17 K=1024 dtype=q8_0 one=1 -scale -norm_w -residual -gate",  # a bias
    ],
)
def test_unsupported_shapes_use_matvec(line: str) -> None:
    assert launched_kernels(line) == ["quantise_32", "matvec_q8_32_q8_0"]
