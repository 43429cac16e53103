"""Tools for shader probes: their kernels, and the packets that launch one on a queue.

bench = ShaderBench(c)                              # a queue, memory for code and arguments
store = bench.load("store", VALUE=7)          # probes/kernels/store.zrt, its constant patched
bench.run(store, [out])                       # one workgroup; raises Stuck
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any

from zinc_rt.backends.amd.packet_list import ACQUIRE_CACHES
from zinc_rt.isa.target import make_default_target
from zinc_rt.kernels.zrt import Zrt, patch_literals, read_zrt
from zinc_rt.kmd.topology import format_arch_name
from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, DispatchIndirect, SetShReg
from zinc_rt.pm4.registers import WAVE32, WAVE64, Sh
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import MappedBuffer
from zinc_rt.probes.kit.probe_queue import ProbeQueue
from zinc_rt.probes.outcome import Outcome, make_skip

KERNELS = Path(__file__).parent.parent / "kernels"
CODE_BYTES = 1 << 17
ARGUMENTS_BYTES = 1 << 14
CODE_ALIGNMENT = 256  # PGM_LO has no room for more
ARGUMENTS_ALIGNMENT = 64  # a scalar cache line
FORCE_START_AT_000 = 1 << 2
USER_SGPR_FIELD, TGID_FIELD = 0x1F << 1, 0b111 << 7  # of RSRC2
FLOAT_MODE_FIELD = 0xFF << 12  # of RSRC1
SCRATCH_UNIT_BYTES = 256
WAVES_PER_CU = 32
COMPILE_SECONDS = 20.0  # a simulated device compiles a kernel before it first runs it
TARGET = make_default_target()  # what the kernels are assembled for: chips of its generation run the same code
GENERATION = TARGET.generation

Triple = tuple[int, int, int]
Probing = Callable[[ProbeContext], Outcome]


@cache
def load_kernel(name: str) -> Zrt:
    path = KERNELS / f"{name}.zrt"
    return read_zrt(path.read_bytes(), path.name)


def explain_missing_kernels(generation: Sequence[int]) -> str:
    """Return the reason why the kernels cannot run on this generation; empty if they can."""
    if generation[0] == GENERATION:
        return ""
    major, minor, step = generation
    return f"the probes' kernels are {TARGET.name} code, this is {format_arch_name((major, minor, step))}"


def require_gfx12(run: Probing) -> Probing:
    """Skip the probe on other generations."""

    @wraps(run)
    def run_guarded(c: ProbeContext) -> Outcome:
        reason = explain_missing_kernels(c.transport.generation)
        return make_skip(reason) if reason else run(c)

    return run_guarded


def find_generation_in_child(c: ProbeContext) -> tuple[int, int, int]:
    """Return the generation, for probes whose cases run in separate processes and that must not open the device
    first. (12, 0, 0) if it cannot be queried; the cases then report the reason.
    """
    ended = c.run_in_child(_find_generation, 20.0)
    generation: tuple[int, int, int] = ended.value if ended.how == "returned" else (GENERATION, 0, 0)
    return generation


def _find_generation(c: ProbeContext) -> tuple[int, int, int]:
    with c:
        return c.transport.generation


@dataclass(frozen=True, slots=True)
class ProbeKernel:
    """A kernel in GPU memory. `wave` may differ from the assembled wave size if its code supports both."""

    zrt: Zrt
    va: int
    offset: int  # in the bench's code

    @property
    def threads(self) -> int:
        x, y, z = self.zrt.workgroup
        return x * y * z


@dataclass(frozen=True, slots=True)
class Scratch:
    """Scratch memory of waves: the fields of TMPRING_SIZE and its address."""

    va: int
    waves: int  # of a shader engine
    wave_units: int  # SCRATCH_UNIT_BYTES each


class ShaderBench:
    """A queue with memory for code and arguments. Code is in uncached host memory, unless `placement`
    differs: then call `flush`."""

    def __init__(
        self, c: ProbeContext, placement: Placement = Placement.GTT, queue: ProbeQueue | None = None
    ) -> None:
        self.context = c
        self.queue = c.queue() if queue is None else queue
        self.code = c.memory(CODE_BYTES, "code", placement)
        self._arguments = c.memory(ARGUMENTS_BYTES, "arguments")
        self.seconds = max(c.poll_seconds, COMPILE_SECONDS) if c.driver.simulated else c.poll_seconds
        self._code_end = 0
        self._next_arguments = 0

    def load(self, name: str, *, wave: int = 0, index: int | None = None, **constants: int) -> ProbeKernel:
        """Load the kernel at a new address in the code memory, or over the existing code at offset `index`."""
        zrt = load_kernel(name)
        image = patch_literals(zrt, constants)
        if index is None:
            index = self._code_end
            self._code_end += -(-len(image) // CODE_ALIGNMENT) * CODE_ALIGNMENT
        self.code.put(index, image)
        return ProbeKernel(replace(zrt, wave=wave or zrt.wave), self.code.gpu_va + index, index)

    def arguments(self, buffers: Sequence[MappedBuffer | int], constants: Sequence[int] = ()) -> int:
        """Return the VA of a kernarg block with these addresses and dwords."""
        vas = [buffer.gpu_va if isinstance(buffer, MappedBuffer) else buffer for buffer in buffers]
        block = struct.pack(f"<{len(vas)}Q{len(constants)}I", *vas, *constants)
        size = -(-max(len(block), 1) // ARGUMENTS_ALIGNMENT) * ARGUMENTS_ALIGNMENT
        index = self._next_arguments if self._next_arguments + size <= ARGUMENTS_BYTES else 0
        self._next_arguments = index + size
        self._arguments.put(index, block)
        return self._arguments.gpu_va + index

    def launch(
        self,
        program: ProbeKernel,
        buffers: Sequence[MappedBuffer | int] = (),
        constants: Sequence[int] = (),
        *,
        groups: Triple = (1, 1, 1),
        threads: Triple | None = None,
        start: Triple | None = None,
        dims_va: int | None = None,
        user_data: Sequence[int] | None = None,
        lds_bytes: int | None = None,
        scratch: Scratch | None = None,
        limits: int = 0,
        clear: int = 0,
        float_mode: int | None = None,
        acquire: int | None = None,
    ) -> list[Packet]:
        """Return cache invalidation, registers, dispatch. `dims_va`: the address from which the counts are
        read. `clear`: bits of RSRC2 that the header sets and this launch clears. `float_mode`: that of
        RSRC1, if different from the header's. `acquire`: GCR_CNTL of the invalidation; 0 omits it."""
        zrt = program.zrt
        shape = threads or zrt.workgroup
        size = replace(zrt, workgroup=shape, lds_bytes=zrt.lds_bytes if lds_bytes is None else lds_bytes)
        if user_data is None:
            va = self.arguments(buffers, constants)
            user_data = (va & 0xFFFFFFFF, va >> 32)
        rsrc2 = size.rsrc2 & ~USER_SGPR_FIELD & ~clear | len(user_data) << 1
        entry = program.va + zrt.entry_offset
        initiator = WAVE32 if zrt.wave == 32 else WAVE64
        if start is not None:
            initiator &= ~FORCE_START_AT_000
        caches = ACQUIRE_CACHES[self.queue.generation] if acquire is None else acquire
        ring = (scratch.waves | scratch.wave_units << 12) if scratch else 0
        base = scratch.va >> 8 if scratch else 0
        rsrc1 = zrt.rsrc1 if float_mode is None else zrt.rsrc1 & ~FLOAT_MODE_FIELD | float_mode << 12
        packets: list[Packet] = [AcquireMem(caches)] if caches else []
        packets += [
            SetShReg(Sh.PGM_LO, (entry >> 8 & 0xFFFFFFFF, entry >> 40)),
            SetShReg(Sh.PGM_RSRC1, (rsrc1, rsrc2)),
            SetShReg(Sh.PGM_RSRC3, (zrt.rsrc3,)),
            SetShReg(Sh.TMPRING_SIZE, (ring,)),
            SetShReg(Sh.DISPATCH_SCRATCH_BASE_LO, (base & 0xFFFFFFFF, base >> 32)),
            SetShReg(Sh.RESTART_X, (0, 0, 0)),
            SetShReg(Sh.USER_DATA_0, tuple(user_data)),
            SetShReg(Sh.RESOURCE_LIMITS, (limits,)),
            SetShReg(Sh.START_X, (*(start or (0, 0, 0)), *shape, 0, 0)),
        ]
        packets.append(
            DispatchDirect(*groups, initiator) if dims_va is None else DispatchIndirect(dims_va, initiator)
        )
        return packets

    def run(
        self,
        program: ProbeKernel,
        buffers: Sequence[MappedBuffer | int] = (),
        constants: Sequence[int] = (),
        **more: Any,
    ) -> None:
        """Launch, and wait for the following fence. Raises Stuck. `more`: further arguments of `launch`."""
        self.finish(self.launch(program, buffers, constants, **more), program.zrt.name)

    def finish(self, packets: Iterable[Packet], name: str) -> None:
        """Call the queue's `finish` with a longer deadline for the first run. Raises Stuck."""
        self.queue.finish(packets, name, self.seconds)

    def flush(self) -> None:
        """Make host stores through the BAR visible to the GPU."""
        packets = self.context.side.flush_hdp()
        if packets:
            self.queue.finish(packets, "HDP flush")


def count_compute_units(c: ProbeContext) -> tuple[int, int]:
    """Return (compute units, shader engines) of the GPU."""
    node, _ = c.chosen
    if node is not None:
        return node.compute_units, node.shader_engines
    about = c.render.device()
    return about["cu_active_number"], about["num_shader_engines"]


def allocate_scratch(c: ProbeContext, zrt: Zrt) -> Scratch:
    """Allocate scratch for every wave that the chip can run at once, as if all of them spilled."""
    units, engines = count_compute_units(c)
    wave_units = -(-zrt.scratch_bytes * zrt.wave // SCRATCH_UNIT_BYTES)
    waves = units * WAVES_PER_CU // engines
    memory = c.memory(waves * engines * wave_units * SCRATCH_UNIT_BYTES, "scratch", Placement.VRAM)
    return Scratch(memory.gpu_va, waves, wave_units)


def read_dwords(memory: MappedBuffer, count: int, offset: int = 0) -> tuple[int, ...]:
    return struct.unpack(f"<{count}I", memory.read(offset, 4 * count))
