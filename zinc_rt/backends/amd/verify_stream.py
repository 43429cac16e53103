"""Debug mode: check each dispatch of an executable's dwords against the kernel's container and the plan.

The dwords are decoded again and register state is tracked, which detects wrong offsets, swapped fields and missing
flushes in the encoder. The kernel's requirements are read from its .zrt, not from the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.backends.amd.loaded_kernels import LoadedKernel
from zinc_rt.kernels.launch import Ref, Temp
from zinc_rt.kernels.rsrc import LDS_UNIT_BYTES, VGPR_UNIT, count_user_sgprs
from zinc_rt.kernels.zrt import Zrt
from zinc_rt.lower.dispatch_plan import GRIDS_KERNEL, Dispatch, GridInBlock
from zinc_rt.pm4.bits import Bits
from zinc_rt.pm4.decode import BadPacket, DecodedPacket, decode_stream
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint_dispatches import DispatchState
from zinc_rt.pm4.packet import EncodeError
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, DispatchIndirect, EventWrite
from zinc_rt.pm4.packets.sync import CS_PARTIAL_FLUSH
from zinc_rt.pm4.registers import DISPATCH_INITIATOR, PGM_RSRC1, PGM_RSRC2, Sh

Range = tuple[int, int]  # first byte, and the one behind the last
FLUSH = "put a CS_PARTIAL_FLUSH and an ACQUIRE_MEM between them"
Extent = Callable[[str], Range]
"""The address of a buffer of the graph, by name."""


@dataclass(frozen=True, slots=True)
class ExpectedStream:
    """Facts about an executable that do not come from its dwords. `block_va`: address of the plan's block;
    `kernel` and `zrt`: by the code that a dispatch runs; `extent`: address ranges of the graph's buffers.
    """

    block_va: int
    kernel: Callable[[str], LoadedKernel]
    zrt: Callable[[str], Zrt]
    extent: Extent
    generation: Generation


def verify(words: Sequence[int], dispatches: Mapping[int, Dispatch], name: str, expected: ExpectedStream) -> None:
    """Check all dispatches. `dispatches` is keyed by the dword at which each one's packets begin. Raise
    EncodeError for the first dispatch that does not match its kernel and node."""
    items = decode_stream(words, expected.generation)
    state = DispatchState(expected.generation)
    order = _OrderChecker(expected, _find_shared_temps(dispatches.values()))
    left = dict(sorted(dispatches.items()))
    for item in items:
        packet = item.packet
        if isinstance(packet, BadPacket):
            break  # the linter says what it is
        if isinstance(packet, DispatchDirect | DispatchIndirect):
            if not left:
                raise _make_encode_error(name, item, "a dispatch that no launch asked for", "leave it out")
            step = left.pop(min(left))
            for problem, advice in (*_check_launch(packet, state, step, expected), *order.dispatch(step)):
                raise _make_encode_error(name, item, f"{_dispatch_name(step)}: {problem}", advice)
        elif isinstance(packet, EventWrite) and packet.event_type == CS_PARTIAL_FLUSH:
            order.waited = True
        elif isinstance(packet, AcquireMem) and order.waited:
            order.clear()
        state.apply(item)
    if left:
        step = left[min(left)]
        raise EncodeError(f"{name}: {_dispatch_name(step)} is never dispatched", next="emit a dispatch for it")


def _make_encode_error(name: str, item: DecodedPacket, text: str, advice: str) -> EncodeError:
    return EncodeError(f"{name}, dword {item.offset}: {text}", next=advice)


def _dispatch_name(step: Dispatch) -> str:
    return f"{step.launch.kernel} for {'the plan' if step.node is None else repr(step.node)}"


def _check_launch(
    packet: DispatchDirect | DispatchIndirect, state: DispatchState, step: Dispatch, expected: ExpectedStream
) -> Iterator[tuple[str, str]]:
    """Check the registers and the packet against the container and the plan."""
    kernel, zrt, seen = expected.kernel(step.launch.kernel), expected.zrt(step.launch.kernel), state.registers
    rsrc1 = _decode_fields(PGM_RSRC1[expected.generation], seen.get(Sh.PGM_RSRC1, 0))
    rsrc2 = _decode_fields(PGM_RSRC2[expected.generation], seen.get(Sh.PGM_RSRC2, 0))
    initiator = _decode_fields(DISPATCH_INITIATOR[expected.generation], packet.initiator)
    code_va = (seen.get(Sh.PGM_HI, 0) & 0xFF) << 40 | seen.get(Sh.PGM_LO, 0) << 8
    arguments = seen.get(Sh.USER_DATA_0, 0) | seen.get(Sh.USER_DATA_0 + 1, 0) << 32
    vgprs = (rsrc1["VGPRS"] + 1) * VGPR_UNIT[zrt.wave]
    checks: tuple[tuple[str, Any, Any, Callable[[Any], str]], ...] = (
        ("code at", code_va, kernel.program_va, hex),
        ("waves of", 32 if initiator["CS_W32_EN"] else 64, zrt.wave, str),
        ("a workgroup of", state.threads(), zrt.workgroup, str),
        (
            "LDS in units of 512 bytes, PGM_RSRC2.LDS_SIZE:",
            rsrc2["LDS_SIZE"],
            -(-zrt.lds_bytes // LDS_UNIT_BYTES),
            str,
        ),
        ("scratch:", bool(rsrc2["SCRATCH_EN"]), zrt.scratch_bytes > 0, str),
        ("user registers, PGM_RSRC2.USER_SGPR:", rsrc2["USER_SGPR"], count_user_sgprs(zrt.rules), str),
        ("workgroup ids enabled:", _list_axes(rsrc2), "xyz", str),
        ("work-item ids for axes beyond x:", rsrc2["TIDIG_COMP_CNT"], _count_used_axes(zrt), str),
        ("arguments at", arguments, expected.block_va + step.arguments_offset, hex),
    )
    argument = seen.get(Sh.PGM_RSRC1, 0), seen.get(Sh.PGM_RSRC2, 0)
    if argument == kernel.rsrc[1::-1] != kernel.rsrc[:2]:
        yield "PGM_RSRC1 holds what its container has for PGM_RSRC2, and the other way round", "swap the two"
    for what, saw, expected_value, shown in checks:
        if saw != expected_value:
            yield (
                f"{what} {shown(saw)}, its container needs {shown(expected_value)}",
                "set the register for this kernel",
            )
    if vgprs < zrt.vgprs:
        yield f"{vgprs} vector registers, it uses {zrt.vgprs}", "set RSRC1.VGPRS for this kernel"
    yield from _check_grid(packet, step, expected)


def _check_grid(
    packet: DispatchDirect | DispatchIndirect, step: Dispatch, expected: ExpectedStream
) -> Iterator[tuple[str, str]]:
    if isinstance(step.grid, GridInBlock):
        expected_va = expected.block_va + step.grid.offset_bytes
        if not isinstance(packet, DispatchIndirect) or packet.address != expected_va:
            yield f"its grid is at {expected_va:#x}", "dispatch it indirectly from there"
    elif not isinstance(packet, DispatchDirect) or (packet.dim_x, packet.dim_y, packet.dim_z) != step.grid:
        yield f"its grid is {' x '.join(map(str, step.grid))}", "dispatch that many workgroups"


def _decode_fields(bits: Sequence[Bits], value: int) -> dict[str, int]:
    return {bit.name: bit.of(value) for bit in bits}


def _list_axes(rsrc2: Mapping[str, int]) -> str:
    return "".join(axis for axis in "xyz" if rsrc2[f"TGID_{axis.upper()}_EN"])


def _count_used_axes(zrt: Zrt) -> int:
    return 2 if zrt.workgroup[2] > 1 else 1 if zrt.workgroup[1] > 1 else 0


@dataclass(slots=True)
class _OrderChecker:
    """The bytes touched since the last flush. A dispatch that depends on them must follow a flush."""

    expected: ExpectedStream
    shared: frozenset[tuple[int, str]]  # temporaries that later nodes read too: offset, name
    waited: bool = False  # for the waves; their stores are seen once caches were invalidated too
    written: list[tuple[Range, Dispatch]] = field(default_factory=list)
    read: list[tuple[Range, Dispatch]] = field(default_factory=list)
    # by node (0: shared), offset and name: who wrote it first
    temps: dict[tuple[int, int, str], Dispatch | None] = field(default_factory=dict)
    grids: Dispatch | None = None  # makes the grids that lie in memory

    def clear(self) -> None:
        self.waited = False
        self.written.clear()
        self.read.clear()
        self.temps = dict.fromkeys(self.temps)
        self.grids = None

    def dispatch(self, step: Dispatch) -> Iterator[tuple[str, str]]:
        """Check conflicts with concurrent dispatches. A temporary is written by the launch that makes it for
        several nodes, else by the first of its node that names it; conflicts between launches of one node over the
        graph's buffers are not checked."""
        self.waited = False
        if self.grids is not None and isinstance(step.grid, GridInBlock):
            yield f"{self.grids.launch.kernel}, which makes its grid, may still run", FLUSH
        if step.launch.kernel == GRIDS_KERNEL:
            self.grids = step
        for buffer in step.launch.buffers:
            if isinstance(buffer, Temp):
                place = step.temps[buffer.name], buffer.name
                key = (0 if place in self.shared else id(step.node), *place)
                if buffer == step.launch.makes:
                    self.temps[key] = step
                writer = self.temps.setdefault(key, step)
                if writer is not None and writer is not step:
                    yield f"it needs {buffer.name} of {writer.launch.kernel}, which may still run", FLUSH
        reads, writes = _list_touched_ranges(step, self.expected.extent)
        for name, span in reads:
            if other := _find_overlap(step, span, self.written):
                yield f"it reads {name}, which {other} may still be writing", FLUSH
        for name, span in writes:
            if other := _find_overlap(step, span, [*self.written, *self.read]):
                yield f"it writes {name}, which {other} may still use", FLUSH
        self.read += [(span, step) for _, span in reads]
        self.written += [(span, step) for _, span in writes]


def _find_shared_temps(dispatches: Iterable[Dispatch]) -> frozenset[tuple[int, str]]:
    made = ((step, step.launch.makes) for step in dispatches)
    return frozenset((step.temps[temp.name], temp.name) for step, temp in made if temp is not None)


def _list_touched_ranges(
    step: Dispatch, extent: Extent
) -> tuple[list[tuple[str, Range]], list[tuple[str, Range]]]:
    """Return this launch's reads and writes of the graph's buffers."""
    if step.node is None:
        return [], []
    named = {buffer.name for buffer in step.launch.buffers if isinstance(buffer, Ref)}
    inputs = [(name, extent(name)) for name in step.node.inputs if name in named]
    return inputs, [(name, extent(name)) for name in step.node.outputs if name in named]


def _find_overlap(step: Dispatch, span: Range, earlier: Sequence[tuple[Range, Dispatch]]) -> str:
    for (first, behind), other in earlier:
        if first < span[1] and span[0] < behind and other.node is not step.node:
            return _dispatch_name(other)
    return ""
