"""Run one node's launches again on the shader engine only, and trace the wave that stored the wrong
element."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zinc_rt.engine.resident import parse_capacity
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import SYMBOLS
from zinc_rt.isa import Target, decode, target_of
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.kernels import sets
from zinc_rt.kernels.launch import Launch, Operand, Ref, Stride
from zinc_rt.kernels.sets import BinaryKernelSet
from zinc_rt.lower.lower import choose_entry
from zinc_rt.mem.plan import count_buffer_bytes
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.tape import RecordedStep, Tape, read_pieces, read_tape
from zinc_rt.trace.weight_sources import find_sources

if TYPE_CHECKING:
    from zinc_rt.sim.shader.emit.trace import TracedStep as Traced


def trace_lane(node_log: str | Path, stored: dict[str, Any], arch: str = DEFAULT_ARCH) -> list[str]:
    """Return every instruction that the lane executed and the value it wrote, in hex and as a float.

    `node_log`: a one-node log (node.zlog). `stored`: kernel, group, wave and lane, as reported by bisect.
    Raises UnsupportedError if there are no kernels for the node.
    """
    kernels = sets.find_kernel_set(sets.find_code_chip(arch))
    if not isinstance(kernels, BinaryKernelSet):
        raise UnsupportedError(f"no kernels are available for {arch}")
    with LogReader(node_log) as log:
        tape = read_tape(log)
        (step,) = tape.steps
        node = _TracedNode(kernels, tape, step, _read_memory(log, tape, step, kernels))
    return list(node.trace(stored))


def _read_memory(
    log: LogReader, tape: Tape, step: RecordedStep, kernels: BinaryKernelSet
) -> dict[str, np.ndarray]:
    """Return the node's memory as last written by the host: u8 [bytes] by buffer, at full capacity."""
    capacity = parse_capacity(step.key)
    weights, constants = find_sources(log, tape)
    memory: dict[str, np.ndarray] = {}
    for spec in tape.graphs[step.graph].graph.buffers.values():
        if spec.name in weights:
            content = kernels.pack(weights[spec.name])
        elif spec.name in constants:
            content = constants[spec.name]
        else:
            content = np.zeros(count_buffer_bytes(spec, capacity), np.uint8)
        memory[spec.name] = np.ascontiguousarray(content).reshape(-1).view(np.uint8).copy()
    for write in step.writes:
        for buffer, offset, data in read_pieces(log, write):
            memory[buffer][offset : offset + len(data)] = np.frombuffer(data, np.uint8)
    return memory


@dataclass(slots=True)
class _TracedNode:
    kernels: BinaryKernelSet
    tape: Tape
    step: RecordedStep
    memory: dict[str, np.ndarray]
    _addresses: dict[str, int] = field(default_factory=dict)

    def trace(self, stored: dict[str, Any]) -> Iterator[str]:
        from zinc_rt.sim.shader.run.engine_device import EngineDevice

        launches = list(self._list_launches())
        last = max(index for index, launch in enumerate(launches) if launch.kernel == stored["kernel"])
        wave = self._find_wave_index(launches[last], stored["group"], int(stored["wave"]))
        device = EngineDevice(level="off", trace=wave, target=target_of(self.kernels.target))
        for name, array in self.memory.items():
            self._addresses[name] = device.place(array, name)
        for launch in launches[: last + 1]:
            self._dispatch(device, launch)
        zrt = self.kernels.load(stored["kernel"])
        return _format_lane_lines(device.steps, zrt.image, target_of(zrt.target, zrt.wave), int(stored["lane"]))

    def _list_launches(self) -> Iterator[Launch]:
        graph = self.tape.graphs[self.step.graph].graph
        (node,) = graph.nodes
        candidates = [entry for entry in self.kernels.entries if entry.op is node.op]
        entry = choose_entry(node, graph, candidates, str(self.tape.header.get("ordering", "")))
        if isinstance(entry, str):
            raise UnsupportedError(f"{node!r}: {entry}")
        capacity = parse_capacity(self.step.key)
        return (item for item in entry.code(node, graph, capacity) if isinstance(item, Launch))

    def _find_grid(self, launch: Launch) -> tuple[int, ...]:
        counts = dict(zip(SYMBOLS, self.step.counts, strict=False))
        return tuple(counts[dim] if isinstance(dim, str) else dim for dim in launch.grid)

    def _find_wave_index(self, launch: Launch, group: list[int], wave: int) -> int:
        zrt = self.kernels.load(launch.kernel)
        across, down, _ = self._find_grid(launch)
        number = group[0] + across * (group[1] + down * group[2])
        return number * -(-int(np.prod(zrt.workgroup)) // zrt.wave) + wave

    def _dispatch(self, device: Any, launch: Launch) -> None:
        zrt = self.kernels.load(launch.kernel)
        block = np.frombuffer(launch.pack_kernarg(self._make_address_lookup(device)), np.uint8)
        va = device.place(block, "arguments", write=False)
        device.run(
            zrt.image,
            groups=self._find_grid(launch),
            threads=zrt.workgroup,
            wave=zrt.wave,
            user_data=(va & 0xFFFFFFFF, va >> 32),
            lds_bytes=zrt.lds_bytes,
            vgprs=zrt.vgprs,
            sgprs=zrt.sgprs,
            entry=zrt.entry_offset,
            name=zrt.name,
        )

    def _make_address_lookup(self, device: Any) -> Callable[[Operand], int]:
        def resolve(buffer: Operand) -> int:
            assert not isinstance(buffer, Stride), f"{buffer.name} is packed: its strides are fixed"
            if isinstance(buffer, Ref):
                return self._addresses[buffer.name] + buffer.offset_bytes
            name = f"temp {buffer.name}"
            if name not in self._addresses:
                self._addresses[name] = device.place(np.zeros(buffer.size_bytes, np.uint8), name)
            return self._addresses[name]

        return resolve


def _format_lane_lines(steps: Iterable[Traced], code: bytes, target: Target, lane: int) -> Iterator[str]:
    """Return one lane's view of a wave's trace: the instructions that it executed, with its register values."""
    active, last = True, -1
    for step in steps:
        if step.pc != last or not step.name:
            instruction = decode(code, step.pc, target)
            text = "?" if instruction is None else instruction.text
            active = text.startswith(("s_", "?")) or bool(step.exec >> lane & 1)
            if active:
                yield f"{step.pc:6x}  {text}"
        last = step.pc
        if step.name and active:
            value = int(step.values[lane if len(step.values) > 1 else 0])
            (number,) = struct.unpack("<f", struct.pack("<I", value))
            yield f"        {step.name:7s} {value:08x}  {number:.9g}"
