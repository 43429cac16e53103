"""Test whether a device computes canonical-1: run every operation of self_test_cases.py on it once.

Device features do not show how a driver's compiler transforms float arithmetic. Therefore the first open of a
device by a driver runs a kernel with all operations. The result is cached for that device, driver and kernel,
which uses the same canonical.glsl as all others. The test takes 0.1 to 0.2 s on lavapipe, mostly in its compiler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from zinc_rt.backends.vulkan.backend import VulkanBackend
from zinc_rt.backends.vulkan.self_test_cases import (
    KERNEL,
    OPERATIONS,
    Operands,
    WrongBits,
    find_wrong_bits,
    make_operands,
)
from zinc_rt.host.files import cache_folder
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.kernels.launch import Launch, Ref
from zinc_rt.mem.heaps import BufferHeap

INVOCATIONS = 32  # size of self_test.comp's workgroup
CANONICAL = "canonical-1"


def find_refusal(backend: VulkanBackend, cache: ObjectCache | None = None) -> str:
    """Return why the backend's device cannot support canonical-1: the first operation with wrong bits, its
    operands, the expected and the actual result; "" if all bits are right. `cache`, by default in the user's cache
    folder, stores successful tests only: a refused device is tested again."""
    cache = ObjectCache(cache_folder() / "vulkan") if cache is None else cache
    key = f"self-test-{digest_inputs(backend)}"
    if cache.load(key) is not None:
        return ""
    for difference in find_differences(backend):
        return f"{CANONICAL} on {_format_device_name(backend)}: its driver computes different bits: {difference}"
    cache.store(key, _format_device_name(backend).encode())
    return ""


def find_differences(backend: VulkanBackend, given: Operands | None = None) -> tuple[WrongBits, ...]:
    """Return the operations with wrong bits, in order. `given`: operands to use instead of those of the
    self-test.
    """
    given = make_operands() if given is None else given
    numbers = range(len(OPERATIONS))
    got = run_operations(backend, given, numbers)
    wrong = (find_wrong_bits(number, given, bits) for number, bits in zip(numbers, got, strict=True))
    return tuple(item for item in wrong if item is not None)


def run_operations(backend: VulkanBackend, operands: Operands, numbers: Iterable[int]) -> np.ndarray:
    """Return the results of the consecutive operations with these `numbers`: uint32 [operations, n]."""
    first, *others = numbers
    count, n = 1 + len(others), len(operands.a)
    sizes = {"a": 4 * n, "b": 4 * n, "c": 4 * n, "y": 4 * n * count}
    buffers = {
        name: backend.alloc(size, BufferHeap.BAR, f"self-test {name}", zeroed=False)
        for name, size in sizes.items()
    }
    try:
        for name, bits in (("a", operands.a), ("b", operands.b), ("c", operands.c)):
            backend.write(buffers[name], 0, memoryview(bits.tobytes()))
        grid = (-(-n // INVOCATIONS), count, 1)
        backend.dispatch(Launch(KERNEL, tuple(map(Ref, sizes)), (n, first), grid), buffers)
        got = np.frombuffer(backend.read(buffers["y"], 0, sizes["y"]), np.uint32)
        return got.reshape(count, n).copy()
    finally:
        for buffer in buffers.values():
            backend.free(buffer)


def digest_inputs(backend: VulkanBackend) -> str:
    """Return the digest of all inputs of the test: device, driver, float modes, kernel."""
    device = backend.vulkan
    physical = device.physical
    about = (physical.name, physical.driver, physical.pipeline_cache_uuid.hex(), *device.float_modes)
    kernel = backend.kernels.module(KERNEL)
    return hashlib.sha256("\0".join(about).encode() + kernel).hexdigest()


def _format_device_name(backend: VulkanBackend) -> str:
    return f"{backend.vulkan.physical.name} ({backend.vulkan.physical.driver})"
