"""Recurrences on Vulkan: which forms the kernel set takes, and that they are the same to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.op_cases import make_weight, random_floats, run_op

from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201 import table as gfx1201
from zinc_rt.kernels.launch import list_kernel_names
from zinc_rt.kernels.spirv.table import ENTRIES
from zinc_rt.lower.lower import choose_entry, find_refusal
from zinc_rt.lower.one_node import OneNode, build_one_node
from zinc_rt.validate.kernel_test.bench import CaseBench

CHANNELS, HEADS, WIDTH = 37, 4, 20
SEQUENCE = np.array([0, 0, 0, 1, 1, 2], np.int32)
TOKENS, SEQUENCES, SLOTS = len(SEQUENCE), 3, 6
SOURCE, TARGET = np.array([3, 0, 2], np.int32), np.array([1, 3, 0], np.int32)  # rows that others write and read
FORKED, OWN = np.array([5, 1, 5], np.int32), np.array([0, 1, 2], np.int32)  # two begin at a row nobody writes

PLAIN, INPLACE, IDS = "plain", "inplace", "ids"
CONV = {PLAIN: Op.SSM_CONV1D, INPLACE: Op.SSM_CONV1D_UPDATE, IDS: Op.SSM_CONV1D_UPDATE_IDS}
DELTA = {PLAIN: Op.SSM_DELTA_NET, INPLACE: Op.SSM_DELTA_NET_INPLACE, IDS: Op.SSM_DELTA_NET_INPLACE_IDS}


def convolution_node(form: str, cache: np.ndarray, *ids: np.ndarray, **attrs: Any) -> OneNode:
    taps, bias = make_weight(random_floats(2, CHANNELS, 4)), make_weight(random_floats(3, CHANNELS))
    operands = (random_floats(1, TOKENS, CHANNELS), taps, cache, SEQUENCE, *ids, bias)
    return build_one_node(CONV[form], operands, fresh_outputs(form, (TOKENS, CHANNELS), cache), silu=True, **attrs)


def delta_net_node(form: str, cache: np.ndarray, *ids: np.ndarray, width: int = WIDTH, **attrs: Any) -> OneNode:
    conv_out, beta, alpha = (
        random_floats(1, TOKENS, 2 * HEADS * width),
        random_floats(2, TOKENS, HEADS),
        random_floats(3, TOKENS, HEADS),
    )
    dt_bias, a = make_weight(random_floats(4, HEADS)), make_weight(-np.abs(random_floats(5, HEADS)))
    how = {"k_heads": HEADS // 2, "v_heads": HEADS, "head_dim": width, "eps": 1e-6, "grouping": "tiled", **attrs}
    operands = (conv_out, beta, alpha, dt_bias, a, cache, SEQUENCE, *ids)
    return build_one_node(DELTA[form], operands, fresh_outputs(form, (TOKENS, HEADS * width), cache), **how)


def fresh_outputs(form: str, y: tuple[int, int], cache: np.ndarray) -> list[np.ndarray]:
    result = [np.empty(y, np.float32)]
    return [*result, np.empty_like(cache)] if form == PLAIN else result


MIXERS = {
    "convolution": (convolution_node, (SLOTS, 3, CHANNELS)),
    "delta_net": (delta_net_node, (SLOTS, HEADS, WIDTH, WIDTH)),
}


def rejection_of(node: OneNode) -> str | None:
    """Return the table's entry for a node that represents its form."""
    return find_refusal(node.node, node.graph, ENTRIES, "canonical-1")


@pytest.mark.parametrize("mixer", MIXERS)
def test_every_form_is_accepted(mixer: str) -> None:
    make, shape = MIXERS[mixer]
    cache = np.zeros(shape, np.float32)
    assert rejection_of(make(PLAIN, cache[:SEQUENCES])) is None
    assert rejection_of(make(INPLACE, cache)) is None
    assert rejection_of(make(IDS, cache, SOURCE, TARGET)) is None
    assert rejection_of(make(IDS, cache, FORKED, OWN, disjoint=True)) is None


@pytest.mark.parametrize("width", [18, 132])
@pytest.mark.parametrize("form", DELTA)
def test_head_too_large_for_registers_uses_the_generic_kernel(form: str, width: int) -> None:
    cache = np.zeros((SLOTS if form != PLAIN else SEQUENCES, HEADS, width, width), np.float32)
    node = delta_net_node(form, cache, *((SOURCE, TARGET) if form == IDS else ()), width=width)
    for entries in (ENTRIES, gfx1201.KERNELS.entries):
        entry = choose_entry(node.node, node.graph, entries, "canonical-1")
        assert isinstance(entry, Entry), entry
        assert "delta_net_any" in list_kernel_names(entry.code, node.node, node.graph, node.capacity)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("mixer", MIXERS)
def test_fused_forms_match_the_plain_form_bits(bench: CaseBench, mixer: str) -> None:
    """In place and by ids: the same results, the same states, and every other row as it was."""
    make, shape = MIXERS[mixer]
    cache = random_floats(6, *shape)
    for source, target, attrs in ((SOURCE, TARGET, {}), (FORKED, OWN, {"disjoint": True})):
        plain = bench.results(make(PLAIN, cache[source]))
        y, state = plain["y"], plain["state_out"]
        assert np.isfinite(y).all() and y.any() and (state != cache[source]).any()

        moved = cache.copy()
        moved[:SEQUENCES] = cache[source]
        inplace = bench.results(make(INPLACE, moved))
        assert_same_bits(inplace["y"], y)
        assert_same_bits(inplace["state"], np.concatenate([state, moved[SEQUENCES:]]))

        wanted = cache.copy()
        wanted[target] = state
        ids = bench.results(make(IDS, cache, source, target, **attrs))
        assert_same_bits(ids["y"], y)
        assert_same_bits(ids["state"], wanted)


def test_delta_net_propagates_an_infinite_value(bench: CaseBench) -> None:
    """What a row of the state has behind a narrow head adds nothing, times infinity neither."""
    conv_out = np.abs(random_floats(1, 1, 12))
    conv_out[0, 8] = np.inf
    gates = (
        random_floats(2, 1, 1),
        random_floats(3, 1, 1),
        make_weight(random_floats(4, 1)),
        make_weight(-np.abs(random_floats(5, 1))),
    )
    operands = (conv_out, *gates, np.zeros((1, 1, 4, 4), np.float32), np.zeros(1, np.int32))
    how = {"k_heads": 1, "v_heads": 1, "head_dim": 4, "eps": 1e-6, "grouping": "tiled"}
    wanted = run_op(Op.SSM_DELTA_NET, "canonical-1", *operands, **how)
    got = bench.results(build_one_node(Op.SSM_DELTA_NET, operands, wanted, **how))
    assert_same_bits(got["y"], wanted[0])
    assert np.isinf(got["y"][0, 0]) and np.isfinite(got["y"][0, 1:]).all()


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    assert got.view(np.uint32).tolist() == want.view(np.uint32).tolist()
