"""Padding, calls and skips (pm4.md §3.10, §3.12)."""

from __future__ import annotations

from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.execute.compare import find_function
from zinc_rt.sim.cp.fetch import MAX_DEPTH, IndirectFrame
from zinc_rt.sim.cp.interruptions import IllegalPacket, QueueWait
from zinc_rt.sim.interfaces import AccessKind, Fault
from zinc_rt.sim.tables.layout import View

IB_ALIGN_BYTES = 32  # ib_start_alignment and ib_size_alignment of INFO HW_IP_INFO


def nop(channel: ComputeChannel, packet: View) -> None:
    return None


def kernel_only(channel: ComputeChannel, packet: View) -> None:
    raise IllegalPacket(f"{packet.name} is privileged: it belongs to the kernel's own queues")


def indirect_buffer(channel: ComputeChannel, packet: View) -> None:
    if not packet.valid:
        raise IllegalPacket("bit 23 (valid) is clear, so the compute engine rejects the indirect buffer")
    if packet.priv:
        raise IllegalPacket("bit 31 (priv) is set, but only the kernel's queues may set it")
    inherits = packet.inherit_vmid and not channel.device.kmd.injected("vmid-not-inherited")
    if channel.is_user and not inherits:
        channel.finding(
            "ib-inherit-vmid",
            f"{channel.label()}: bit 30 (inherit VMID) is not set on a user queue, so the buffer is fetched "
            "through VMID 0, where nothing is mapped",
        )
        raise Fault(packet.address & ~3, AccessKind.READ, "not present")
    if packet.inherit_vmid and not channel.is_user:
        channel.report_unverified(
            "ib-inherit-vmid", "bit 30 (inherit VMID) is for user queues; on a KFD queue it is unverified"
        )
    if packet.vmid:
        channel.report_unverified(
            "reserved-bits", f"vmid {packet.vmid} is reserved for the kernel's queues, set it to 0"
        )
    call(channel, packet.address, packet.size_dw, chain=bool(packet.chain))


def execute_indirect(channel: ComputeChannel, packet: View) -> None:
    """Execute INDIRECT_BUFFER: two packets share this opcode and differ in size."""
    (indirect_buffer if packet.dwords == 4 else cond_indirect_buffer)(channel, packet)


def cond_indirect_buffer(channel: ComputeChannel, packet: View) -> None:
    if packet.mode not in (1, 2):
        raise IllegalPacket(f"mode is {packet.mode}, expected neither if-then (1) nor if-then-else (2)")
    value = channel.read(channel.align(packet.compare_address, 8), 8)
    if find_function(packet.function)(value & packet.mask, packet.reference):
        call(channel, packet.address_1, packet.size_1_dw, chain=False)
    elif packet.mode == 2:
        call(channel, packet.address_2, packet.size_2_dw, chain=False)


def call(channel: ComputeChannel, address: int, size_dw: int, *, chain: bool) -> None:
    """Call an indirect buffer, or continue in it."""
    va = channel.align(address, 4)
    caller, position = channel.at
    if va % IB_ALIGN_BYTES or size_dw * 4 % IB_ALIGN_BYTES:
        channel.report_unverified(
            "ib-alignment",
            f"the buffer at 0x{va:x} of {size_dw} dwords is not a multiple of {IB_ALIGN_BYTES} bytes",
        )
    if size_dw == 0:
        channel.report_unverified("ib-empty", "an indirect buffer of 0 dwords")
        return
    depth = len(channel.frames)
    frame = IndirectFrame(channel.space, va, size_dw, f"{caller.place(position)}")
    if chain:
        if caller is channel.ring:
            raise IllegalPacket("bit 20 (chain) is set in the ring, where there is no buffer to continue from")
        if isinstance(caller, IndirectFrame):
            frame.caller = caller.caller
        channel.frames[-1] = frame
    else:
        while len(channel.frames) > 1 and channel.frames[-1].available() <= 0:
            channel.frames.pop()  # a call at a buffer's very end needs no way back
        depth = len(channel.frames)
        if depth >= MAX_DEPTH:
            raise IllegalPacket(
                f"indirect buffers are nested {depth} deep: at most two levels below the ring are known to work"
            )
        if depth > 1 and not channel.CALLS_WITHIN_CALLS:
            channel.report_unverified("ib-nesting", "an indirect buffer within an indirect buffer is unverified")
        channel.frames.append(frame)
    channel.record_accesses(reads=((va, 4 * size_dw),))


def cond_exec(channel: ComputeChannel, packet: View) -> None:
    if channel.read(channel.align(packet.address, 4), 4) == 0:
        channel.skip(packet.exec_count)


def pred_exec(channel: ComputeChannel, packet: View) -> None:
    """Execute PRED_EXEC for the only die, which has number 0."""
    channel.report_unverified("packet-unverified", "PRED_EXEC is not in the lists of the compute engine's packets")
    if not packet.xcc_select & 1:
        channel.skip(packet.exec_count)


def rewind(channel: ComputeChannel, packet: View) -> None:
    """Wait until the packet's own valid bit is set in memory, then refetch the following dwords."""
    frame, position = channel.at
    va = frame.va(position + 1)

    def is_ready() -> bool:
        return bool(int.from_bytes(channel.space.read(va, 4), "little") >> 31)

    def fetch_again() -> None:
        frame.words = []

    if packet.valid:
        fetch_again()
        return
    channel.wait = QueueWait(is_ready, f"REWIND until bit 31 at 0x{va:x} is set", not channel.is_user, fetch_again)
