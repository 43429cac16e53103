"""One node through the kernels of set spirv on a Vulkan driver, every operand between poisoned pages.

    with SpirvBench(device) as bench, launched_in_reverse():
        bench.check(case)       # every output's bits, what lies behind the counts, inputs, and the poison

Launches without a barrier between may run in any order, so also in reverse. An operand that a kernel writes beside
is named; one that it reads beside gives NaN. lavapipe itself lets both pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.vulkan import executable
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.device import PhysicalDevice, open_device
from zinc_rt.exec import Buffer, Stream
from zinc_rt.host.errors import CheckFailed
from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.cases import Case, Operand
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.table import FUNCTIONS
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.lower import Barrier, Dispatch, DispatchPlan, LoweredGraph, dispatch_plan, lower
from zinc_rt.lower.one_node import GARBAGE, OneNode, build_one_node
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.validate.kernel_test.bits import find_first_difference

ORDERING = "canonical-1"
SECONDS = 120.0
GUARDED = VulkanOptions(guarded=True)


def reversed_plan(lowered: LoweredGraph) -> DispatchPlan:
    """Return the plan with the dispatches between each two barriers in reverse order."""
    plan = dispatch_plan(lowered)
    steps: list[Dispatch | Barrier] = []
    run: list[Dispatch] = []
    for step in plan.steps:
        if isinstance(step, Dispatch):
            run.append(step)
            continue
        steps += [*reversed(run), step]
        run.clear()
    return replace(plan, steps=(*steps, *reversed(run)))


class SpirvBench:
    """A guarded backend that runs cases one after another. A context manager."""

    def __init__(self, device: PhysicalDevice, options: VulkanOptions = GUARDED) -> None:
        opened = open_device(device)
        spec = registry.spec("vulkan")
        self.backend = VulkanBackend(spec, ORDERING, opened, KERNELS, options, after=opened.close)
        self._stream = Stream("cases")

    def __enter__(self) -> SpirvBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.close()

    def check(self, case: Case) -> None:
        """Raises AssertionError with the case and the error."""
        operands = case.operands()
        wanted, fresh = run_oracle(case.op, operands, case.attrs)
        node = build_one_node(case.op, operands, fresh, capacity=case.room, **case.attrs)
        try:
            self._compare_outputs(node, wanted, self.run(node))
        except (AssertionError, CheckFailed) as error:
            raise AssertionError(f"{case.text()}: {error}") from error

    def run(self, node: OneNode) -> dict[str, np.ndarray]:
        """Return every operand after the run, except weights. Raises CheckFailed if a kernel wrote outside an
        operand.
        """
        backend = self.backend
        lowered = lower(node.graph, KERNELS.entries, node.make_separate_plan(), ordering=ORDERING, tier="vulkan")
        buffers = backend.upload(node.weights, {})
        try:
            for name, array in node.operands.items():
                buffers[name] = backend.alloc(array.nbytes, BufferHeap.HOST_VISIBLE, name, zeroed=False)
                backend.write(buffers[name], 0, memoryview(np.ascontiguousarray(array)).cast("B"))
            built = backend.build(lowered, buffers)
            try:
                backend.wait(backend.submit(built, self._stream), SECONDS)
            finally:
                backend.unload(built)
            return {name: self._read_array(buffers[name], like) for name, like in node.operands.items()}
        finally:
            for buffer in buffers.values():
                backend.free(buffer)

    def _read_array(self, buffer: Buffer, template: np.ndarray) -> np.ndarray:
        content = np.frombuffer(self.backend.read(buffer, 0, template.nbytes), np.uint8).copy()
        return content.view(template.dtype).reshape(template.shape)

    def _compare_outputs(self, node: OneNode, wanted: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
        stored = {
            node.find_storage(name): want for name, want in zip(node.node.outputs, wanted.values(), strict=False)
        }
        for name, want in stored.items():
            counted = tuple(slice(0, size) for size in want.shape)
            _, difference = find_first_difference(name, got[name][counted], want)
            assert difference is None, difference.text
            behind = np.ones(got[name].shape, bool)
            behind[counted] = False
            untouched = np.ascontiguousarray(got[name][behind]).view(np.uint8)
            assert (untouched == GARBAGE).all(), f"{name}: wrote past the step's counts"
        for name, array in node.operands.items():
            assert name in stored or got[name].tobytes() == array.tobytes(), f"input {name} was changed"


def run_oracle(
    op: Op, operands: tuple[Operand, ...], attrs: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...]]:
    """Return T-CPU's outputs by port, and the outputs that are not in place."""
    spec = OPS[op]
    mine = tuple(operand.copy() if isinstance(operand, np.ndarray) else operand for operand in operands)
    absent = (None,) * (len(spec.inputs) - len(mine))
    with np.errstate(all="ignore"):
        result = FUNCTIONS[op](arithmetic(ORDERING), *mine, *absent, **attrs)
    fresh = result if isinstance(result, tuple) else () if result is None else (result,)
    output, argument = iter(fresh), dict(zip((port.name for port in spec.inputs), mine, strict=False))
    wanted: dict[str, np.ndarray] = {}
    for port in spec.outputs:
        value = argument[port.inplace] if port.inplace else next(output, None)
        if isinstance(value, np.ndarray):
            wanted[port.name] = value
    return wanted, fresh


@contextmanager
def launched_in_reverse() -> Iterator[None]:
    """Every graph that is built within."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executable, "plan_dispatches", reversed_plan)
        yield
