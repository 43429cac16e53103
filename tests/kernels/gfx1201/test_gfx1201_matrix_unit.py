"""Matrix units: canonical-1-q8 through v_wmma_i32_16x16x16_iu8, whose integers are exact, and wmma-f16 through
v_wmma_f32_16x16x16_f16. The oracle's bits, no finding; planted mistakes are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import check_op
from kernels.op_cases import make_weight, random_floats
from kernels.planted_edits import Edit, assemble_edited

from zinc_rt.ir.op import Op
from zinc_rt.isa import target_of
from zinc_rt.isa.lint.check import lint
from zinc_rt.kernels.cases import draw_weight, parse
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.kernels.launch import Launch
from zinc_rt.kernels.sets import BinaryKernels, BinaryKernelSet
from zinc_rt.kernels.weight import Weight
from zinc_rt.kernels.zrt import Zrt, read_zrt
from zinc_rt.lower.lower import choose_entry
from zinc_rt.sim.interfaces import Fault
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


def check_halves(tokens: int, weight: Weight, kernels: BinaryKernelSet = KERNELS) -> None:
    """Compare a product in wmma-f16, with bias and scale, with the oracle. Each row has one large element."""
    rows, k = weight.shape
    x = random_floats(1, tokens, k)
    x[:, 3] *= 64
    vectors = (make_weight(random_floats(seed, size)) for seed, size in ((3, rows), (4, 1)))
    check_op(Op.MATMUL_WMMA_F16, x, weight, *vectors, kernels=kernels)


@pytest.mark.parametrize(
    "dtype", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "mxfp4", "iq4_nl"]
)
@pytest.mark.rest(keep=3)
def test_products_of_halves_match(dtype: str) -> None:
    """More tokens than a tile, rows that fill none, a group and a tail of k."""
    check_halves(130, draw_weight((70, 1280), dtype, np.random.default_rng(1)))


@pytest.mark.parametrize("k", [4, 124, 132, 260])
def test_widths_that_fill_no_step_match(k: int) -> None:
    check_halves(3, make_weight(random_floats(2, 17, k), "f16"))


HALVES_FAULTS = (  # in tails of tokens, rows and k; waits; the barrier; buffers; addresses
    Edit("matmul_wmma_f16", "v_cmpx_gt_u32 s29, v1", "v_cmpx_ge_u32 s29, v1"),
    Edit("matmul_wmma_f16", "v_cmpx_gt_u32 s16, v7", "v_cmpx_ge_u32 s16, v7", 1),
    Edit("matmul_wmma_f16", "v_cmpx_gt_u32 s16, v7", "v_cmpx_ge_u32 s16, v7", 0),
    Edit("matmul_wmma_f16", "v_cmpx_gt_u32 s17, v3", "v_cmpx_ge_u32 s17, v3"),
    Edit("matmul_wmma_f16", "v_min_u32 v5, s37, v5", "s_nop 0"),
    Edit("matmul_wmma_f16", "s_min_u32 s33, s33, s36", "s_nop 0"),
    Edit("matmul_wmma_f16", "s_cmp_lt_u32 s70, s16", "s_cmp_le_u32 s70, s16"),
    Edit("matmul_wmma_f16", "s_wait_dscnt 0x0", "s_nop 0", 0),
    Edit("matmul_wmma_f16", "s_wait_dscnt 0x0", "s_nop 0", 1),
    Edit("matmul_wmma_f16", "s_wait_loadcnt 3 - \\i", "s_wait_loadcnt 4 - \\i"),
    Edit("matmul_wmma_f16", "s_barrier_wait 0xffff", "s_nop 0"),
    Edit("matmul_wmma_f16", "\\step, (\\step&1)", "\\step, 0"),
    Edit("matmul_wmma_f16", "s[4:5] offset:32*\\tile", "s[4:5] offset:32*(\\tile^1)"),
    Edit("matmul_wmma_f16", "s_add_nc_u64 s[4:5], s[4:5], 0x100", "s_add_nc_u64 s[4:5], s[4:5], 0x80"),
    Edit("matmul_wmma_f16", "v[240+4*\\m:243+4*\\m], v[72", "v[240:243], v[72"),
    Edit("matmul_wmma_f16", "s_cmp_eq_u64 s[14:15], 0", "s_cmp_lg_u64 s[14:15], 0"),
    Edit("matmul_wmma_f16", "s_lshl_b32 s33, s30, 4", "s_lshl_b32 s33, s30, 3"),
    Edit("matmul_wmma_q8_0", "s_and_b32 s64, s17, 0x3ff", "s_and_b32 s64, s17, 0xff"),
    Edit("matmul_wmma_q8_0", "rows_in_four \\type, turn", "s_nop 0"),
    Edit("round_rows", "v_max3_u32 v8, v8, v6, v7", "v_max3_u32 v8, v8, v6, v6"),
    Edit("round_rows", "v_cmpx_gt_u32 s10, v2", "v_cmpx_ge_u32 s10, v2"),
    Edit("round_rows", "v_subrev_nc_u32 v10, 14, v8", "v_subrev_nc_u32 v10, 15, v8"),
    Edit("round_rows", "s_cmp_lt_u32 s16, s11", "s_cmp_lt_u32 s16, s10"),
)


@pytest.mark.parametrize("edit", HALVES_FAULTS, ids=lambda edit: f"{edit.kernel}: {edit.new} {edit.nth}")
@pytest.mark.rest(keep=2)
def test_planted_mistakes_are_found(edit: Edit, tmp_path: Path) -> None:
    """By the static check, by bits or by the sanitizer, in a product of few tokens and rows with a tail of k."""
    path = assemble_edited(edit, tmp_path)
    edited = read_zrt(path.read_bytes(), path.name)
    if lint(edited.code, target_of("gfx1201")):
        return

    def load(name: str) -> Zrt:
        return edited if name == edit.kernel else KERNELS.load(name)

    assert isinstance(KERNELS, BinaryKernels)
    k, dtype = (1568, "q8_0") if edit.kernel.endswith("q8_0") else (260, "f16")
    with pytest.raises((AssertionError, Fault)):
        check_halves(3, make_weight(random_floats(2, 37, k), dtype), replace(KERNELS, load=load))


@pytest.mark.parametrize("kernel", ["round_rows", "matmul_wmma_f16", "matmul_wmma_q8_0"])
def test_unedited_kernels_pass_the_static_check(kernel: str) -> None:
    assert not lint(KERNELS.load(kernel).code, target_of("gfx1201"))
