"""The CP's DMA (pm4.md §3.14): runs concurrently with the stream, until a fence, raw_wait or cp_sync
orders it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from zinc_rt.sim.cp import bulk_moves
from zinc_rt.sim.cp.clocks import WorkKind
from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.interruptions import IllegalPacket, QueueWait
from zinc_rt.sim.shader_engine import Accesses
from zinc_rt.sim.tables.layout import View

ADDRESS, DATA, NOWHERE, ADDRESS_L2 = 0, 2, 2, 3
PIECES_A_STEP = 256


def dma_data(channel: ComputeChannel, packet: View) -> None:
    _run_transfer(channel, packet)
    if packet.cp_sync:  # nvd.h, PACKET3_DMA_DATA_CP_SYNC; also of 0 bytes: Mesa's si_cp_dma_wait_for_idle
        result = partial(channel.mark_coverage, WorkKind.DMA)
        channel.wait_for(
            QueueWait(lambda: not channel.pending.busy(WorkKind.DMA), "DMA_DATA with CP_SYNC", then=result)
        )


def _run_transfer(channel: ComputeChannel, packet: View) -> None:
    if packet.src_sel not in (ADDRESS, DATA, ADDRESS_L2):
        raise IllegalPacket(f"src_sel {packet.src_sel} is none of address (0), data (2), address through L2 (3)")
    if packet.dst_sel not in (ADDRESS, NOWHERE, ADDRESS_L2):
        raise IllegalPacket(
            f"dst_sel {packet.dst_sel} is none of address (0), nowhere (2), address through L2 (3)"
        )
    if packet.src_space or packet.dst_space:
        raise IllegalPacket("register space is not accessible from a user queue")
    if packet.src_fixed or packet.dst_fixed:
        raise IllegalPacket("fixed addresses (src_fixed, dst_fixed) are not simulated")
    size = packet.byte_count
    if size == 0 and not packet.cp_sync:
        channel.report_unverified("dma-empty", "a copy of 0 bytes")
    if packet.raw_wait:
        channel.mark_coverage(WorkKind.DMA)
    if packet.dst_sel == NOWHERE or size == 0:
        return
    past_l2 = packet.dst_sel == ADDRESS or packet.src_sel == ADDRESS
    after = bool(packet.raw_wait)
    if packet.src_sel == DATA:
        pattern = (packet.src & 0xFFFFFFFF).to_bytes(4, "little")
        advance = bulk_moves.fill(channel.space, packet.dst, pattern, size)
        accesses = Accesses(writes=((packet.dst, size),))
    else:
        if packet.src < packet.dst + size and packet.dst < packet.src + size:
            channel.report_unverified(
                "overlapping-copy", "source and destination overlap: the result depends on the order"
            )
        advance = bulk_moves.copy(channel.space, packet.dst, packet.src, size)
        accesses = Accesses(reads=((packet.src, size),), writes=((packet.dst, size),))
    channel.launch(WorkKind.DMA, _make_finisher(advance, accesses), after_dma=after, past_l2=past_l2)


def dma_data_fill_multi(channel: ComputeChannel, packet: View) -> None:
    """Execute the fill. The pattern is assumed to be in the dword with the source's upper half in DMA_DATA; this
    is unverified, so it is a finding.
    """
    if packet.src_sel != DATA or packet.dst_sel != ADDRESS_L2:
        raise IllegalPacket("only src_sel 2 (data) and dst_sel 3 (address through L2) are supported")
    channel.report_unverified(
        "packet-unverified", "the position of the data in DMA_DATA_FILL_MULTI is unverified: it fills with 0"
    )
    size, stride, count = packet.byte_count, packet.byte_stride, packet.dma_count
    result = 0

    def advance() -> bool:
        nonlocal result
        for _ in range(min(PIECES_A_STEP, count - result)):
            if size:
                bulk_moves.write(channel.space, packet.dst + result * stride, bytes(size))
            result += 1
            if size >= bulk_moves.PAGE_BYTES:
                break
        return result >= count

    extent = (count - 1) * stride + size if count else 0
    channel.launch(WorkKind.DMA, _make_finisher(advance, Accesses(writes=((packet.dst, extent),))))


def _make_finisher(advance: Callable[[], bool], accesses: Accesses) -> Callable[[], Accesses | None]:
    return lambda: accesses if advance() else None
