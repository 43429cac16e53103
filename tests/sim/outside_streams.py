"""What other programs write into a queue, as dwords: facts worked out by hand from their sources.

Each stream names its program, file and version, the inputs, the dwords that the program emits for them, what each
packet says, and what memory holds afterwards. Neither the runtime's encoders nor its tables had a part in them.

    kfdtest   ROCm/rocm-systems 92bf721e, projects/rocr-runtime/libhsakmt/tests/kfdtest/src
    IGT       psennats/drm.igt-gpu-tools, lib/amdgpu: amd_ip_blocks.c at 0254252f, amd_user_queue.c at c8d1c05c
    tinygrad  tinygrad/tinygrad 0000f37e, tinygrad/runtime/ops_amd.py; bit positions from the kernel's nvd.h

kfdtest sets bit 1 of every header (the graphics engines' compute bit); the compute engine has it reserved and runs
such packets all the same: the device says `reserved-bits` and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zinc_rt.sim.interfaces import QueueKind

DATA, OTHER, FENCE, IB, CODE = 0x90000, 0x91000, 0x8F000, 0xD0000, 0xF0000
KFD, USER, SDMA = QueueKind.KFD_COMPUTE, QueueKind.USERQ_COMPUTE, QueueKind.KFD_SDMA
Says = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class OutsideStream:
    """`says`: each packet and some of its fields. `before` and `after`: dwords of memory by VA. `rules`: what the
    device finds odd about it on gfx12. `interrupts`: the context ids that the kernel hears."""

    name: str
    source: str
    inputs: str
    words: tuple[int, ...]
    says: tuple[Says, ...] = ()
    kind: QueueKind = KFD
    before: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    after: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    rules: frozenset[str] = frozenset()
    interrupts: tuple[int, ...] = ()


HEADER_BIT = frozenset({"reserved-bits"})

STREAMS = (
    OutsideStream(
        "kfdtest-write-data",
        "PM4Packet.cpp, PM4WriteDataPacket",
        "address 0x90000, one dword 0x12345678, discrete GPU; cache policy 2 (bypass)",
        (0xC0033702, 0x04100500, 0x00090000, 0x00000000, 0x12345678),
        (("WRITE_DATA", {"dst_sel": 5, "wr_confirm": 1, "same_address": 0, "cache_policy": 2, "address": DATA}),),
        after={DATA: (0x12345678,)},
        rules=HEADER_BIT,
    ),
    OutsideStream(
        "kfdtest-release-polling",
        "PM4Packet.cpp, PM4ReleaseMemoryPacket for NV and later",
        "polled, address 0x8F000, data 0xDEADBEEF, 32 bits",
        (0xC0064902, 0x0070C514, 0x23000000, 0x0008F000, 0x00000000, 0xDEADBEEF, 0x00000000, 0xDEADBEEF),
        (
            (
                "RELEASE_MEM",
                {
                    "event_type": 0x14,
                    "event_index": 5,
                    "gcr_cntl": 0x70C,
                    "dst_sel": 0,
                    "int_sel": 3,
                    "data_sel": 1,
                    "address": FENCE,
                    "data": 0xDEADBEEF,
                    "int_ctxid": 0xDEADBEEF,
                },
            ),
        ),
        after={FENCE: (0xDEADBEEF, 0)},
        rules=HEADER_BIT,
    ),
    OutsideStream(
        "kfdtest-release-event",
        "PM4Packet.cpp, PM4ReleaseMemoryPacket for NV and later; Dispatch.cpp, Submit",
        "with interrupt, address 0x8F000, event 9, 64 bits",
        (0xC0064902, 0x0070C514, 0x42000000, 0x0008F000, 0x00000000, 0x00000009, 0x00000000, 0x00000009),
        (("RELEASE_MEM", {"int_sel": 2, "data_sel": 2, "int_ctxid": 9}),),
        after={FENCE: (9, 0)},
        rules=HEADER_BIT,
        interrupts=(9,),
    ),
    OutsideStream(
        "kfdtest-acquire",
        "PM4Packet.cpp, PM4AcquireMemoryPacket::InitPacketNV",
        "none: a size of 0xFFFFFFFF times 256 bytes from 0",
        (0xC0065802, 0x00000000, 0xFFFFFFFF, 0x00000000, 0x00000000, 0x00000000, 0x00000004, 0x00004381),
        (("ACQUIRE_MEM", {"size_256b": 0xFFFFFFFF, "base_256b": 0, "poll_interval": 4, "gcr_cntl": 0x4381}),),
        rules=HEADER_BIT,
    ),
    OutsideStream(
        "kfdtest-indirect-buffer",
        "PM4Packet.cpp, PM4IndirectBufPacket",
        "8 dwords at 0xD0000, which hold eight one-dword NOPs",
        (0xC0023F02, 0x000D0000, 0x00000000, 0x20800008),
        (
            (
                "INDIRECT_BUFFER",
                {"address": IB, "size_dw": 8, "valid": 1, "chain": 0, "cache_policy": 2, "vmid": 0},
            ),
        ),
        before={IB: (0xFFFF1002,) * 8},
        rules=HEADER_BIT,
    ),
    OutsideStream(
        "kfdtest-dispatch",
        "Dispatch.cpp, BuildIb; the first four of PM4SetShaderRegPacket and PM4DispatchDirectPacket",
        "code at 0xF0000, no arguments, one thread, gfx12, discrete; a NOP of one body dword takes the fence",
        (
            *(0xC0087602, 0x00000204, 0, 0, 0, 1, 1, 1, 0, 0),
            *(0xC0067602, 0x0000020C, 0x00000F00, 0, 0, 0, 0, 0),
            *(0xC0027602, 0x00000212, 0x000C0004, 0x00002888),
            *(0xC0017602, 0x00000215, 0),
            *(0xC0031502, 1, 1, 1, 0x00008021),
        ),
        (
            ("SET_SH_REG", {"register": 0x204, "values": (0, 0, 0, 1, 1, 1, 0, 0)}),
            ("SET_SH_REG", {"register": 0x20C, "values": (0xF00, 0, 0, 0, 0, 0)}),
            ("SET_SH_REG", {"register": 0x212, "values": (0xC0004, 0x2888)}),
            ("SET_SH_REG", {"register": 0x215}),
            ("DISPATCH_DIRECT", {"dim_x": 1, "dim_y": 1, "dim_z": 1, "initiator": 0x8021}),
        ),
        rules=HEADER_BIT,
    ),
    OutsideStream(
        "kfdtest-fence-in-a-nop",
        "Dispatch.cpp, BuildIb: PM4NopPacket(2), PM4ReleaseMemoryPacket, PM4WaitRegMemPacket",
        "run from 0xD0000: the fence is the NOP's body at 0xD0004; polled every 4",
        (
            *(0xC0001002, 0x00000000),
            *(0xC0064902, 0x0070C514, 0x23000000, 0x000D0004, 0, 0xDEADBEEF, 0, 0xDEADBEEF),
            *(0xC0053C02, 0x00000013, 0x000D0004, 0, 0xDEADBEEF, 0xFFFFFFFF, 0x00000004),
        ),
        (
            ("NOP", {"body": (0,)}),
            ("RELEASE_MEM", {"address": IB + 4}),
            (
                "WAIT_REG_MEM",
                {"function": 3, "mem_space": 1, "operation": 0, "address": IB + 4, "reference": 0xDEADBEEF},
            ),
        ),
        after={IB + 4: (0xDEADBEEF,)},
        rules=HEADER_BIT,
    ),
    OutsideStream(
        "kfdtest-partial-flush",
        "PM4Packet.cpp, PM4PartialFlushPacket",
        "none",
        (0xC0004602, 0x00000407),
        (("EVENT_WRITE", {"event_type": 7, "event_index": 4, "address": None}),),
        rules=HEADER_BIT,
    ),
    OutsideStream(
        "igt-write-linear",
        "amd_ip_blocks.c, gfx_ring_write_linear",
        "address 0x90000, 4 dwords of 0xDEADBEAF",
        (0xC0063700, 0x00100500, 0x00090000, 0, 0xDEADBEAF, 0xDEADBEAF, 0xDEADBEAF, 0xDEADBEAF),
        (("WRITE_DATA", {"dst_sel": 5, "wr_confirm": 1, "address": DATA, "data": (0xDEADBEAF,) * 4}),),
        after={DATA: (0xDEADBEAF,) * 4 + (0,)},
    ),
    OutsideStream(
        "igt-const-fill",
        "amd_ip_blocks.c, gfx_ring_const_fill; bit 31 is CP_SYNC of the graphics engines",
        "address 0x90000, 256 bytes of 0xDEADBEAF",
        (0xC0055000, 0xC0000000, 0xDEADBEAF, 0, 0x00090000, 0, 256),
        (
            (
                "DMA_DATA",
                {"src_sel": 2, "dst_sel": 0, "cp_sync": 1, "src": 0xDEADBEAF, "dst": DATA, "byte_count": 256},
            ),
        ),
        after={DATA: (0xDEADBEAF,) * 64 + (0,)},
    ),
    OutsideStream(
        "igt-copy-linear",
        "amd_ip_blocks.c, gfx_ring_copy_linear",
        "16 bytes from 0x90000 to 0x91000",
        (0xC0055000, 0x80000000, 0x00090000, 0, 0x00091000, 0, 16),
        (("DMA_DATA", {"src_sel": 0, "dst_sel": 0, "cp_sync": 1, "src": DATA, "dst": OTHER, "byte_count": 16}),),
        before={DATA: (1, 2, 3, 4, 5)},
        after={OTHER: (1, 2, 3, 4, 0)},
    ),
    OutsideStream(
        "igt-atomic",
        "amd_ip_blocks.c, gfx_ring_atomic: compare and swap, looping",
        "address 0x90000, which holds the compared 0xDEADBEAF",
        (0xC0071E00, 0x00000108, 0x00090000, 0, 0x12345678, 0, 0xDEADBEAF, 0, 0x00000100),
        (
            (
                "ATOMIC_MEM",
                {
                    "atomic": 8,
                    "command": 1,
                    "address": DATA,
                    "source": 0x12345678,
                    "compare": 0xDEADBEAF,
                    "loop_interval": 0x100,
                },
            ),
        ),
        before={DATA: (0xDEADBEAF,)},
        after={DATA: (0x12345678, 0)},
    ),
    OutsideStream(
        "igt-wait-reg-mem",
        "amd_ip_blocks.c, gfx_ring_wait_reg_mem",
        "address 0x90000, which holds the awaited 0xDEADBEAF",
        (0xC0053C00, 0x00000013, 0x00090000, 0, 0xDEADBEAF, 0xFFFFFFFF, 0x00000004),
        (("WAIT_REG_MEM", {"function": 3, "mem_space": 1, "reference": 0xDEADBEAF, "poll_interval": 4}),),
        before={DATA: (0xDEADBEAF,)},
    ),
    OutsideStream(
        "igt-user-queue",
        "amd_user_queue.c, amdgpu_user_queue_submit for compute",
        "8 dwords at 0xD0000, which hold eight one-dword NOPs",
        (0xC0023F00, 0x000D0000, 0, 0x40800008, 0xC000D000, 0),
        (
            ("INDIRECT_BUFFER", {"address": IB, "size_dw": 8, "valid": 1, "inherit_vmid": 1, "priv": 0}),
            ("PROTECTED_FENCE_SIGNAL", {"dummy": 0}),
        ),
        kind=USER,
        before={IB: (0xFFFF1000,) * 8},
    ),
    OutsideStream(
        "tinygrad-acquire",
        "ops_amd.py, AMDComputeQueue.acquire_mem with its defaults; sets GLM and GL1, and all 64 bits of the size",
        "none",
        (0xC0065800, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0, 0x0000C3F1),
        (("ACQUIRE_MEM", {"size_256b": (1 << 40) - 1, "base_256b": 0, "gcr_cntl": 0xC3F1, "poll_interval": 0}),),
        rules=frozenset({"reserved-bits"}),
    ),
    OutsideStream(
        "tinygrad-signal",
        "ops_amd.py, AMDComputeQueue.signal",
        "signal at 0x8F000, value 5",
        (0xC0064900, 0x0070F514, 0x22000000, 0x0008F000, 0, 5, 0, 0),
        (
            (
                "RELEASE_MEM",
                {"event_type": 0x14, "event_index": 5, "gcr_cntl": 0x70F, "data_sel": 1, "int_sel": 2, "data": 5},
            ),
        ),
        after={FENCE: (5,)},
        rules=frozenset({"reserved-bits"}),
        interrupts=(0,),
    ),
    OutsideStream(
        "tinygrad-wait",
        "ops_amd.py, AMDComputeQueue.wait",
        "signal at 0x8F000 that has reached 6, for at least 5",
        (0xC0053C00, 0x00000015, 0x0008F000, 0, 5, 0xFFFFFFFF, 4),
        (("WAIT_REG_MEM", {"function": 5, "mem_space": 1, "operation": 0, "address": FENCE, "reference": 5}),),
        before={FENCE: (6,)},
    ),
    OutsideStream(
        "tinygrad-hdp-flush",
        "ops_amd.py, AMDComputeQueue.memory_barrier: write one register, poll another",
        "registers 0xE26 and 0xE27",
        (0xC0053C00, 0x00000045, 0x00000E26, 0x00000E27, 0xFFFFFFFF, 0xFFFFFFFF, 4),
        (("WAIT_REG_MEM", {"function": 5, "mem_space": 0, "operation": 1, "address": 0xE26 | 0xE27 << 32}),),
        rules=frozenset({"register-pair"}),
    ),
    OutsideStream(
        "tinygrad-exec",
        "ops_amd.py, AMDComputeQueue.exec from COMPUTE_RESTART_X on",
        "arguments at 0x90000, groups of 32 threads, 2 groups, wave32, code set up before",
        (
            *(0xC0027600, 0x0000020C, 0x00000F00, 0),
            *(0xC0037600, 0x0000021B, 0, 0, 0),
            *(0xC0027600, 0x00000240, 0x00090000, 0),
            *(0xC0017600, 0x00000215, 0),
            *(0xC0087600, 0x00000204, 0, 0, 0, 32, 1, 1, 0, 0),
            *(0xC0031500, 2, 1, 1, 0x00008005),
            *(0xC0004600, 0x00000407),
        ),
        (
            ("SET_SH_REG", {"register": 0x20C, "values": (0xF00, 0)}),
            ("SET_SH_REG", {"register": 0x21B, "values": (0, 0, 0)}),
            ("SET_SH_REG", {"register": 0x240, "values": (0x90000, 0)}),
            ("SET_SH_REG", {"register": 0x215}),
            ("SET_SH_REG", {"register": 0x204}),
            ("DISPATCH_DIRECT", {"dim_x": 2, "initiator": 0x8005}),
            ("EVENT_WRITE", {"event_type": 7, "event_index": 4}),
        ),
    ),
    OutsideStream(
        "tinygrad-copy-counter",
        "ops_amd.py, sqtt_stop: COPY_DATA of a counter register to memory through L2",
        "register 0xD808 to 0x90000",
        (0xC0044000, 0x00100204, 0x0000D808, 0, 0x00090000, 0),
        (
            (
                "COPY_DATA",
                {"src_sel": 4, "dst_sel": 2, "count_sel": 0, "wr_confirm": 1, "src": 0xD808, "dst": DATA},
            ),
        ),
        after={DATA: (0,)},
        rules=frozenset({"not-simulated"}),
    ),
    OutsideStream(
        "tinygrad-submit",
        "ops_amd.py, AMDComputeQueue.submit",
        "8 dwords at 0xD0000, which hold eight one-dword NOPs",
        (0xC0023F00, 0x000D0000, 0, 0x00800008),
        (("INDIRECT_BUFFER", {"size_dw": 8, "valid": 1, "inherit_vmid": 0, "cache_policy": 0}),),
        before={IB: (0xFFFF1000,) * 8},
    ),
    # --- SDMA: the runtime has no such packets; the device's own table alone is judged ---
    OutsideStream(
        "igt-sdma-write",
        "amd_ip_blocks.c, sdma_ring_write_linear",
        "address 0x90000, 2 dwords of 0xDEADBEAF",
        (0x00000002, 0x00090000, 0, 1, 0xDEADBEAF, 0xDEADBEAF),
        kind=SDMA,
        after={DATA: (0xDEADBEAF, 0xDEADBEAF, 0)},
    ),
    OutsideStream(
        "igt-sdma-fill",
        "amd_ip_blocks.c, sdma_ring_const_fill",
        "address 0x90000, 64 bytes of 0xDEADBEAF",
        (0x8000000B, 0x00090000, 0, 0xDEADBEAF, 63),
        kind=SDMA,
        after={DATA: (0xDEADBEAF,) * 16 + (0,)},
    ),
    OutsideStream(
        "igt-sdma-copy",
        "amd_ip_blocks.c, sdma_ring_copy_linear",
        "16 bytes from 0x90000 to 0x91000",
        (0x00000001, 15, 0, 0x00090000, 0, 0x00091000, 0),
        kind=SDMA,
        before={DATA: (1, 2, 3, 4, 5)},
        after={OTHER: (1, 2, 3, 4, 0)},
    ),
    OutsideStream(
        "igt-sdma-atomic",
        "amd_ip_blocks.c, sdma_ring_atomic: compare and swap, looping",
        "address 0x90000, which holds the compared 0xDEADBEAF",
        (0x1001000A, 0x00090000, 0, 0x12345678, 0, 0xDEADBEAF, 0, 0x00000100),
        kind=SDMA,
        before={DATA: (0xDEADBEAF,)},
        after={DATA: (0x12345678, 0)},
    ),
    OutsideStream(
        "tinygrad-sdma-signal",
        "ops_amd.py, AMDSDMAQueue.signal: a fence of memory type 3, then a trap",
        "signal at 0x8F000, value 5",
        (0x00030005, 0x0008F000, 0, 5, 0x00000006, 0),
        kind=SDMA,
        after={FENCE: (5,)},
        interrupts=(0,),
    ),
    OutsideStream(
        "tinygrad-sdma-wait",
        "ops_amd.py, AMDSDMAQueue.wait: polls memory, at least",
        "signal at 0x8F000 that has reached 6, for at least 5",
        (0xD0000008, 0x0008F000, 0, 5, 0xFFFFFFFF, 0x0FFF0004),
        kind=SDMA,
        before={FENCE: (6,)},
    ),
)
