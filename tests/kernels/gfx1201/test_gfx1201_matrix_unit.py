"""Matrix units: canonical-1-q8 through v_wmma_i32_16x16x16_iu8, whose integers are exact, and wmma-f16 through
v_wmma_f32_16x16x16_f16. The oracle's bits, no finding; planted mistakes are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import check_op
from kernels.op_cases import make_weight, random_floats
from kernels.planted_edits import Edit, assemble_edited

from zinc_rt.ir.op import WMMA_FORMS, Op
from zinc_rt.isa import target_of
from zinc_rt.isa.lint.check import lint
from zinc_rt.kernels.cases import draw_weight, parse
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.kernels.launch import Launch
from zinc_rt.kernels.rows.matmul_wmma import EXPERT_PAIRS, count_slots, list_tiles
from zinc_rt.kernels.sets import BinaryKernels, BinaryKernelSet
from zinc_rt.kernels.weight import Weight
from zinc_rt.kernels.zrt import Zrt, patch_literals, read_zrt
from zinc_rt.lower.lower import choose_entry
from zinc_rt.sim.interfaces import Fault
from zinc_rt.sim.shader.run.engine_device import EngineDevice
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


def check_halves(
    tokens: int, weight: Weight, kernels: BinaryKernelSet = KERNELS, ordering: str = "wmma-f16"
) -> None:
    """Compare a product of halves, with bias and scale, with the oracle. Each row has one large element."""
    rows, k = weight.shape
    x = random_floats(1, tokens, k)
    x[:, 3] *= 64
    vectors = (make_weight(random_floats(seed, size)) for seed, size in ((3, rows), (4, 1)))
    check_op(WMMA_FORMS[ordering][Op.MATMUL], x, weight, *vectors, kernels=kernels)


@pytest.mark.parametrize(
    "dtype", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "mxfp4", "iq4_nl"]
)
@pytest.mark.parametrize("ordering", WMMA_FORMS)
@pytest.mark.rest(keep=3)
def test_products_of_halves_match(ordering: str, dtype: str) -> None:
    """More tokens than a tile, rows that fill none, a group and a tail of k."""
    check_halves(130, draw_weight((70, 1280), dtype, np.random.default_rng(1)), ordering=ordering)


@pytest.mark.parametrize("k", [4, 124, 132, 260])
@pytest.mark.parametrize(("ordering", "dtype"), [("wmma-f16", "f16"), ("wmma-bf16", "bf16"), ("wmma-bf16", "f16")])
def test_widths_that_fill_no_step_match(ordering: str, dtype: str, k: int) -> None:
    check_halves(3, make_weight(random_floats(2, 17, k), dtype), ordering=ordering)


@pytest.mark.parametrize("ordering", WMMA_FORMS)
def test_unkind_rows_match(ordering: str) -> None:
    """Rows with infinity, NaN, denormals and zeros, weights whose sums overflow or are denormal in bf16."""
    x, w = random_floats(1, 6, 132), random_floats(2, 17, 132)
    x[0, -1], x[1, -1], x[2], x[3], x[4, 0] = np.inf, np.nan, x[2] * 1e-42, 0, 3e38
    x[5] = np.ldexp(x[5], -3 * (np.arange(132) % 40))
    w[3, -1], w[5, 0], w[7], w[9] = 7e4, np.uint32(0x7FFFFFFF).view(np.float32), w[7] * 1e-6, w[9] * 3e37
    w[13, 0], w[14, 0] = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    w[10, -1], w[12] = np.float32(3.4e38), np.ldexp(w[12], -124 - np.arange(132) % 24)
    check_op(WMMA_FORMS[ordering][Op.MATMUL], x, make_weight(w), None, None)


HALVES_FAULTS = (  # in tails of tokens, rows and k; waits; the barrier; buffers; addresses
    Edit("matmul_wmma_f16_f16", "v_cmpx_gt_u32 s29, v1", "v_cmpx_ge_u32 s29, v1"),
    Edit("matmul_wmma_f16_f16", "v_cmpx_gt_u32 s16, v7", "v_cmpx_ge_u32 s16, v7", 1),
    Edit("matmul_wmma_f16_f16", "v_cmpx_gt_u32 s16, v7", "v_cmpx_ge_u32 s16, v7", 0),
    Edit("matmul_wmma_f16_f16", "v_cmpx_gt_u32 s17, v3", "v_cmpx_ge_u32 s17, v3", 0, "wmma_rows.inc"),
    Edit("matmul_wmma_f16_f16", "v_min_u32 v5, s37, v5", "s_nop 0"),
    Edit("matmul_wmma_f16_f16", "s_min_u32 s33, s33, s36", "s_nop 0"),
    Edit("matmul_wmma_f16_f16", "s_cmp_lt_u32 s70, s16", "s_cmp_le_u32 s70, s16", 0, "wmma_rows.inc"),
    Edit("matmul_wmma_f16_f16", "s_wait_dscnt 0x0", "s_nop 0", 0),
    Edit("matmul_wmma_f16_f16", "s_wait_dscnt 0x0", "s_nop 0", 1),
    Edit("matmul_wmma_f16_f16", "s_wait_loadcnt 3 - \\i", "s_wait_loadcnt 4 - \\i"),
    Edit("matmul_wmma_f16_f16", "s_barrier_wait 0xffff", "s_nop 0"),
    Edit("matmul_wmma_f16_f16", "252, BUFFER_BYTES*(\\step&1)", "252, 0"),
    Edit("matmul_wmma_f16_f16", "s[4:5] offset:32*\\tile", "s[4:5] offset:32*(\\tile^1)"),
    Edit("matmul_wmma_f16_f16", "s_add_nc_u64 s[4:5], s[4:5], 0x100", "s_add_nc_u64 s[4:5], s[4:5], 0x80"),
    Edit("matmul_wmma_f16_f16", "v[240+4*\\m:243+4*\\m], v[72", "v[240:243], v[72"),
    Edit("matmul_wmma_f16_f16", "s_cmp_eq_u64 s[12:13], 0", "s_cmp_lg_u64 s[12:13], 0"),
    Edit("matmul_wmma_f16_f16", "s_lshl_b32 s33, s30, 4", "s_lshl_b32 s33, s30, 3"),
    Edit("matmul_wmma_f16_q8_0", "s_and_b32 s64, s17, 0x3ff", "s_and_b32 s64, s17, 0xff", 0, "wmma_rows.inc"),
    Edit("matmul_wmma_f16_q8_0", "each_row \\type, turn", "s_nop 0", 0, "wmma_rows.inc"),
    Edit("round_rows_f16", "v_max3_u32 v8, v8, v6, v7", "v_max3_u32 v8, v8, v6, v6"),
    Edit("round_rows_f16", "v_cmpx_gt_u32 s10, v2", "v_cmpx_ge_u32 s10, v2"),
    Edit("round_rows_f16", "v_subrev_nc_u32 v10, 14, v8", "v_subrev_nc_u32 v10, 15, v8"),
    Edit("round_rows_f16", "s_cmp_lt_u32 s16, s11", "s_cmp_lt_u32 s16, s10"),
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


@pytest.mark.parametrize(
    "kernel", ["round_rows_bf16", "matmul_wmma_f16_f16", "matmul_wmma_bf16_q8_0", "matmul_wmma_experts_bf16_q5_k"]
)
def test_unedited_kernels_pass_the_static_check(kernel: str) -> None:
    assert not lint(KERNELS.load(kernel).code, target_of("gfx1201"))


def check_experts(
    ids: np.ndarray, experts: int, rows: int, k: int, dtype: str = "f16", ordering: str = "wmma-f16"
) -> None:
    """Compare the selected experts' projections, of an input a token and of one a pair, with the
    oracle, with room for more tokens. Each row has one large element."""
    tokens, choices = ids.shape
    random = np.random.default_rng(1)
    x, own = random_floats(1, tokens, k), random_floats(2, tokens, choices, k)
    x[:, 3] *= 64
    gate, up = (draw_weight((experts, rows, k), dtype, random) for _ in range(2))
    vectors = [make_weight(random_floats(seed, experts)) for seed in (4, 5)]
    biases = [make_weight(random_floats(seed, experts, rows)) for seed in (6, 7)]
    op, down = (WMMA_FORMS[ordering][plain] for plain in (Op.MOE_GATE_UP, Op.MOE_DOWN_ACC))
    setting: dict[str, Any] = {"kernels": KERNELS, "capacity": {"tokens": tokens + 40}}
    check_op(op, x, gate, up, ids, *vectors, None, *biases, activation="none", **setting)
    weights = random_floats(8, tokens, choices)
    check_op(down, own, gate, ids, weights, vectors[0], None, None, biases[0], **setting)


def choose_experts(tokens: int, experts: int, choices: int) -> np.ndarray:
    """Return distinct random experts of each token, i32 [tokens, choices]."""
    scores = np.random.default_rng(tokens).random((tokens, experts))
    return np.argsort(scores)[:, :choices].astype(np.int32)


EDGES = {  # experts, their choices: i32 [T, k]
    "one token": (9, choose_experts(1, 9, 4)),
    "all tokens choose one expert": (3, np.full((67, 1), 1, np.int32)),
    "the last expert only": (5, np.full((5, 1), 4, np.int32)),
    "whole tiles": (2, np.repeat([[0, 1], [1, 0]], 16, axis=0).astype(np.int32)),
    "one pair more than a tile": (2, np.array([[0]] * 33 + [[1]] * 31, np.int32)),
    "empty experts between": (40, choose_experts(9, 4, 2) * 13),
    "more than 256 pairs": (6, choose_experts(70, 6, 4)),
}


@pytest.mark.parametrize("name", EDGES)
def test_experts_at_the_edges_of_tiles_match(name: str) -> None:
    experts, ids = EDGES[name]
    check_experts(ids, experts, 17, 68)


def test_experts_of_bf16_match() -> None:
    check_experts(choose_experts(40, 3, 2), 3, 70, 196, ordering="wmma-bf16")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "mxfp4", "iq4_nl"])
@pytest.mark.slow(keep=3)
@pytest.mark.rest(keep=1)
def test_experts_of_every_type_match(dtype: str) -> None:
    """Rows of several blocks and no whole one, a group and a tail of k."""
    check_experts(choose_experts(40, 3, 2), 3, 70, 1280, dtype)


def check_sort(ids: np.ndarray, experts: int, room: int, kernel: Zrt) -> None:
    """Compare the tiles and pairs of sort_experts, with room for more tokens, with NumPy's stable sort, and each
    tile with its expert's pairs."""
    device, capacity = EngineDevice(level="off"), len(ids) + room
    slots = count_slots(capacity * ids.shape[1], experts)
    routes = np.full(4 * slots + capacity * ids.shape[1], -7, np.int32)
    counts = np.array([len(ids), 0, 0, 0], np.int32)
    places = np.array([device.place(array) for array in (ids, routes, counts)], np.uint64).view(np.uint32)
    block = device.place(np.array([*places, ids.shape[1], slots, experts], np.uint32))
    findings = device.run(
        patch_literals(kernel, {}),
        groups=(experts, 1, 1),
        threads=kernel.workgroup,
        user_data=(block & 0xFFFFFFFF, block >> 32),
        vgprs=kernel.vgprs,
        sgprs=kernel.sgprs,
    )
    assert not findings
    tiles, pairs = routes[: 4 * slots].reshape(slots, 4), routes[4 * slots :][: ids.size]
    np.testing.assert_array_equal(pairs, np.argsort(ids, axis=None, kind="stable"))
    numbers = np.bincount(ids.reshape(-1), minlength=experts)
    np.testing.assert_array_equal(tiles, list_tiles(numbers, slots))  # as predictions assume them
    covered = np.concatenate([np.arange(first, first + count) for _, first, count, _ in tiles])
    np.testing.assert_array_equal(covered, np.arange(ids.size))
    for expert, first, count, _ in tiles:
        assert 0 <= count <= EXPERT_PAIRS and (ids.reshape(-1)[pairs[first : first + count]] == expert).all()


@pytest.mark.parametrize(("tokens", "experts", "choices"), [(1, 1, 1), (300, 256, 8), (37, 5, 5), (512, 2, 1)])
@pytest.mark.parametrize("room", [0, 41])
def test_sort_of_experts_is_stable_and_its_tiles_cover_each_pair_once(
    tokens: int, experts: int, choices: int, room: int
) -> None:
    check_sort(choose_experts(tokens, experts, choices), experts, room, KERNELS.load("sort_experts"))


SORT_FAULTS = (  # those of matmul_wmma_experts are rows of tests/faults/corpus
    Edit("sort_experts", "v_cmp_gt_u32 vcc_lo, s13", "v_cmp_ge_u32 vcc_lo, s13"),
    Edit("sort_experts", "v_bcnt_u32_b32 v18, vcc_lo, v18", "s_nop 0", 1),
    Edit("sort_experts", "v_mbcnt_lo_u32_b32 v16, vcc_lo, v18", "v_mov_b32 v16, v18"),
    Edit("sort_experts", "s_add_co_i32 s17, s17, s13", "s_nop 0"),
    Edit("sort_experts", "v_min_i32 v14, 32, v14", "v_min_i32 v14, 31, v14"),
    Edit("sort_experts", "v_max_i32 v14, 0, v14", "v_max_i32 v14, 1, v14"),
    Edit("sort_experts", "s_cselect_b32 s18, s11, s18", "s_nop 0"),
    Edit("sort_experts", "s_wait_loadcnt 0x0", "s_nop 0"),
)


@pytest.mark.parametrize("edit", SORT_FAULTS, ids=lambda edit: f"{edit.new} {edit.nth}")
@pytest.mark.rest(keep=2)
def test_planted_mistakes_in_the_sort_are_found(edit: Edit, tmp_path: Path) -> None:
    """By the static check, or by tiles and pairs that are not those of NumPy's stable sort."""
    path = assemble_edited(edit, tmp_path)
    edited = read_zrt(path.read_bytes(), path.name)
    if lint(edited.code, target_of("gfx1201")):
        return
    with pytest.raises((AssertionError, Fault)):
        check_sort(choose_experts(120, 6, 2), 6, 41, edited)
