"""Denormals are values in every call, whatever the process did to its threads; they get back what they had."""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from backends.native_pool import Pool, Step

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads MXCSR")

FLUSH_TO_ZERO, DENORMALS_ARE_ZERO, ROUND_DOWN = 1 << 15, 1 << 6, 1 << 13
IEEE = 0x1F80  # every exception masked, to nearest, nothing flushed
RAISED = 0x3F  # what has happened so far: no part of the mode
ITEMS = 64


@contextmanager
def float_mode(pool: Pool, bits: int) -> Iterator[None]:
    before = pool.code.get_float_mode()
    pool.code.set_float_mode(IEEE | bits)
    try:
        yield
    finally:
        pool.code.set_float_mode(before)


@pytest.mark.rest(keep=4)
@pytest.mark.parametrize(
    "bits", [FLUSH_TO_ZERO, DENORMALS_ARE_ZERO, FLUSH_TO_ZERO | DENORMALS_ARE_ZERO, ROUND_DOWN]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_call_computes_with_denormals_and_restores_the_mode(threads: int, bits: int) -> None:
    modes, sums = np.zeros(ITEMS, np.uint32), np.zeros(ITEMS, np.float32)
    denormal = np.array([71362], np.uint32).view(np.float32)  # 1e-40: twice that is twice the bits
    with Pool(threads) as pool, float_mode(pool, bits):  # helpers start inside and inherit the caller's mode
        for _ in range(20):
            modes[:], sums[:] = 0, 0
            assert pool.run([Step("float_mode", (modes, sums, denormal), ITEMS, most=1)]) == 0
            assert pool.code.get_float_mode() & ~RAISED == IEEE | bits
            assert (modes & ~np.uint32(RAISED) == IEEE).all()
            assert (sums.view(np.uint32) == 2 * 71362).all()


def test_helper_restores_its_float_mode() -> None:
    result: list[int] = []
    with Pool(2) as pool:

        def run_helper_once() -> None:
            with float_mode(pool, FLUSH_TO_ZERO):
                pool.code.zrt_help(ctypes.byref(pool.helpers.pool), 0)
                result.append(pool.code.get_float_mode() & ~RAISED)

        thread = threading.Thread(target=run_helper_once)
        thread.start()
        thread.join(60)
    assert result == [IEEE | FLUSH_TO_ZERO]
