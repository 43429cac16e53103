"""The content of a dispatch plan's block once addresses are known: the part written by the host, for every
target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zinc_rt.kernels.launch import Operand, Ref, Stride, Temp
from zinc_rt.lower.dispatch_plan import DispatchPlan


def build_content(plan: DispatchPlan, va: int, address: Callable[[Ref], int]) -> bytes:
    """Return the content that the host writes into the block at `va`, starting at byte `specs_offset`.

    `address` maps a byte of a graph's buffer to its address.
    """
    image = bytearray(plan.size_bytes)

    for step in plan.dispatches:

        def resolve_operand(operand: Operand, temps: Mapping[str, int] = step.temps) -> int:
            assert not isinstance(operand, Stride), f"{operand.name} is packed: its rows fix its strides"
            return va + temps[operand.name] if isinstance(operand, Temp) else address(operand)

        block = step.launch.pack_kernarg(resolve_operand)
        image[step.arguments_offset : step.arguments_offset + len(block)] = block
    image[plan.specs_offset : plan.specs_offset + len(plan.grid_specs)] = plan.grid_specs
    return bytes(image[plan.specs_offset :])
