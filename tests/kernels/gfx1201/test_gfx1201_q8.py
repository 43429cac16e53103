"""canonical-1-q8 on gfx1201: V_DOT4's exact integers give the oracle's bits, without any finding."""

from __future__ import annotations

import numpy as np
import pytest
from harness import bench, check_op
from harness import run as run_launches
from kernels.case_samples import SAMPLES, family_plans, sample_plans
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.dtypes import find_block
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import HALF_SCALES, parse
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.kernels.launch import Launch, Temp
from zinc_rt.kernels.reference.arithmetic.q8 import quantise
from zinc_rt.kernels.rows.repack import Q8_BLOCKS
from zinc_rt.lower.lower import choose_entry
from zinc_rt.validate.kernel_test.select import build_skeleton

Q8 = "canonical-1-q8"
ALL = 1 << 30
GROUP = 1024


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("family", ("projections", "experts", "attention"))
def test_family_matches_the_oracle_bits(family: str, sample: str) -> None:
    """Those cases alone that canonical-1 computes by other kernels."""
    taken = family_plans(family, KERNELS, Q8, sample, maximum=400)
    own = [plan for plan in taken if any(name.startswith("quantise_") for name in plan.kernels)]
    assert own
    for plan in sample_plans(own, sample, group_count=1):
        case = plan.case
        try:
            check_op(case.op, *case.operands(), capacity=case.room, ordering=Q8, **case.attrs)
        except AssertionError as error:
            raise AssertionError(f"{case.text()}: {error}") from error


@pytest.mark.rest
@pytest.mark.parametrize(
    "line",
    [
        "MATMUL T=2 N=18 K=1280 one=1 dtype=q4_k values=outliers",  # a group and a pair
        "MATMUL T=1 N=5 K=8448 one=1 dtype=q6_k values=plain",  # more than the 32 blocks that lanes have at a time
        "MATMUL T=1 N=5 K=8448 one=1 dtype=q5_k values=mixed",
        "MATMUL T=1 N=5 K=1056 one=1 dtype=q8_0 values=denormals",  # blocks below 2^-100
        "MATMUL T=1 N=5 K=1056 one=1 dtype=q4_0 values=edges",  # blocks with infinity and NaN
        "MATMUL T=2 N=17 K=800 one=1 dtype=q4_0 values=outliers",  # four pairs, the last one not whole
        "LM_HEAD T=6 L=3 V=50 D=512 dtype=q5_k values=mixed rows=4",
    ],
)
def test_projection_matches_the_oracle_bits(line: str) -> None:
    case = parse(line)
    check_op(case.op, *case.operands(), capacity=case.room, ordering=Q8, **case.attrs)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("dtype", Q8_BLOCKS)
def test_largest_integers_of_a_block_are_exact(dtype: str) -> None:
    """All quants at the end of their range, of both signs: sums that a float or 16 bits would not hold."""
    x = np.repeat(np.array([[1.0], [-1.0]], np.float32), 512, axis=1)
    w = make_weight(random_floats(2, 4, 512), dtype)
    w.raw[:] = np.array([[0xFF], [0x80], [0x7F], [0x00]], np.uint8)
    blocks = w.raw.reshape(4, -1, find_block(dtype)[1])
    for index in HALF_SCALES[dtype]:
        blocks[..., index : index + 2] = (0x00, 0x3C)  # 1
    (y,) = check_op(Op.MATMUL, x, w, ordering=Q8)
    assert np.isfinite(y).all() and np.count_nonzero(y) >= 4


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("block", [32, 256])
def test_records_match_the_oracle_blocks(block: int) -> None:
    """Quants and scales of every kind of block: zero, below 2^-100, overflowing float16, ties, infinity, NaN."""
    k = 5 * 256
    x = random_floats(3, 2, k)
    blocks = x[0].reshape(-1, block)
    blocks[0], blocks[1] = 0, blocks[1] * 2.0**-110
    blocks[2] *= np.float32(2.0**60)
    blocks[3] = np.resize(np.array([127, 0.5, 1.5, -2.5, -126.5], np.float32), block)  # factor 1
    blocks[4, 7 % block] = np.inf if block == 32 else np.nan
    if block == 32:
        blocks[5, 31], blocks[6] = np.nan, blocks[6] * 2.0**-20
    dtype = {32: "q8_0", 256: "q4_k"}[block]
    y = np.zeros((2, 1), np.float32)
    result = bench(Op.MATMUL, x, make_weight(random_floats(1, 1, k), dtype), ordering=Q8, outputs=(y,))
    run_launches(result)
    records = next(array for name, array in result.arrays.items() if name.startswith(f"temp q8_{block}"))
    groups = records.reshape(2, -(-k // GROUP), GROUP + 128 + 4 * GROUP // block)
    quants = groups[..., :GROUP].reshape(2, -1, 2, 32, 4, 4).swapaxes(3, 4)  # of [lane][step], steps first
    quants = quants.reshape(2, -1).view(np.int8)
    d = np.ascontiguousarray(groups[..., GROUP + 128 :]).view(np.float32)
    if block == 32:  # in the order of lanes: 8 quarter + step
        d = d.reshape(2, -1, 4, 8).swapaxes(2, 3)
    want, scales = quantise(x, block)
    assert quants[:, :k].tobytes() == want.tobytes() and not quants[:, k:].any()
    d = d.reshape(2, -1)
    np.testing.assert_array_equal(d[:, : k // block], scales)  # NaN where the oracle has one
    assert not d[:, k // block :].any()


def test_input_is_quantised_once_for_all_its_readers() -> None:
    case = parse("RMS_NORM_FUSED_QKV T=2 D=256 Q=32 K=16 V=16 eps=1e-06 dtype=q5_k")
    result = build_skeleton(case)
    entry = choose_entry(result.node, result.graph, KERNELS.entries, Q8)
    assert isinstance(entry, Entry)
    launches = [
        step for step in entry.code(result.node, result.graph, result.capacity) if isinstance(step, Launch)
    ]
    assert [item.kernel for item in launches] == ["quantise_norm_256", *["matvec_q8_256_q5_k"] * 3]
    (record,) = {item.buffers[0] for item in launches[1:]}
    assert isinstance(record, Temp) and launches[0].buffers[1] == record
