"""Dwords written out by hand from the packet definitions in pm4.md, each with its derivation.

A header is 0xC0000000 | (dwords - 2) << 16 | opcode << 8.
"""

from __future__ import annotations

import pytest

from zinc_rt.pm4 import Generation, Packet, Sh, decode
from zinc_rt.pm4.gcr import acquire, release
from zinc_rt.pm4.packets import (
    PACKETS,
    AcquireMem,
    AtomicGds,
    AtomicMem,
    CleanerShader,
    CondExec,
    CondIndirectBuffer,
    CondWrite,
    CopyData,
    DispatchDirect,
    DispatchIndirect,
    DispatchTaskmeshDirectAce,
    DispatchTaskmeshIndirectMultiAce,
    DispatchTaskStateInit,
    DmaData,
    DmaDataFillMulti,
    EventWrite,
    ExecuteIndirectV2,
    FenceWaitMulti,
    HdpFlush,
    IndirectBuffer,
    IndirectBufferPasid,
    InvalidateTlbs,
    LoadShRegIndex,
    Nop,
    PerfCounterWindow,
    PerfmonControl,
    PredExec,
    PrimeUtcl2,
    ProtectedFenceSignal,
    ReleaseMem,
    Rewind,
    SetBase,
    SetConfigReg,
    SetQueueReg,
    SetShReg,
    SetShRegIndex,
    SetShRegPairs,
    SetShRegPairsPacked,
    SetShRegPairsPackedN,
    SetUconfigReg,
    SetUconfigRegPairs,
    Timestamp,
    WaitRegMem,
    WaitRegMem64,
    WriteData,
)

G11, G12 = Generation.GFX11, Generation.GFX12
BOTH = (G11, G12)
VA = 0x7F12_3456_7880  # 64-byte aligned; lo 0x34567880, hi 0x7F12
LO, HI = 0x34567880, 0x00007F12

GOLDEN: list[tuple[tuple[Generation, ...], Packet, list[int]]] = [
    # 1.2: one dword is the special count 0x3FFF; N >= 2 dwords have count N - 2
    (BOTH, Nop(), [0xFFFF1000]),
    (BOTH, Nop((5,)), [0xC0001000, 5]),
    (BOTH, Nop((5, 6, 7)), [0xC0021000, 5, 6, 7]),
    # 3.1: offset relative to 0x2C00, so USER_DATA_0 at 0x2E40 is 0x240; one value has count 1
    (BOTH, SetShReg(Sh.USER_DATA_0, (0xAB,)), [0xC0017600, 0x240, 0xAB]),
    # code at 0x7F1234567800: VA >> 8 = 0x7F12345678, so LO 0x12345678, HI 0x7F
    (BOTH, SetShReg(Sh.PGM_LO, (0x12345678, 0x7F)), [0xC0027600, 0x20C, 0x12345678, 0x7F]),
    (BOTH, SetShReg(0x240, (1,), index=1, vmid_shift=2), [0xC0017600, 1 << 28 | 2 << 23 | 0x240, 1]),
    # IGT writes 0x30000216 for the CU masks: index 3 and STATIC_THREAD_MGMT_SE0
    (BOTH, SetShRegIndex(Sh.STATIC_THREAD_MGMT_SE0, (0xFFFF,)), [0xC0019B00, 0x30000216, 0xFFFF]),
    # GRBM_GFX_INDEX at 0xC200, base 0xC000
    (BOTH, SetUconfigReg(0x200, (0xE0000000,)), [0xC0017900, 0x200, 0xE0000000]),
    (BOTH, SetConfigReg(0x10, (1, 2)), [0xC0026800, 0x10, 1, 2]),
    (BOTH, SetQueueReg(0x12, (9,), queue=3, defer_exec=1), [0xC0017800, 3 << 16 | 1 << 15 | 0x12, 9]),
    ((G12,), SetShRegPairs(((0x20C, 1), (0x240, 2))), [0xC003BA00, 0x20C, 1, 0x240, 2]),
    ((G12,), SetUconfigRegPairs(((0x200, 7),)), [0xC001BE00, 0x200, 7]),
    (BOTH, SetShRegPairsPacked.of(((0x20C, 1), (0x240, 2))), [0xC003BC00, 2, 0x240 << 16 | 0x20C, 1, 2]),
    # an odd number of registers: the first once more
    (
        BOTH,
        SetShRegPairsPackedN.of(((0x20C, 1), (0x20D, 2), (0x240, 3))),
        [0xC006BD00, 4, 0x20D << 16 | 0x20C, 1, 2, 0x20C << 16 | 0x240, 3, 1],
    ),
    # address dword: VA without its two low bits, index in them
    (
        BOTH,
        LoadShRegIndex(VA >> 2 & 0x3FFFFFFF, HI, 0x240, 16, index=2, data_format=1),
        [0xC0036300, LO | 2, HI, 1 << 31 | 0x240, 16],
    ),
    ((G12,), SetBase(VA), [0xC0021100, 6, LO, HI]),
    # 3.2: count 3 = four body dwords; initiator wave32 0x8005
    (BOTH, DispatchDirect(3, 2, 1, 0x8005), [0xC0031500, 3, 2, 1, 0x8005]),
    (BOTH, DispatchIndirect(VA, 0x8005), [0xC0021600, LO, HI, 0x8005]),
    (BOTH, DispatchTaskStateInit(0x7F1234567800), [0xC001A900, 0x34567800, HI]),
    (BOTH, DispatchTaskmeshDirectAce(1, 2, 3, 0x8005, 0x244), [0xC004AA00, 1, 2, 3, 0x8005, 0x244]),
    (
        BOTH,
        DispatchTaskmeshIndirectMultiAce(
            VA,
            8,
            VA + 64,
            12,
            0x8005,
            0x244,
            dispatch_index_register=0x245,
            dims_register=0x246,
            count_indirect=1,
            dims_enable=1,
        ),
        [0xC009AD00, LO, HI, 0x244, 0x245 << 16 | 1 << 3 | 1 << 1, 0x246, 8, LO + 64, HI, 12, 0x8005],
    ),
    (
        (G12,),
        ExecuteIndirectV2(VA, VA + 64, 10, 12, count_indirect=1, userdata_dw_count=3, userdata_offset=5),
        [0xC00BB400, 2 << 19 | 3 << 1 | 1, LO, HI, 10, 12, LO + 64, HI, 5 << 16, 0, 0, 0, 0],
    ),
    # 3.4: size in 256-byte units, 40 bits, all ones is everything; GLI 1, GLK_INV 7, GLV_INV 8, GL2_INV 14
    (
        BOTH,
        AcquireMem(acquire(G12, GLI_INV=1, GLK_INV=1, GLV_INV=1, GL2_INV=1)),
        [0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 4, 1 << 14 | 1 << 8 | 1 << 7 | 1],
    ),
    (
        BOTH,
        AcquireMem(0x7FFFF, base_256b=VA >> 8, size_256b=2, poll_interval=10),
        [0xC0065800, 0, 2, 0, 0x12345678, 0x7F, 10, 0x7FFFF],
    ),
    # 3.5: tinygrad's fence, type 0x14, index 5, GCR at bit 12: GLV_INV 2, GL2_INV 8, GL2_WB 9, SEQ 11:10 = 1
    (
        BOTH,
        ReleaseMem(VA, 0xDEAD, release(G12, GLV_INV=1, GL2_INV=1, GL2_WB=1, SEQ=1)),
        [0xC0064900, (1 << 2 | 1 << 8 | 1 << 9 | 1 << 10) << 12 | 5 << 8 | 0x14, 1 << 29, LO, HI, 0xDEAD, 0, 0],
    ),
    # a KFD event: 64 bits, interrupt after write confirm, event id as context
    (
        BOTH,
        ReleaseMem(VA, 7, data_sel=2, int_sel=2, int_ctxid=7, event_type=0x28, cache_policy=3),
        [0xC0064900, 3 << 25 | 5 << 8 | 0x28, 2 << 29 | 2 << 24, LO, HI, 7, 0, 7],
    ),
    # Mesa's user fence on gfx11: GLM_WB 12, GLM_INV 13, GL2_WB 21, SEQ 22, policy bypass, 64-bit data
    (
        (G11,),
        ReleaseMem(VA, 0x1_0000_0002, release(G11, GLM_WB=1, GLM_INV=1, GL2_WB=1, SEQ=1), 2, cache_policy=3),
        [0xC0064900, 3 << 25 | 1 << 22 | 1 << 21 | 1 << 13 | 1 << 12 | 0x514, 2 << 29, LO, HI, 2, 1, 0],
    ),
    # 3.6: memory space 1 at bit 4, function == 3
    (BOTH, WaitRegMem(VA, 5), [0xC0053C00, 0x13, LO, HI, 5, 0xFFFFFFFF, 4]),
    (
        BOTH,
        WaitRegMem(VA, 5, 0xFF, function=5, operation=3, poll_interval=8, optimize_ace_offload=1),
        [0xC0053C00, 3 << 6 | 1 << 4 | 5, LO, HI, 5, 0xFF, 1 << 31 | 8],
    ),
    # write one register, poll another: operation 1 at bit 6, space 0
    (
        BOTH,
        WaitRegMem.register_pair(write=0x106, poll=0x107, value=0xFFF, mask=0xFFF),
        [0xC0053C00, 0x43, 0x106, 0x107, 0xFFF, 0xFFF, 4],
    ),
    (
        BOTH,
        WaitRegMem64(VA, 0x1_0000_0002),
        [0xC0079300, 0x15, LO, HI, 2, 1, 0xFFFFFFFF, 0xFFFFFFFF, 4],
    ),
    # 3.7: destination memory 5 at bit 8, confirm bit 20
    (BOTH, WriteData(VA, (1,)), [0xC0033700, 0x500, LO, HI, 1]),
    (
        BOTH,
        WriteData(VA, (1, 2, 3), wr_confirm=1, same_address=1),
        [0xC0053700, 1 << 20 | 1 << 16 | 0x500, LO, HI, 1, 2, 3],
    ),
    # 3.8: L2 to L2, 64 bits at bit 16, confirm at bit 20
    (
        BOTH,
        CopyData(VA, VA + 64, count_sel=1, wr_confirm=1),
        [0xC0044000, 1 << 20 | 1 << 16 | 2 << 8 | 2, LO, HI, LO + 64, HI],
    ),
    # 3.9: CS_PARTIAL_FLUSH is type 7 index 4
    (BOTH, EventWrite.cs_partial_flush(), [0xC0004600, 0x407]),
    (BOTH, EventWrite(0x1E, 2, address=VA), [0xC0024600, 0x21E, LO, HI]),
    # 3.10: KFD has size | valid (23), user queues bit 30 as well
    (BOTH, IndirectBuffer(VA, 64), [0xC0023F00, LO, HI, 1 << 23 | 64]),
    (BOTH, IndirectBuffer(VA, 64, inherit_vmid=1), [0xC0023F00, LO, HI, 1 << 30 | 1 << 23 | 64]),
    (BOTH, IndirectBuffer(VA, 0xFFFFF, chain=1), [0xC0023F00, LO, HI, 1 << 23 | 1 << 20 | 0xFFFFF]),
    (BOTH, IndirectBufferPasid(VA, 64, 9), [0xC0035C00, LO, HI, 1 << 23 | 64, 9]),
    (
        BOTH,
        CondIndirectBuffer(VA, 0xFF, 3, VA + 64, 8, VA + 128, 16, function=4, mode=2),
        [0xC00C3F00, 0x402, LO, HI, 0xFF, 0, 3, 0, LO + 64, HI, 8, LO + 128, HI, 16],
    ),
    # 3.11: 32-bit add without return is 79, 64-bit with return 47
    (BOTH, AtomicMem(VA, 5, 79), [0xC0071E00, 79, LO, HI, 5, 0, 0, 0, 0]),
    (
        BOTH,
        AtomicMem(VA, 5, 40, compare=0x1_0000_0004, command=1, loop_interval=100),
        [0xC0071E00, 1 << 8 | 40, LO, HI, 5, 0, 4, 1, 100],
    ),
    # 3.12
    (BOTH, CondExec(VA, 5), [0xC0032200, LO, HI, 0, 5]),
    (BOTH, PredExec(5, 1), [0xC0002300, 1 << 24 | 5]),
    # 3.13
    (BOTH, ProtectedFenceSignal(), [0xC000D000, 0]),
    # Mesa: control, then va and value of each fence
    (BOTH, FenceWaitMulti(1, ((VA, 0x2_0000_0003),)), [0xC004D100, 1, LO, HI, 3, 2]),
    # 3.14: both through L2 (3 at bits 30:29 and 21:20)
    (BOTH, DmaData(VA, VA + 64, 32), [0xC0055000, 3 << 29 | 3 << 20, LO, HI, LO + 64, HI, 32]),
    # a fill: source is data (2)
    (
        BOTH,
        DmaData(0xAA, VA, 32, src_sel=2, raw_wait=1),
        [0xC0055000, 2 << 29 | 3 << 20, 0xAA, 0, LO, HI, 1 << 30 | 32],
    ),
    (
        BOTH,
        DmaDataFillMulti(VA, 32, 64, 4),
        [0xC0059A00, 2 << 29 | 3 << 20, 64, 4, LO, HI, 32],
    ),
    # the rest of section 2's list
    (BOTH, HdpFlush(), [0xC0009500, 0]),
    (BOTH, Timestamp(VA, 0), [0xC004B200, 1, LO, HI, 0, 0]),
    (BOTH, CondWrite(VA, 3, 0xFF, VA + 64, 9), [0xC0074500, 1 << 8 | 1 << 4 | 3, LO, HI, 3, 0xFF, LO + 64, HI, 9]),
    (BOTH, Rewind(1), [0xC0005900, 1 << 31]),
    (BOTH, PrimeUtcl2(VA, 4, 7, 1), [0xC0035D00, 0xF, LO, HI, 4]),
    (BOTH, PerfmonControl(0x21, 1), [0xC0015400, 1 << 15 | 1, 0x21]),
    (BOTH, PerfCounterWindow(7), [0xC0003D00, 7]),
    (BOTH, InvalidateTlbs(1, pasid=5, gfx_flush_type=2), [0xC0009800, 2 << 29 | 5 << 5 | 1]),
    ((G12,), CleanerShader(), [0xC000D200, 0]),
    (
        (G11,),
        AtomicGds(0x2F, 0x10, 0x40, 4, 8, source_0=0x1_0000_0002, complete=1, auto_increment_bytes=4),
        [0xC0091D00, 1 << 17 | 0x2F, 4, 0x10, 0x40, 8 << 16 | 4, 0, 2, 1, 0, 0],
    ),
]


@pytest.mark.parametrize(
    ("generations", "packet", "want"), GOLDEN, ids=[f"{row[1].NAME}-{index}" for index, row in enumerate(GOLDEN)]
)
def test_packet_encodes_to_golden_dwords(
    generations: tuple[Generation, ...], packet: Packet, want: list[int]
) -> None:
    for generation in generations:
        assert [hex(word) for word in packet.words(generation)] == [hex(word) for word in want]
        assert decode(want, 0, generation) == (packet, len(want))


def test_every_packet_has_a_golden_vector() -> None:
    assert {type(packet) for _, packet, _ in GOLDEN} == set(PACKETS)


def test_reserved_dword_of_cleaner_shader_is_zero() -> None:
    assert CleanerShader().words(G12) == [0xC000D200, 0]


def test_packet_headers_match_section_2() -> None:
    """pm4.md's table: packet, opcode, total dwords, header."""
    table = {
        DispatchDirect(1, 1, 1, 1): (5, 0xC0031500),
        DispatchIndirect(0, 1): (4, 0xC0021600),
        AtomicMem(0, 0, 15): (9, 0xC0071E00),
        CondExec(0, 0): (5, 0xC0032200),
        WriteData(0, (1,)): (5, 0xC0033700),
        WaitRegMem(0, 0): (7, 0xC0053C00),
        IndirectBuffer(0, 1): (4, 0xC0023F00),
        CopyData(0, 0): (6, 0xC0044000),
        EventWrite(7): (2, 0xC0004600),
        EventWrite(7, address=0): (4, 0xC0024600),
        ReleaseMem(0, 0): (8, 0xC0064900),
        DmaData(0, 0, 0): (7, 0xC0055000),
        AcquireMem(0): (8, 0xC0065800),
        SetShReg(0, (1,)): (3, 0xC0017600),
        SetUconfigReg(0, (1,)): (3, 0xC0017900),
        WaitRegMem64(0, 0): (9, 0xC0079300),
        HdpFlush(): (2, 0xC0009500),
        Timestamp(0, 0): (6, 0xC004B200),
        ProtectedFenceSignal(): (2, 0xC000D000),
    }
    for packet, (dwords, header) in table.items():
        words = packet.words(G12)
        assert (len(words), hex(words[0])) == (dwords, hex(header)), packet.NAME
