"""Convert a kernel dispatch packet and its kernel descriptor to the registers that launch it.

LLVM AMDGPUUsage, "Initial Kernel Execution State" defines the contents and order of the user SGPRs.
"""

from __future__ import annotations

from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp.execute.dispatch import (
    COMPUTE_SHADER_EN,
    CS_W32_EN,
    FORCE_START_AT_000,
    MAX_GROUP_THREADS,
    PARTIAL_TG_EN,
    USE_THREAD_DIMENSIONS,
)
from zinc_rt.sim.cp.interruptions import IllegalPacket
from zinc_rt.sim.interfaces import AddressSpace, HardwareQueue
from zinc_rt.sim.tables import aql
from zinc_rt.sim.tables import registers as register
from zinc_rt.sim.tables.aql import AqlFault, DispatchPacket, KernelDescriptor

LDS_BYTES = 65536
LDS_GRANULE_BYTES = 512
SCRATCH_UNIT_BYTES = 256
LDS_SIZE_MASK = 0x1FF << 15
SCRATCH_EN = 1


class AqlRejected(IllegalPacket):
    """A packet that ends the queue, with the exception that amdkfd reports to the process."""

    def __init__(self, code: AqlFault, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class NoScratch(Exception):
    """The queue has less scratch per wave than the dispatch needs. `queue_va`: its amd_queue_t, or 0."""

    def __init__(self, queue_va: int, sentence: str) -> None:
        super().__init__(sentence)
        self.queue_va = queue_va


def make_dispatch_registers(
    space: AddressSpace, queue: HardwareQueue, packet: DispatchPacket, packet_va: int, generation: Generation
) -> tuple[dict[int, int], int]:
    """Return (SH registers by offset, dispatch initiator). Raises AqlRejected, NoScratch, Fault."""
    group, dims = packet.group_threads, packet.setup & 3
    if not dims or 0 in packet.grid_threads or any(size > 1 for size in packet.grid_threads[dims:]):
        raise AqlRejected(AqlFault.DIM_INVALID, f"a grid of {packet.grid_threads} work-items in {dims} dimensions")
    if not 0 < group[0] * group[1] * group[2] <= MAX_GROUP_THREADS:
        raise AqlRejected(
            AqlFault.WORK_GROUP_SIZE_INVALID,
            f"workgroups of {group}: expected 1 to {MAX_GROUP_THREADS} work-items",
        )
    if packet.group_bytes > LDS_BYTES:
        raise AqlRejected(
            AqlFault.GROUP_SEGMENT_SIZE_INVALID, f"{packet.group_bytes} bytes of LDS: a workgroup has {LDS_BYTES}"
        )
    if not packet.kernel_va or packet.kernel_va % aql.DESCRIPTOR_BYTES:
        raise AqlRejected(
            AqlFault.CODE_INVALID,
            f"kernel object 0x{packet.kernel_va:x}: expected a descriptor, aligned to 64 bytes",
        )
    kernel = KernelDescriptor.read(space.read(packet.kernel_va, aql.DESCRIPTOR_BYTES))
    program_va = packet.kernel_va + kernel.entry_offset
    if kernel.preload or program_va % 256:
        raise AqlRejected(
            AqlFault.CODE_INVALID,
            f"kernel object 0x{packet.kernel_va:x}: entry 0x{program_va:x} (aligned to 256 bytes?), "
            f"preloaded arguments {kernel.preload:#x} (this chip has none)",
        )
    if packet.kernarg_va and kernel.kernarg_bytes:
        space.flush_hdp((packet.kernarg_va, kernel.kernarg_bytes))  # facts.yaml, cp/aql_arguments_through_bar
    about_queue = find_queue_va(space, queue)
    wave = 32 if kernel.properties & aql.WAVE32 else 64
    blocks = -(-packet.group_bytes // LDS_GRANULE_BYTES)
    result = {
        register.PGM_LO: program_va >> 8 & 0xFFFFFFFF,
        register.PGM_HI: program_va >> 40,
        register.PGM_RSRC1: kernel.rsrc1,
        register.PGM_RSRC2: kernel.rsrc2 & ~LDS_SIZE_MASK | blocks << 15,
        register.PGM_RSRC3: kernel.rsrc3,
        **{register.NUM_THREAD_X + axis: group[axis] for axis in range(3)},
        **{register.START_X + axis: 0 for axis in range(3)},
    }
    if kernel.rsrc2 & SCRATCH_EN:
        result |= _scratch_registers(space, about_queue, packet.private_bytes * wave)
    user = _make_user_data(kernel, packet, packet_va, about_queue, queue)
    result |= {register.USER_DATA_0 + index: value for index, value in enumerate(user)}
    initiator = COMPUTE_SHADER_EN | FORCE_START_AT_000 | USE_THREAD_DIMENSIONS | PARTIAL_TG_EN
    return result, initiator | (CS_W32_EN if wave == 32 else 0)


def find_queue_va(space: AddressSpace, queue: HardwareQueue) -> int:
    """Return the address of amd_queue_t, from the offset next to the read index; 0 if the client has none."""
    beside = aql.QUEUE_BASE_OFFSET - aql.QUEUE_READ_INDEX
    offset = int.from_bytes(space.read(queue.rptr_va + beside, 4), "little")
    return queue.rptr_va - offset if offset == aql.QUEUE_READ_INDEX else 0


def _scratch_registers(space: AddressSpace, about_queue: int, wave_bytes: int) -> dict[int, int]:
    if not wave_bytes:
        return {}
    if not about_queue:
        raise NoScratch(
            0, (f"{wave_bytes} bytes of scratch per wave, and the queue has no amd_queue_t that provides any")
        )
    tmpring = int.from_bytes(space.read(about_queue + aql.QUEUE_TMPRING_SIZE, 4), "little")
    va = int.from_bytes(space.read(about_queue + aql.QUEUE_SCRATCH_VA, 8), "little")
    held = (tmpring >> 12 & 0x3FFFF) * SCRATCH_UNIT_BYTES
    if not va or not tmpring & 0xFFF or held < wave_bytes:
        raise NoScratch(about_queue, f"{wave_bytes} bytes of scratch per wave; TMPRING_SIZE has {held}")
    return {
        register.TMPRING_SIZE: tmpring,
        register.SCRATCH_BASE_LO: va >> 8 & 0xFFFFFFFF,
        register.SCRATCH_BASE_HI: va >> 40,
    }


def _make_user_data(
    kernel: KernelDescriptor, packet: DispatchPacket, packet_va: int, about_queue: int, queue: HardwareQueue
) -> list[int]:
    words: list[int] = []
    for bit, value, size in (
        (aql.SGPR_SEGMENT_BUFFER, 0, 4),
        (aql.SGPR_DISPATCH_PTR, packet_va, 2),
        (aql.SGPR_QUEUE_PTR, about_queue, 2),
        (aql.SGPR_KERNARG, packet.kernarg_va, 2),
        (aql.SGPR_DISPATCH_ID, (packet_va - queue.ring_va) // aql.PACKET_BYTES, 2),
        (aql.SGPR_FLAT_SCRATCH, 0, 2),
        (aql.SGPR_PRIVATE_SIZE, packet.private_bytes, 1),
    ):
        if kernel.properties & bit:
            words += [value >> 32 * index & 0xFFFFFFFF for index in range(size)]
    return words
