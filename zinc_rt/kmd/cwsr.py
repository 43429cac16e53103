"""The required size of a compute queue's context save area. KFD requires its exact sizes.

It uses the arithmetic of kfd_queue_ctx_save_restore_size in amdkfd/kfd_queue.c; if the topology node contains the
results (Linux 6.19), those are used instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.isa.target import TARGETS
from zinc_rt.kmd.syscalls import round_up_to_pages
from zinc_rt.kmd.topology import TopologyNode, format_arch_name

# bytes per CU, amdkfd/kfd_queue.c
_SGPR = 0x4000
_LDS = 0x10000
_HWREG = 0x1000
_VGPR = 0x40000  # of a chip without a row in isa.target

_HEADER = 40  # SIZEOF_HSA_USER_CONTEXT_SAVE_AREA_HEADER
_CONTROL_PER_WAVE = 12  # gfx10 and later
_DEBUG_PER_WAVE = 32
_WAVES_PER_CU = 32


@dataclass(frozen=True, slots=True)
class CwsrSizes:
    control_stack_bytes: int  # ctl_stack_size: equal to KFD's
    save_bytes: int  # ctx_save_restore_size, control stack included: not below KFD's
    buffer_bytes: int  # the buffer: exactly this
    source: str


def list_cwsr_sizes(node: TopologyNode) -> tuple[CwsrSizes, ...]:
    """Return the sizes to try with CREATE_QUEUE, in order; several only if Linux versions differ and the node does
    not report them.
    """
    if node.generation < (10, 1, 0):
        raise UnsupportedError(f"{node.arch}: queues of chips before gfx10 are not supported by this version")
    stack, save = (node.properties.get(name, 0) for name in ("ctl_stack_size", "cwsr_size"))
    units = node.compute_units // node.xccs
    if stack and save:
        return (_add_debug_area(units, node.xccs, stack, save, "topology node"),)
    return compute_sizes(node.generation, units, node.xccs)


def compute_sizes(generation: tuple[int, int, int], units: int, xccs: int = 1) -> tuple[CwsrSizes, ...]:
    """Return the sizes for a chip with `units` compute units per XCC; several if Linux versions differ."""
    target = TARGETS.get(format_arch_name(generation))
    vgprs = (_VGPR,) if target is None else target.vgpr_bytes_per_cu
    sources = ("computed",) if len(vgprs) == 1 else ("computed, older Linux", "computed, newer Linux")
    result = []
    for vgpr_bytes, source in zip(vgprs, sources, strict=True):
        stack = round_up_to_pages(_HEADER + units * _WAVES_PER_CU * _CONTROL_PER_WAVE + 8)
        if generation[0] == 10:
            stack = min(stack, 0x7000)
        save = stack + round_up_to_pages(units * (vgpr_bytes + _SGPR + _LDS + _HWREG))
        result.append(_add_debug_area(units, xccs, stack, save, source))
    return tuple(result)


def _add_debug_area(units: int, xccs: int, stack: int, save: int, source: str) -> CwsrSizes:
    debug = units * _WAVES_PER_CU * _DEBUG_PER_WAVE
    debug += -debug % 64
    return CwsrSizes(stack, save, round_up_to_pages((save + debug) * xccs), source)
