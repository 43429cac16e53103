"""Weights stored as another type: every value of theirs survives, and sizes are known before."""

import numpy as np
import pytest

from zinc_rt.ir.dtypes import count_row_bytes
from zinc_rt.kernels.reference.arithmetic.dequantise import dequantise
from zinc_rt.kernels.rows import repack
from zinc_rt.kernels.rows.expand import (
    EVERY_OTHER_TYPE,
    count_packed_bytes,
    expand_weight,
    list_expanded_types,
    pack_weight,
)
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.kernels.weight import Weight
from zinc_rt.validate.cases.sweep import TYPES

ROWS, K = 300, 512


def any_bytes(dtype: str, *shape: int) -> Weight:
    """Blocks of random bytes, with all kinds of scales, including infinities and NaN."""
    raw = np.random.default_rng(7).integers(
        0, 256, (*shape[:-1], count_row_bytes(dtype, shape[-1])), dtype=np.uint8
    )
    return Weight(dtype, shape, raw)


def test_every_type_has_a_kernel_or_is_dequantised_at_load() -> None:
    assert set(TYPES) == {*repack.WEIGHT_TYPES, *EVERY_OTHER_TYPE}
    assert set(EVERY_OTHER_TYPE.values()) <= set(repack.PLAIN_DTYPES)


@pytest.mark.rest(keep=9)
@pytest.mark.parametrize("dtype", EVERY_OTHER_TYPE)
def test_every_value_is_preserved(dtype: str) -> None:
    weight = any_bytes(dtype, 2, ROWS, K)
    stored = expand_weight(EVERY_OTHER_TYPE, weight)
    assert (stored.dtype, stored.shape) == (EVERY_OTHER_TYPE[dtype], weight.shape)
    with np.errstate(all="ignore"):
        wanted, got = dequantise(weight), dequantise(stored)
    assert np.array_equal(np.isnan(wanted), np.isnan(got))
    numbers = ~np.isnan(wanted)
    assert np.array_equal(wanted[numbers].view(np.uint32), got[numbers].view(np.uint32))
    assert pack_weight(EVERY_OTHER_TYPE, weight).nbytes == count_packed_bytes(EVERY_OTHER_TYPE, weight)


@pytest.mark.parametrize("dtype", repack.FORMATS)
def test_other_types_are_packed_unchanged(dtype: str) -> None:
    weight = any_bytes(dtype, 3, K)
    assert np.array_equal(pack_weight(EVERY_OTHER_TYPE, weight), repack.pack_weight(weight))
    assert expand_weight(EVERY_OTHER_TYPE, weight) is weight


def test_packed_weights_are_whole_words() -> None:
    odd = Weight("f16", (3, 5), np.ones((3, 5), np.float16))
    packed = pack_weight(EVERY_OTHER_TYPE, odd)
    assert packed.nbytes == count_packed_bytes(EVERY_OTHER_TYPE, odd) == 32
    assert not packed[30:].any()


def test_report_shows_the_memory_cost() -> None:
    weights = [any_bytes("q5_0", 4, K), any_bytes("q8_0", 4, K), any_bytes("q5_0", 8, K), any_bytes("tq1_0", 2, K)]
    first, second = list_expanded_types(EVERY_OTHER_TYPE, weights)
    assert (first.dtype, first.stored, first.tensors, first.device_bytes) == ("q5_0", "f32", 2, 12 * K * 4)
    assert first.file_bytes == 12 * K // 32 * 22
    assert (second.stored, second.device_bytes) == ("f16", 2 * K * 2)
    assert str(second).startswith("1 tq1_0 tensor expanded to f16: ")


def test_devices_dequantise_at_load_and_the_cpu_does_not() -> None:
    assert all(find_kernel_set(name).expansions == EVERY_OTHER_TYPE for name in ("spirv", "gfx1201", "radv"))  # type: ignore[union-attr]
    assert not any(find_kernel_set(name).expansions for name in ("native", "numpy-reference"))  # type: ignore[union-attr]
