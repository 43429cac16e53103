"""Convolution, the gated delta rule and request state on gfx1201: bit for bit the oracle's, in every form."""

from __future__ import annotations

import numpy as np
import pytest
from harness import check_op
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.op import Op

SEQUENCE = np.array([0, 0, 0, 1, 1, 2], np.int32)
SOURCE, TARGET = np.array([3, 0, 2], np.int32), np.array([1, 3, 0], np.int32)  # rows that others write and read
ONE = np.zeros(1, np.int32)
OWN = np.array([1, 3, 2], np.int32)
FORKED = np.array([1, 0, 0], np.int32)  # two begin at row 0, which nobody writes
STEPS = {  # whose token each is: runs of every length, at both ends and between
    "decode": range(64),
    "a chunk behind decodes": [*range(15), *[15] * 49],
    "a chunk first": [*[0] * 49, *range(1, 16)],
    "runs": np.repeat(np.arange(9), [1, 7, 2, 1, 16, 3, 1, 32, 1]),
    "silent": [0, 0, 2, 2, 5],
}


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("step", STEPS)
def test_each_sequence_reads_its_own_tokens(step: str) -> None:
    sequence = np.array(STEPS[step], np.int32)
    tokens, sequences = len(sequence), int(sequence[-1]) + 1
    taps = make_weight(random_floats(2, 3, 4), "f32")
    check_op(Op.SSM_CONV1D, random_floats(1, tokens, 3), taps, random_floats(3, sequences, 3, 3), sequence, None)
    how = {"k_heads": 1, "v_heads": 1, "head_dim": 4, "eps": 1e-6, "grouping": "tiled"}
    check_op(
        Op.SSM_DELTA_NET, *delta_operands(1, 1, 4, tokens), random_floats(6, sequences, 1, 4, 4), sequence, **how
    )


@pytest.mark.parametrize("channels", [1, 31, 256, 300])
@pytest.mark.parametrize("silu", [True, False])
def test_plain_convolution_matches(channels: int, silu: bool) -> None:
    x, taps, state = (
        random_floats(1, 6, channels),
        make_weight(random_floats(2, channels, 4), "f32"),
        random_floats(3, 3, 3, channels),
    )
    check_op(Op.SSM_CONV1D, x, taps, state, SEQUENCE, None, silu=silu)
    check_op(Op.SSM_CONV1D, x, taps, state, SEQUENCE, make_weight(random_floats(4, channels), "f32"), silu=silu)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("dtype", "channels", "k"), [("q8_0", 33, 256), ("f32", 4, 64), ("q4_k", 18, 512)])
def test_projection_and_its_convolution_match(dtype: str, channels: int, k: int) -> None:
    """One launch for a token with a norm; otherwise the projection, then the convolution."""
    w, norm = make_weight(random_floats(1, channels, k), dtype), make_weight(random_floats(2, k))
    taps, bias = make_weight(random_floats(3, channels, 4)), make_weight(random_floats(4, channels))
    x, state = random_floats(5, 6, k, scale=3), random_floats(6, 4, 3, channels)
    for silu, bias_or_none in ((True, None), (False, bias)):
        operands = x[:1], w, taps, state, ONE, SOURCE[:1], TARGET[:1], bias_or_none
        check_op(Op.MATMUL_FUSED_CONV1D_IDS, *operands, norm, silu=silu, eps=1e-5)
        check_op(Op.MATMUL_FUSED_CONV1D_IDS, *operands, silu=silu)
        many = x, w, taps, state, SEQUENCE, SOURCE, TARGET, bias_or_none, norm
        check_op(Op.MATMUL_FUSED_CONV1D_IDS, *many, silu=silu, eps=1e-5)
    in_place = x[:1], w, taps, state, ONE, SOURCE[:1], SOURCE[:1], bias, norm
    check_op(Op.MATMUL_FUSED_CONV1D_IDS, *in_place, eps=1e-5, ordering="canonical-1-q8")
    check_op(Op.MATMUL_FUSED_CONV1D_IDS, *in_place, eps=1e-5)
    other_width = x[:1], w, make_weight(random_floats(3, channels, 3)), state[:, :2], ONE, ONE, ONE, bias, norm
    check_op(Op.MATMUL_FUSED_CONV1D_IDS, *other_width, eps=1e-5)


def test_convolution_updates_the_cache() -> None:
    x, taps, state = (
        random_floats(1, 6, 40),
        make_weight(random_floats(2, 40, 4), "f32"),
        random_floats(3, 4, 3, 40),
    )
    check_op(Op.SSM_CONV1D_UPDATE, x, taps, state, SEQUENCE, None)
    check_op(Op.SSM_CONV1D_UPDATE_IDS, x, taps, state, SEQUENCE, SOURCE, TARGET, None)
    check_op(Op.SSM_CONV1D_UPDATE_IDS, x, taps, state, SEQUENCE, FORKED, OWN, None, disjoint=True)
    check_op(Op.SSM_CONV1D_UPDATE_IDS, x[:1], taps, state, ONE, SOURCE[:1], TARGET[:1], None)


def test_zeros_of_both_signs_survive_the_convolution() -> None:
    zeros = np.array([[-0.0, 0.0, -0.0, 1e-44]], np.float32)
    taps = make_weight(np.array([[-1, 1, 0, -0.0]] * 4, np.float32), "f32")
    check_op(Op.SSM_CONV1D, zeros, taps, np.full((1, 3, 4), -0.0, np.float32), ONE, None, silu=False)


HEADS = [
    (1, 1, 4, "tiled"),
    (2, 4, 16, "tiled"),
    (2, 4, 16, "grouped"),
    (2, 6, 32, "grouped"),
    (3, 3, 100, "tiled"),
    (1, 2, 128, "tiled"),
]


def delta_operands(k_heads: int, v_heads: int, d: int, tokens: int) -> tuple[np.ndarray, ...]:
    return (
        random_floats(1, tokens, (2 * k_heads + v_heads) * d),
        random_floats(2, tokens, v_heads),
        random_floats(3, tokens, v_heads),
        make_weight(random_floats(4, v_heads), "f32"),
        make_weight(-np.abs(random_floats(5, v_heads)), "f32"),
    )  # type: ignore[return-value]


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize(("k_heads", "v_heads", "d", "grouping"), HEADS)
def test_plain_delta_net_matches(k_heads: int, v_heads: int, d: int, grouping: str) -> None:
    how = {"k_heads": k_heads, "v_heads": v_heads, "head_dim": d, "eps": 1e-6, "grouping": grouping}
    check_op(
        Op.SSM_DELTA_NET,
        *delta_operands(k_heads, v_heads, d, 6),
        random_floats(6, 3, v_heads, d, d),
        SEQUENCE,
        **how,
    )


def test_delta_net_updates_the_cache() -> None:
    how = {"k_heads": 2, "v_heads": 4, "head_dim": 16, "eps": 1e-6, "grouping": "tiled"}
    argument, state = delta_operands(2, 4, 16, 6), random_floats(6, 4, 4, 16, 16)
    check_op(Op.SSM_DELTA_NET_INPLACE, *argument, state, SEQUENCE, **how)
    check_op(Op.SSM_DELTA_NET_INPLACE_IDS, *argument, state, SEQUENCE, SOURCE, TARGET, **how)
    check_op(Op.SSM_DELTA_NET_INPLACE_IDS, *argument, state, SEQUENCE, FORKED, OWN, disjoint=True, **how)
    check_op(Op.SSM_DELTA_NET_INPLACE_IDS, *delta_operands(2, 4, 16, 1), state, ONE, SOURCE[:1], TARGET[:1], **how)


def test_delta_net_over_zeros_and_extreme_gates_matches() -> None:
    how = {"k_heads": 1, "v_heads": 2, "head_dim": 8, "eps": 1e-6, "grouping": "tiled"}
    conv, beta, alpha, bias, a = delta_operands(1, 2, 8, 4)
    conv[0], conv[1, :8], conv[2] = 0.0, -0.0, 1e-30
    beta[:], alpha[:] = (
        [[200, -200], [0, -0.0], [np.inf, -np.inf], [1, 2]],
        [[50, -50], [0, 1], [-90, 90], [21, 19]],
    )
    check_op(
        Op.SSM_DELTA_NET,
        conv,
        beta,
        alpha,
        bias,
        a,
        np.zeros((1, 2, 8, 8), np.float32),
        np.zeros(4, np.int32),
        **how,
    )


def test_delta_net_propagates_an_infinite_value() -> None:
    """Of a head narrower than a wave, whose other lanes hold zeros that must stay zeros."""
    how = {"k_heads": 1, "v_heads": 1, "head_dim": 4, "eps": 1e-6, "grouping": "tiled"}
    conv, *rest = delta_operands(1, 1, 4, 1)
    conv = np.abs(conv)
    conv[0, 8] = np.inf
    y, _ = check_op(Op.SSM_DELTA_NET, conv, *rest, np.zeros((1, 1, 4, 4), np.float32), ONE, **how)
    assert np.isinf(y[0, 0]) and np.isfinite(y[0, 1:]).all()


@pytest.mark.parametrize("taps", [2, 3, 5, 9])
def test_convolutions_of_other_widths_match(taps: int) -> None:
    """Prompts longer than the line and shorter, and a sequence without a token, whose inputs stay."""
    w, state = make_weight(random_floats(2, 37, taps), "f32"), random_floats(3, 4, taps - 1, 37)
    x, bias = random_floats(1, 6, 37), make_weight(random_floats(4, 37), "f32")
    check_op(Op.SSM_CONV1D, x, w, state[:3], SEQUENCE, bias)
    check_op(
        Op.SSM_CONV1D,
        random_floats(1, 20, 37),
        w,
        state[:3],
        np.repeat([0, 2], [19, 1]).astype(np.int32),
        None,
        silu=False,
    )
    check_op(Op.SSM_CONV1D_UPDATE, x, w, state, SEQUENCE, None)
    check_op(Op.SSM_CONV1D_UPDATE_IDS, x, w, state, SEQUENCE, SOURCE, TARGET, bias)
    check_op(Op.SSM_CONV1D_UPDATE_IDS, x, w, state, SEQUENCE, FORKED, OWN, None, disjoint=True)


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize(("k_heads", "v_heads", "d"), [(1, 1, 1), (1, 2, 7), (2, 4, 66), (1, 1, 132), (1, 2, 259)])
def test_delta_net_of_other_widths_matches(k_heads: int, v_heads: int, d: int) -> None:
    how = {"k_heads": k_heads, "v_heads": v_heads, "head_dim": d, "eps": 1e-6, "grouping": "tiled"}
    argument, state = delta_operands(k_heads, v_heads, d, 6), random_floats(6, 4, v_heads, d, d)
    check_op(Op.SSM_DELTA_NET, *argument, state[:3], SEQUENCE, **how)
    check_op(
        Op.SSM_DELTA_NET, *argument, state[:3], np.array([0, 0, 0, 2, 2, 2], np.int32), **how
    )  # 1 has no token
    check_op(Op.SSM_DELTA_NET_INPLACE_IDS, *argument, state, SEQUENCE, SOURCE, TARGET, **how)


@pytest.mark.rest
@pytest.mark.parametrize("states", [1, 5, 16, 17, 127, 130, 300])
def test_scans_of_any_number_of_states_match(states: int) -> None:
    channels = 3
    sizes = ((6, channels), (6, channels), (6, states), (6, states))
    u, dt, b, c = (random_floats(seed, *size) for seed, size in enumerate(sizes))
    a, d = make_weight(-np.abs(random_floats(5, channels, states))), make_weight(random_floats(6, channels))
    for sequence in (SEQUENCE, np.array([0, 0, 0, 0, 2, 2], np.int32)):
        check_op(Op.SSM_SCAN, u, dt, b, c, a, d, random_floats(7, 3, channels, states), sequence)


@pytest.mark.parametrize("shape", [(5,), (3, 100), (2, 3, 50)])
def test_request_state_is_gathered_and_scattered(shape: tuple[int, ...]) -> None:
    table, slot = random_floats(1, 6, *shape), np.array([4, 0, 5], np.int32)
    check_op(Op.LOAD_REQUEST_STATE, table, slot)
    check_op(Op.STORE_REQUEST_STATE, random_floats(2, 3, *shape), slot, table)
