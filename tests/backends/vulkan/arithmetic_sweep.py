"""Functions of canonical.glsl at every one of the 2^32 arguments there are, against NumPy and the oracle.

    python tests/backends/vulkan/arithmetic_sweep.py                 # all functions: an hour or two on two cores
    python tests/backends/vulkan/arithmetic_sweep.py 'fsqrt_(a)'     # one

Runs on the first Vulkan device. The suite sweeps some blocks of each.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.device import list_devices, open_device
from zinc_rt.backends.vulkan.self_test import run_operations
from zinc_rt.backends.vulkan.self_test_cases import OPERATIONS, Operands, WrongBits, find_wrong_bits
from zinc_rt.kernels.spirv.table import KERNELS

DIVISORS = (0x3F800001, 0x40490FDB, 0x3EAAAAAB, 0x00000003, 0x7F7FFFFF)  # near 1, pi, a third, denormal, largest
QUOTIENT = "fdiv_(a, b)"
SWEPT = {
    **{name: (name, 0) for name in ("fsqrt_(a)", "fexp_(a)", "flog_(a)")},
    **{f"fdiv_(a, {divisor:#010x})": (QUOTIENT, divisor) for divisor in DIVISORS},
}
"""What is swept: the operation, and b."""
BLOCK = 1 << 18
ALL_BLOCKS = (1 << 32) // BLOCK
SCATTER = np.uint32(0x9E3779B1)  # odd: modulo 2^32 it only changes the order


def sweep_blocks(backend: VulkanBackend, function: str, *, blocks: int) -> WrongBits | None:
    """Return the errors of the first incorrect block. A block samples arguments from the whole range, each block
    different ones; ALL_BLOCKS blocks cover every argument.
    """
    name, divisor = SWEPT[function]
    number = [operation.name for operation in OPERATIONS].index(name)
    b = np.full(BLOCK, divisor, np.uint32)
    for block in range(blocks):
        a = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.uint32) * SCATTER
        operands = Operands(a, b, b)
        (got,) = run_operations(backend, operands, (number,))
        if (result := find_wrong_bits(number, operands, got)) is not None:
            return result
    return None


def main(functions: list[str]) -> int:
    device = open_device(list_devices()[0])
    print(f"on {device.physical.name}, {device.physical.driver}")
    wrong = 0
    with VulkanBackend(
        registry.spec("vulkan"), "canonical-1", device, KERNELS, VulkanOptions(), after=device.close
    ) as backend:
        for function in functions or SWEPT:
            start = time.perf_counter()
            result = sweep_blocks(backend, function, blocks=ALL_BLOCKS)
            wrong += result is not None
            took = time.perf_counter() - start
            print(f"{function}: {result or f'{1 << 32} arguments, 0 wrong bits'}, {took:.0f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
