"""Build programs in GPU memory: packets, or a lowered graph's dispatches, as a replayable indirect buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from zinc_rt.backends.amd import command_stream
from zinc_rt.backends.amd.debug_lint import refuse_illegal
from zinc_rt.backends.amd.device_memory import DeviceMemory, NamedRange, Storage
from zinc_rt.backends.amd.loaded_kernels import LoadedKernels
from zinc_rt.backends.amd.packet_list import AmdExecutable, IndirectCode, PacketList, build_ib, encode_words
from zinc_rt.backends.amd.stamps import STAMPS_BYTES, Stamps
from zinc_rt.backends.amd.verify_stream import ExpectedStream, Range, verify
from zinc_rt.backends.base import Device, gpu_address, gpu_va
from zinc_rt.backends.precompile import precompile_all
from zinc_rt.exec import Buffer
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.launch import Ref
from zinc_rt.kernels.zrt import Zrt
from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.kmd.transport import Placement
from zinc_rt.lower import DispatchPlan, LoweredGraph, PlannedGraph, plan_block, plan_dispatches
from zinc_rt.lower.dispatch_plan import find_operand_addresses
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint import QueueInterface as LintQueue

Program = LoweredGraph | PlannedGraph


@dataclass(frozen=True, slots=True)
class ExecutableBuilder:
    """Builder of a backend's programs. `put` writes device memory. `precompile` of a simulated device receives
    kernels that will run soon. `debug` lints every indirect buffer and checks each dispatch of a graph against its
    kernel's container."""

    memory: DeviceMemory
    code: LoadedKernels | None  # None: a chip without kernels
    put: Callable[[int, np.ndarray], None]
    precompile: Callable[[Sequence[KernelToCompile]], None]
    generation: Generation
    tier: str
    device: Device
    debug: bool = False
    built: set[AmdExecutable] = field(default_factory=set)

    def build(self, lowered: Program | PacketList, buffers: Mapping[str, Buffer]) -> AmdExecutable:
        """Build a program. The host writes it through the BAR, which must be flushed before it runs."""
        executable = (
            self._build_packets(lowered)
            if isinstance(lowered, PacketList)
            else self._build_graph(lowered, buffers)
        )
        self.built.add(executable)
        return executable

    def at(self, packet_va: int) -> tuple[AmdExecutable | None, int]:
        """Return the program whose indirect buffer contains this address, and the dword."""
        for executable in self.built:
            offset_dw = (packet_va - executable.ib.gpu_va) // 4
            if 0 <= offset_dw < len(executable.ib.words):
                return executable, offset_dw
        return None, 0

    def free(self, executable: AmdExecutable) -> None:
        self.built.discard(executable)
        self.memory.give_back(executable.storage.block)
        if executable.block is not None:
            self.memory.give_back(executable.block)
        if executable.stamps is not None:
            self.memory.give_back(executable.stamps.block)
        if self.code is not None:
            self.code.release(executable.loaded)

    def _build_graph(self, lowered: Program, buffers: Mapping[str, Buffer]) -> AmdExecutable:
        if self.code is None:
            raise UnsupportedError(
                f"tier {self.tier} has no kernels for {self.device.arch}",
                next="run models with --tier t_cpu",
            )
        plan = plan_dispatches(lowered)
        with ExitStack() as undo:
            kernels = self.code.load(step.launch.kernel for step in plan.dispatches)
            undo.callback(self.code.release, kernels)
            precompile_all(self.precompile, [kernel.to_compile for kernel in kernels.values()])
            block = self.memory.block(plan.size_bytes, Placement.VRAM, f"program {plan.name}")
            undo.callback(self.memory.give_back, block)
            va = block.device.gpu_va
            image = plan_block.build_content(plan, va, partial(gpu_address, lowered, buffers))
            self.put(va + plan.specs_offset, np.frombuffer(image, np.uint8))
            expected = ExpectedStream(
                va, kernels.__getitem__, self.code.read, partial(_find_extent, lowered, buffers), self.generation
            )
            stamps = self._allocate_stamps(plan) if lowered.timed else None
            if stamps is not None:
                undo.callback(self.memory.give_back, stamps.block)
            timed = {} if stamps is None else {"stamps_va": stamps.block.device.gpu_va}
            stream = command_stream.build_packets(plan, va, kernels, self.generation, **timed)
            executable = self._build_packets(stream, expected)
            executable.block, executable.loaded, executable.stamps = block, tuple(kernels), stamps
            executable.code = partial(_load_images, self.code.read, tuple(kernels))
            undo.pop_all()
        self._name_buffers(plan, lowered, buffers, executable, va)
        return executable

    def _allocate_stamps(self, plan: DispatchPlan) -> Stamps:
        """Allocate the timestamps of a timed graph. The host writes them: flush before the program runs."""
        whose = tuple((step.node, step.launch.kernel) for step in plan.dispatches)
        size_bytes = max(1, len(whose)) * STAMPS_BYTES
        block = self.memory.block(size_bytes, Placement.VRAM_BAR, f"times of {plan.name}", Placement.GTT)
        stamps = Stamps(block, self.device.simulated, whose)
        stamps.clear()
        return stamps

    def _name_buffers(
        self,
        plan: DispatchPlan,
        lowered: Program,
        buffers: Mapping[str, Buffer],
        executable: AmdExecutable,
        va: int,
    ) -> None:
        """Announce the names of buffer parts. This is the last step of a build, so that a failed build leaves no
        names in shared buffers."""
        own: list[NamedRange] = []
        for allocation, offset, size_bytes, name in find_operand_addresses(plan, lowered.graph, lowered.plan):
            if allocation:
                buffer = buffers[allocation]
                executable.placed.setdefault(buffer, []).append((gpu_va(buffer) + offset, size_bytes, name))
            else:
                own.append((va + offset, size_bytes, name))
        self.memory.announce(own)
        for buffer, parts in executable.placed.items():
            self.memory.name_parts(buffer, parts)

    def _build_packets(self, stream: PacketList, expected: ExpectedStream | None = None) -> AmdExecutable:
        words, nodes = build_ib(stream, self.generation)
        if self.debug:
            kind: LintQueue = "userq" if self.tier == "t2" else "kfd"
            mapped = self.memory.addresses.check_range
            refuse_illegal(words, stream.name, self.generation, queue=kind, mapped=mapped, is_ib=True)
            if expected is not None:
                steps = [stream.dispatches[index] for index in sorted(stream.dispatches)]
                offset = dict(zip((offset for offset, _ in nodes), steps, strict=True))
                verify(words, offset, stream.name, expected)
        block = self.memory.block(4 * len(words), Placement.VRAM_BAR, f"ib {stream.name}", fallback=Placement.GTT)
        buffer = self.memory.buffer(block, 0, 4 * len(words), BufferHeap.BAR, f"ib {stream.name}")
        storage: Storage = buffer.storage
        storage.view()[:] = encode_words(words)
        code = IndirectCode(stream.name, storage.device, tuple(words))
        merged = tuple(node for step in stream.dispatches.values() for node in step.merged)
        return AmdExecutable(stream.name, code, storage, nodes, merged)


def _load_images(read: Callable[[str], Zrt], names: tuple[str, ...]) -> dict[str, bytes]:
    """Return machine code by kernel."""
    return {name: read(name).image for name in sorted(names)}


def _find_extent(lowered: Program, buffers: Mapping[str, Buffer], name: str) -> Range:
    """Return the address range of a graph's buffer: first byte and end."""
    first = gpu_address(lowered, buffers, Ref(name))
    size = buffers[name].size_bytes if name in buffers else lowered.plan.placements[name].size_bytes
    return first, first + size
