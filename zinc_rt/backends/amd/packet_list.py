"""The content of an executable on a GPU tier: PM4 packets for one indirect buffer."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zinc_rt.backends.amd.device_memory import MemoryBlock, NamedRange, Storage
from zinc_rt.backends.amd.stamps import Stamps
from zinc_rt.backends.times import Times
from zinc_rt.exec import Buffer
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import Node
from zinc_rt.kmd.transport import DeviceBuffer
from zinc_rt.lower.dispatch_plan import Dispatch
from zinc_rt.pm4 import gcr
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import AcquireMem, EventWrite, Nop

IB_ALIGN_DW = 8  # INFO's ib_size_alignment for compute; allocations start far better aligned
IB_MAX_DW = (1 << 20) - 1  # 20 bits of INDIRECT_BUFFER

ACQUIRE_CACHES = {  # instructions, scalars, vectors and L2: what the host or another queue may have written
    Generation.GFX11: gcr.acquire(
        Generation.GFX11, GLI_INV=1, GLK_INV=1, GLV_INV=1, GL1_INV=1, GL2_INV=1, GL2_WB=1
    ),
    Generation.GFX12: gcr.acquire(Generation.GFX12, GLI_INV=1, GLK_INV=1, GLV_INV=1, GL2_INV=1, GL2_WB=1),
}


@dataclass(frozen=True, slots=True)
class IndirectCode:
    """An indirect buffer and the words it was built from."""

    name: str
    buffer: DeviceBuffer
    words: tuple[int, ...]
    offset_bytes: int = 0

    @property
    def gpu_va(self) -> int:
        return self.buffer.gpu_va + self.offset_bytes


@dataclass(frozen=True, slots=True)
class PacketList:
    """Raw packets, run unchanged. The backend inserts a wait for the queue's earlier waves and a cache
    invalidation first. `dispatches`: the indices of packets that are a plan's dispatches."""

    packets: tuple[Packet, ...]
    name: str = "packets"
    dispatches: Mapping[int, Dispatch] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class AmdExecutable:
    """The executable of a lowered graph or a packet list: an indirect buffer in GPU memory, replayed unchanged."""

    name: str
    ib: IndirectCode
    storage: Storage
    dispatched: tuple[tuple[int, Node | None], ...] = ()  # whose dispatch begins at which dword
    merged: tuple[Node, ...] = ()  # whose launches other nodes' dispatches took in
    block: MemoryBlock | None = None  # arguments, grids and temporaries of a graph's dispatches
    placed: dict[Buffer, list[NamedRange]] = field(default_factory=dict)  # what it keeps in buffers given to it
    code: Callable[[], dict[str, bytes]] = dict
    loaded: tuple[str, ...] = ()  # kernels that it holds
    stamps: Stamps | None = None  # of a timed graph

    def kernels(self) -> dict[str, bytes]:
        """Return the machine code that it dispatches, by kernel."""
        return self.code()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes of its dispatches, each once."""
        whose = (*(node for _, node in self.dispatched if node is not None), *self.merged)
        return tuple({id(node): node for node in whose}.values())

    def find_operand(self, node: Node, address: int) -> str:
        """Return the name of the operand of a node that holds an address; empty if none does. Operands of other
        nodes may have been there before."""
        parts = (part for parts in self.placed.values() for part in parts)
        names = (name for va, size_bytes, name in parts if va <= address < va + size_bytes)
        return next((name for name in names if name in (*node.inputs, *node.outputs)), "")

    def find_writer(self, node: Node, operand: str) -> Node | None:
        """Return the last node before this one that writes the operand; None for an input of the graph."""
        nodes = self.nodes
        before = nodes[: next(index for index, other in enumerate(nodes) if other is node)]
        return next((other for other in reversed(before) if operand in other.outputs), None)

    def times(self) -> Times:
        return self.stamps.read() if self.stamps is not None else Times("", False, ())


def build_ib(stream: PacketList, generation: Generation) -> tuple[list[int], tuple[tuple[int, Node | None], ...]]:
    """Return the dwords of the buffer, padded to a multiple of IB_ALIGN_DW, and the dword at which each dispatch
    of a node begins.

    Raise UnsupportedError if there are too many.
    """
    # a fence orders nothing after it: without the flush two replays submitted in a row would overlap
    before = (EventWrite.cs_partial_flush(), AcquireMem(ACQUIRE_CACHES[generation]))
    words = [word for packet in before for word in packet.words(generation)]
    nodes = []
    for index, packet in enumerate(stream.packets):
        if index in stream.dispatches:
            nodes.append((len(words), stream.dispatches[index].node))
        words += packet.words(generation)
    words += Nop().words(generation) * (-len(words) % IB_ALIGN_DW)
    if len(words) > IB_MAX_DW:
        raise UnsupportedError(
            f"{stream.name} has {len(words)} dwords, but an indirect buffer holds at most {IB_MAX_DW}",
            next="split the graph",
        )
    return words, tuple(nodes)


def encode_words(words: Sequence[int]) -> bytes:
    return array("I", words).tobytes()
