"""The rules of the sanitizer, one row each: tool, severity, sentence, advice, page of docs/, source.

To add a rule, add a row here and the check that reports its id. The simulated device takes the severity and the
default text of a finding from the row, `zinc-rt isa lint` the static sentence, validate's digest the advice,
`zinc-rt assumptions` the rule of hardware with its source. `python3 ci/sanitizer_rules.py` writes the rows into
docs/sanitizer.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

MEMCHECK, INITCHECK, RACECHECK = "memcheck", "initcheck", "racecheck"
SYNCCHECK, CACHECHECK, WAITCHECK, DEVICE = "synccheck", "cachecheck", "waitcheck", "device"
TOOLS = {
    MEMCHECK: "bounds and alignment of accesses",
    INITCHECK: "reads of memory and registers that were never written",
    RACECHECK: "accesses to the same memory that no barrier, fence or scope orders",
    SYNCCHECK: "barriers, EXEC, and waves that do not end",
    CACHECHECK: "stale cache lines and lost stores",
    WAITCHECK: "waits and hazards in machine code, found on every path without running it",
    DEVICE: "packets, launches and code that the device cannot run or that no document describes",
}
MODES = {"off": (), "fast": (MEMCHECK, INITCHECK), "full": tuple(tool for tool in TOOLS if tool != DEVICE)}
"""The tools of each sanitizer mode; the rules of DEVICE are always checked."""
STOPS_QUEUE = ("stops",)  # as facts.STOPS: with `assumptions --flip` the queue stops instead of a finding
GUIDE = "RDNA4 ISA guide"


class Severity(Enum):
    """The severity of a finding."""

    ERROR = "error"  # illegal: the hardware hangs or faults
    FINDING = "finding"  # reserved or unverified bits that shipped software uses; our own tests fail on one


@dataclass(frozen=True, slots=True)
class SanitizerRule:
    """A rule.

    `sentence` describes the finding. `static` is the sentence of the static sanitizer, "" if it has no such rule.
    `default_text` completes the report of a wave if the check gives no text. `advice` is the usual cause.
    `kernel_at_fault`: a kernel that breaks the rule is wrong regardless of earlier work. `ends_launch`: the wave
    that is reported never continues, so its launch never completes. `level` is the first mode
    that checks the rule. `doc` is a page and anchor in docs/. `says` is the rule of hardware that the check
    assumes, with the columns of a row of facts.yaml: where, origin, other, settled_by, code.
    """

    id: str
    tool: str
    sentence: str
    says: str
    where: str
    origin: str
    level: str
    doc: str
    severity: Severity = Severity.FINDING
    static: str = ""
    default_text: str = ""
    advice: str = ""
    kernel_at_fault: bool = False
    ends_launch: bool = False
    other: tuple[str, ...] = ()
    settled_by: tuple[str, ...] = ()
    code: str = ""


_packet = partial(SanitizerRule, origin="source", level="off", doc="command-processor.md#three-outcomes")
_wave = partial(
    SanitizerRule,
    origin="documented",
    where=GUIDE,
    level="fast",
    doc="shader-engine.md#unwritten-registers",
)
_static = partial(SanitizerRule, origin="documented", where=GUIDE, level="fast", doc="isa.md#the-static-sanitizer")

# fmt: off
_ROWS = (
    # --- found in ioctls and packets
    _packet("alignment", DEVICE, "an address with low bits that the packet cannot encode; they are dropped",
        says="address bits that a packet cannot encode are ignored; scalar tuples start at even registers",
        where="PAL gfx12_merged_f32_mec_pm4_packets.h; RDNA4 ISA guide",
        static="a misaligned tuple of scalar registers"),
    _packet("argument-unused", DEVICE,
        "a nonzero ioctl member that queues of this type do not use",
        says="sdma_engine_id is for SDMA queues by engine, metadata_ring_size for rings with metadata: 0 for "
             "others", where="include/uapi/linux/kfd_ioctl.h, interfaces 1.17 and 1.22",
        doc="simulated-device.md#rows"),
    _packet("dispatch-disabled", DEVICE, "COMPUTE_SHADER_EN is clear: nothing is launched",
        says="without COMPUTE_SHADER_EN nothing is launched",
        where="PAL gfx12_merged_registers.h, COMPUTE_DISPATCH_INITIATOR"),
    _packet("dma-empty", DEVICE, "a copy of 0 bytes", says="a copy of 0 bytes does nothing",
        where="no source uses one without CP_SYNC", origin="assumed", other=STOPS_QUEUE,
        settled_by=("a probe of DMA_DATA with size 0",)),
    _packet("doorbell-alignment", DEVICE, "an SDMA doorbell that is not a multiple of 4",
        says="an SDMA doorbell counts bytes and is a multiple of 4", where="amdgpu/sdma_v7_0.c"),
    _packet("doorbell-backwards", DEVICE,
        "a doorbell value below the last one: software wrapped the write pointer; nothing runs",
        says="software never wraps a write pointer; it only increases",
        where="tinygrad runtime/ops_amd.py; kfdtest PM4Queue.cpp", severity=Severity.ERROR),
    _packet("event-index", DEVICE,
        "RELEASE_MEM with an event index that does not match the event type (end of pipe 5, shader done 6)",
        says="RELEASE_MEM's event index must match its event type: 5 end of pipe, 6 shader done (CS_DONE)",
        where="PAL gfx12_merged_f32_mec_pm4_packets.h, MEC_RELEASE_MEM_event_index_enum; gfx12Barrier.cpp",
        origin="documented", severity=Severity.ERROR),
    _packet("cache-discard", CACHECHECK,
        "ACQUIRE_MEM or RELEASE_MEM with GL2_DISCARD: lines are dropped without a write-back, which loses stores",
        says="GL2_DISCARD invalidates GL2 without a write-back: dirty lines are lost",
        where="Linux nvd.h PACKET3_ACQUIRE_MEM_GCR_CNTL_GL2_DISCARD; PAL gfx12CmdUtil.cpp never sets it",
        severity=Severity.ERROR),
    _packet("fence-in-ib", DEVICE, "PROTECTED_FENCE_SIGNAL in an indirect buffer",
        says="PROTECTED_FENCE_SIGNAL in an indirect buffer signals the ring's position",
        where="Mesa and IGT use it in the ring only", origin="assumed", other=STOPS_QUEUE, settled_by=("P52",)),
    _packet("fence-order", DEVICE,
        "PROTECTED_FENCE_SIGNAL after running work, without a RELEASE_MEM between them",
        says="PROTECTED_FENCE_SIGNAL may not wait for running work",
        where="Mesa and IGT put a RELEASE_MEM before it", origin="assumed", other=STOPS_QUEUE,
        settled_by=("protected_fence",)),
    _packet("group-size", DEVICE, "a workgroup with no threads or more than 1024",
        says="a workgroup has 1 to 1024 threads", where="RDNA4 ISA guide", origin="documented"),
    _packet("ib-alignment", DEVICE, "an indirect buffer whose start or size is not a multiple of 32 bytes",
        says="indirect buffers start and end at 32 bytes",
        where="amdgpu/amdgpu_kms.c (ib_start_alignment); a finding only"),
    _packet("ib-empty", DEVICE, "an indirect buffer of 0 dwords",
        says="an indirect buffer of 0 dwords is skipped", where="no source uses one without CP_SYNC",
        origin="assumed", other=STOPS_QUEUE, settled_by=("a probe of INDIRECT_BUFFER with size 0",)),
    _packet("ib-inherit-vmid", DEVICE,
        "bit 30 missing on a user queue (it faults), or set on a KFD queue (a finding only)",
        says="user queues require bit 30; KFD queues ignore it",
        where="Mesa and IGT set it for user queues", severity=Severity.ERROR),
    _packet("ib-nesting", DEVICE, "an indirect buffer called from an indirect buffer",
        says="a second level of indirect buffers works", where="PAL calls one level from the ring",
        origin="assumed", other=STOPS_QUEUE, settled_by=("ib_nesting",)),
    _packet("missing-barrier", RACECHECK,
        "dependent work that overlaps: read or write after write, write after read",
        says="dispatches of a queue overlap until CS_PARTIAL_FLUSH or a fence",
        where="Mesa, PAL gfx12CmdUtil.cpp and tinygrad flush between dependent dispatches",
        doc="command-processor.md#what-counts-as-a-barrier"),
    _packet("missing-cache-op", CACHECHECK, "ordered work that may still read stale lines",
        says="L0, scalar and instruction caches are not coherent with stores; GL2 is not coherent with memory",
        where="PAL gfx12CmdUtil.cpp (GCR_CNTL); RDNA4 ISA guide, memory model of LLVM AMDGPUUsage",
        doc="shader-memory.md#stale-lines-coherence-caches"),
    _packet("no-shader-engine", DEVICE, "a dispatch on a device without a shader engine",
        says="without a shader engine a dispatch ends at once", where="for tests of the command processor",
        origin="documented"),
    _packet("not-simulated", DEVICE,
        "a counter or hint that has no effect here; in a kernel, an instruction that ends the wave",
        says="counters, hints and features that no kernel here needs have no effect",
        where="docs/command-processor.md and docs/shader-engine.md list them", origin="documented",
        ends_launch=True),
    _packet("overlapping-copy", RACECHECK, "DMA between overlapping ranges",
        says="the result of an overlapping copy depends on the order", where="no source defines one",
        origin="assumed", settled_by=("a probe of an overlapping DMA_DATA",)),
    _packet("packet-unverified", DEVICE, "a packet whose layout or effect was not verified",
        says="packets with an unverified layout do what their names suggest",
        where="names in PAL's and Mesa's opcode lists only", origin="assumed", other=STOPS_QUEUE,
        settled_by=("a probe of PRED_EXEC, DMA_DATA_FILL_MULTI, FENCE_WAIT_MULTI and SET_*_PAIRS",)),
    _packet("predicate", DEVICE, "header bit 0", says="header bit 0 is for graphics engines and 0 on compute",
        where="PAL gfx12_merged_f32_mec_pm4_packets.h"),
    _packet("register-bits", DEVICE, "register bits that belong to no field",
        says="register bits outside all fields are 0", where="PAL gfx12_merged_registers.h"),
    _packet("register-pair", DEVICE, "WAIT_REG_MEM's write-wait-write, which is treated as an HDP flush",
        says="WAIT_REG_MEM's write-wait-write is an HDP flush",
        where="amdgpu's kernel rings use it for that only", origin="assumed", other=STOPS_QUEUE,
        settled_by=("P41",)),
    _packet("register-unknown", DEVICE, "a register that is not in the register tables",
        says="registers that are not in the tables may be set and have no effect",
        where="PAL's and Mesa's register lists are incomplete", origin="assumed", other=STOPS_QUEUE,
        settled_by=("a name for the register",)),
    _packet("reserved-bits", DEVICE,
        "packet bits that belong to no field, except the GL1 and GLM bits of ACQUIRE_MEM, which gfx12 accepts "
        "(`pm4 decode --lint` reports those)", says="packet bits outside all fields are ignored",
        where="PAL's headers; rocjitsu's corpus sends gfx11's GL1 and GLM bits to a native gfx1201, which accepts "
              "them"),
    _packet("skip-past-end", DEVICE, "COND_EXEC or PRED_EXEC that skips past the end of its buffer",
        says="COND_EXEC stops skipping at the end of its buffer", where="no source does it", origin="assumed",
        other=STOPS_QUEUE, settled_by=("a probe of COND_EXEC",)),
    _packet("stale-hdp", CACHECHECK,
        "work that reads bytes which the host stored through the BAR without an HDP flush since then",
        says="host stores to VRAM wait in HDP, and the GPU may read the old bytes until a flush",
        where="amdgpu hdp_v7_0.c, Mesa PKT3_HDP_FLUSH, tinygrad ops_amd.py; it drains at no specified time",
        doc="simulated-device.md#scope-of-the-model"),
    _packet("value", DEVICE, "a field value that is undefined on this chip",
        says="a field has only the listed values",
        where="PAL gfx12_merged_f32_mec_pm4_packets.h, complete lists"),
    _packet("value-unverified", DEVICE, "an undocumented field value",
        says="undocumented values have no effect", where="lists known to be incomplete",
        origin="assumed", other=STOPS_QUEUE, settled_by=("a source for the value",)),
    _packet("wptr-not-published", DEVICE, "a doorbell that was rung before the write pointer was in memory",
        says="the write pointer is in memory before the doorbell rings",
        where="amdgpu and kfdtest publish it first; MES reads it when it maps a queue"),
    _packet("writes-count", DEVICE, "SET_SH_REG_PAIRS_PACKED whose count does not match its contents",
        says="the contents of a SET_*_PAIRS_PACKED packet determine its count",
        where="in PAL both always match", origin="assumed", other=STOPS_QUEUE,
        settled_by=("a probe of SET_SH_REG_PAIRS_PACKED",)),
    _packet("written-after-fetch", DEVICE, "a write into the running indirect buffer",
        says="the CP has fetched up to 1024 dwords ahead", where="a guess", origin="assumed",
        settled_by=("a probe that writes into its own indirect buffer",), code="zinc_rt.sim.cp.fetch:WINDOW_DW"),
    # --- found while waves run
    _wave("barrier-misuse", SYNCCHECK, "a wait without a preceding signal, or two signals in one phase",
        says="one signal, then one wait per phase", level="full"),
    _wave("barrier-mismatch", SYNCCHECK,
        "a barrier that some waves of the workgroup never reached because they ended; reports where it was "
        "signalled, which waves ended, and where",
        says="every wave of a workgroup reaches its barriers or has ended", level="off"),
    _wave("barrier-stuck", SYNCCHECK,
        "every wave of a workgroup waits, and no wave is left to signal",
        says="a barrier ends when all waves have signalled", level="off", ends_launch=True,
        default_text="waits at a barrier that the other waves never reach"),
    _wave("dynamic-vgprs", DEVICE, "a wave64 dispatch that asks for dynamic VGPRs: no wave runs",
        says="only wave32 has dynamic VGPRs", where="LLVM AMDGPUUsage, dynamic VGPR mode",
        level="off", doc="simulated-device.md#shaders"),
    _wave("exec-empty", SYNCCHECK, "v_readfirstlane with no lane in EXEC: lane 0 is read",
        says="readfirstlane with no lane reads lane 0", level="full"),
    _wave("findings-lost", DEVICE, "the number of findings of a launch that were not recorded",
        says="not all findings of one launch are kept", where="no hardware claim", level="fast"),
    _wave("halt", DEVICE, "`s_sethalt`, `s_sendmsghalt`: the wave ends",
        says="s_sethalt and s_sendmsghalt end the wave", level="off", ends_launch=True),
    _wave("illegal", DEVICE, "an invalid or unsimulated instruction: the wave ends",
        says="invalid instructions end the wave, and so do instructions that are not simulated", level="off",
        ends_launch=True,
        static="bytes that are not a valid instruction on this chip"),
    _wave("inactive-lane", SYNCCHECK,
        "a lane permutation (DPP, permlane, `ds_swizzle`, `ds_bpermute`) that reads a lane disabled by EXEC",
        says="reads of a lane disabled by EXEC return 0, or are not executed", level="full",
        doc="shader-memory.md#rules"),
    _wave("lds-out-of-bounds", MEMCHECK,
        "an access beyond the LDS size of the launch: dwords read as 0, bytes outside are not stored",
        says="beyond a workgroup's LDS, loads return 0 and stores are dropped", doc="shader-memory.md#rules",
        advice="beyond the allocation: the container declares too little LDS, or the address is wrong",
        kernel_at_fault=True),
    _wave("lds-race", RACECHECK,
        "unordered accesses of two waves of a workgroup to the same byte of LDS, at least one a store; reports "
        "both accesses",
        says="waves that share LDS order their accesses with barriers", level="full", doc="shader-memory.md#rules",
        kernel_at_fault=True),
    _wave("lds-same-store", RACECHECK,
        "a store to LDS that races with stores only, like `lds-race`, but stores the bytes that are there: every "
        "order has the same result, and compilers let several waves store one value; always a remark",
        says="waves that store one value to the same bytes of LDS need no order", where="no hardware claim",
        level="full", doc="shader-memory.md#rules"),
    _wave("lds-size", DEVICE, "a launch that requests more LDS than a workgroup has: no wave runs",
        says="a workgroup has at most 64 KiB", code="zinc_rt.sim.shader.launch_setup:LDS_LIMIT_BYTES", level="off",
        doc="simulated-device.md#shaders"),
    _wave("misaligned", MEMCHECK,
        "an atomic that is not aligned to its size (it does nothing and returns 0), or a scalar load with low "
        "address bits set (ignored); in LDS and memory. Vector loads and stores may be unaligned: KFD sets "
        "unaligned mode",
        says="atomics are aligned to their size, scalar loads to dwords; other accesses may be unaligned",
        doc="shader-memory.md#rules", kernel_at_fault=True),
    _wave("out-of-bounds", MEMCHECK,
        "a mapped address that is not inside one range; the load or store is executed",
        says="an access stays within one allocation", where="a rule of this project; page tables allow more",
        doc="shader-memory.md#rules", kernel_at_fault=True),
    _wave("out-of-fuel", SYNCCHECK, "a launch in a test exceeded its fuel", says="a wave ends",
        where="a rule of tests; a device preempts", level="off",
        default_text="still runs: an endless loop, or not enough fuel"),
    _wave("still-running", SYNCCHECK,
        "waves that have not ended when their queue is destroyed or a hang report is made; reports the loop, "
        "its exit branches and their conditions, and the registers that these depend on",
        says="waves have ended when their queue is destroyed", where="a rule of this project", level="off",
        default_text="has not ended"),
    _wave("page-fault", MEMCHECK,
        "an access that the page tables do not permit; reports its origin (packet, instruction, wave, lanes), "
        "the byte, and the neighbouring allocations; a wave ends",
        says="a page fault ends the process's queues; its origin is reported too",
        where="amdkfd evicts the process's queues and reports the page (kfd_events.c); the rest is not a "
              "claim about hardware", severity=Severity.ERROR, level="off",
        doc="hang.md#page-faults-what-silicon-tells-and-what-only-the-simulated-device-knows"),
    _wave("race", RACECHECK,
        "unordered accesses of two waves to the same byte, at least one a store; reports both accesses",
        says="workgroups that share memory order their accesses with scopes and fences",
        where="LLVM AMDGPUUsage, memory model for gfx12", level="full", doc="shader-memory.md#rules",
        kernel_at_fault=True),
    _wave("scratch-out-of-bounds", MEMCHECK,
        "an access beyond the lane's scratch: loads return 0, stores are dropped",
        says="beyond a lane's scratch, loads return 0 and stores are dropped", doc="shader-memory.md#rules"),
    _wave("scratch-size", DEVICE, "a launch whose scratch exceeds TMPRING_SIZE: no wave runs",
        says="a wave's scratch fits in TMPRING_SIZE and in its memory",
        where="PAL gfx12_merged_registers.h; tinygrad (256-byte units)", origin="source", level="off",
        doc="simulated-device.md#shaders"),
    _wave("stale-line", CACHECHECK,
        "a load from a cached line that is older than memory; only with `--coherence caches`",
        says="an L0 or scalar cache keeps a line until it is invalidated, regardless of stores by others",
        where="LLVM AMDGPUUsage, memory model for gfx12; the instruction cache: PAL's GLI_INV after uploads",
        doc="shader-memory.md#stale-lines-coherence-caches"),
    _wave("trap", DEVICE, "`s_trap`: the wave ends", says="s_trap enters the trap handler, which is not installed",
        where="RDNA4 ISA guide; amdkfd installs its own for debuggers", level="off", ends_launch=True),
    _wave("uninitialised-lds", INITCHECK, "a load of a byte of LDS that the workgroup has not stored",
        says="LDS is initially undefined", doc="shader-memory.md#rules",
        advice="no wave has stored there yet: a barrier is missing before the load, or the address is wrong",
        kernel_at_fault=True),
    _wave("uninitialised-memory", INITCHECK,
        "a load of a byte that was never written, in memory that the host has never mapped",
        says="new memory is undefined", where="amdgpu clears VRAM only on request",
        doc="shader-memory.md#rules",
        advice="the address was never written: an earlier store is missing, or it went to another address"),
    _wave("uninitialised-scratch", INITCHECK, "a load of a byte of scratch that the lane has not stored",
        says="scratch is initially undefined", doc="shader-memory.md#rules"),
    _wave("uninitialised-sgpr", INITCHECK,
        "a use of an SGPR (including VCC, M0, SCC, EXEC) with bits that were never written; once per wave and "
        "instruction",
        says="SGPRs are undefined except those set by the launch, and so are results computed from them"),
    _wave("uninitialised-vgpr", INITCHECK,
        "a use of a VGPR with bits that were never written; once per wave and instruction",
        says="VGPRs are undefined except those set by the launch, and so are results computed from them"),
    _wave("unwritten-output", INITCHECK,
        "elements of an output of `zinc-rt launch` that no wave stored", says="a kernel writes all of its outputs",
        where="a rule of this project", doc="launch.md#outputs"),
    _wave("user-sgprs", DEVICE, "a launch with more user data registers than the chip has: no wave runs",
        says="there are 16 user data registers", where="PAL gfx12_merged_registers.h", origin="source",
        code="zinc_rt.sim.shader.launch_setup:USER_SGPRS", level="off", doc="simulated-device.md#shaders"),
    _wave("vgpr-out-of-range", MEMCHECK,
        "a VGPR beyond the number in the kernel's header: hardware drops writes and reads v0 instead",
        says="beyond a wave's VGPRs, writes are dropped and reads return v0"),
    _wave("wmma-copies", SYNCCHECK,
        "a matrix instruction of gfx11 whose A or B differs between the lanes that must hold copies of it",
        says="lanes 0-15, 16-31 and so on of A and B hold the same", where="RDNA3 ISA guide, 7.9",
        doc="vector-alu.md#rdna3"),
    _wave("wmma-exec", SYNCCHECK, "a matrix instruction, or a transposing load, while EXEC is not all ones",
        says="a matrix instruction requires EXEC to be all ones"),
    # --- found in code that is about to run, and by `zinc-rt isa lint`
    _static("wait", WAITCHECK,
        "a register read or overwritten while a load, LDS or scalar load, atomic or message may still write it; "
        "reports the missing wait and its count", says="s_wait_* before a result is used",
        where="RDNA4 ISA guide; LLVM SIInsertWaitcnts",
        static="a result is read or overwritten before its wait", kernel_at_fault=True),
    _static("barrier-wait", WAITCHECK,
        "pending LDS accesses at a barrier's signal, or pending stores to memory that is read after the barrier "
        "with the same address registers",
        says="waits for memory operations come before the barrier that publishes them",
        where="LLVM AMDGPUUsage",
        static="an LDS or memory access is still pending at the barrier after which others read it"),
    _static("order", WAITCHECK, "a load pending at a global_inv; a store after an unfinished global_wb",
        says="global_wb and global_inv are ordered by waits", where="LLVM SIMemoryLegalizer",
        static="a load is pending at an invalidation, or a write-back is pending at the store that publishes it"),
    _static("sgpr-read", WAITCHECK,
        "the RDNA4 SGPR read hazard: once the VALU has read a pair, a value written to it needs s_wait_alu "
        "before it is read", says="s_wait_alu between a VALU's read of an SGPR pair and the use of a new value",
        where="RDNA4 ISA 5.7; the guards LLVM 22 inserts",
        static="an SGPR or VCC is read before its new value arrives (RDNA4 SGPR read hazard)"),
    _static("trans-use", WAITCHECK,
        "gfx11.0: the result of a transcendental instruction needs s_waitcnt_depctr before one of the next VALU "
        "instructions reads it",
        says="va_vdst(0) between a transcendental instruction and a near read",
        where="LLVM GCNHazardRecognizer, fixVALUTransUseHazard",
        static="the result of a transcendental instruction is read too early"),
    _static("partial-forwarding", WAITCHECK,
        "gfx11, wave64: two vector registers written before and after a SALU write to EXEC need s_waitcnt_depctr "
        "before one instruction reads both",
        says="va_vdst(0) before a read of results from both sides of a write to EXEC",
        where="LLVM GCNHazardRecognizer, fixVALUPartialForwardingHazard",
        static="results from both sides of a write to EXEC are read too early"),
    _static("mask-write", WAITCHECK,
        "gfx11, wave64: after the VALU has read a scalar register as a mask, a value that the SALU writes to it "
        "needs s_waitcnt_depctr before it is read", says="sa_sdst(0) between a SALU's write to a mask and its use",
        where="LLVM GCNHazardRecognizer, fixVALUMaskWriteHazard",
        static="a mask is read before the SALU's value arrives"),
    _static("mask-write-valu", WAITCHECK,
        "the same for a value that the VALU writes and reads; a remark for code of LLVM before 20",
        says="va_sdst(0) or va_vcc(0) between a VALU's write to a mask and its use by the VALU",
        where="the guards that LLVM 22 inserts and LLVM 19 does not",
        static="a mask is read before the VALU's value arrives"),
    _static("wmma", WAITCHECK,
        "a matrix instruction whose A or B is the result of the preceding matrix instruction",
        says="no matrix instruction reads the result of the previous one",
        where="RDNA4 ISA 7.9.1; LLVM GCNHazardRecognizer",
        static="a matrix instruction reads the result of the previous one as A or B"),
    _static("permlane", WAITCHECK, "a permlane directly after a v_cmpx",
        says="no permlane directly after v_cmpx", where="LLVM GCNHazardRecognizer",
        static="a permlane directly follows a v_cmpx"),
    _static("scalars", WAITCHECK,
        "a vector instruction that reads more than two scalar registers and literals (64-bit shifts: one)",
        says="a vector instruction reads at most two scalar values",
        static="a vector instruction reads too many scalar values"),
    _static("vopd", WAITCHECK,
        "sources of both halves in the same bank, third sources of equal parity, or more than two scalars",
        says="the registers of the halves differ in bank and parity", where="RDNA4 ISA 7.6",
        static="the halves of a VOPD instruction conflict"),
    _static("register", WAITCHECK, "registers beyond v255, or not allowed in this operand",
        says="operands are existing registers that the instruction accepts",
        static="a register that does not exist, or is not allowed in the operand"),
    _static("header", WAITCHECK,
        "registers, LDS or scratch that the header does not declare; an LDS offset beyond the declared size",
        says="code uses only the registers and LDS that its header declares", where="a rule of this project",
        static="more registers, LDS or scratch than the header declares"),
    _static("kernarg", WAITCHECK, "a scalar load beyond the arguments (.zrt: their size is in the header)",
        says="scalar loads stay within the arguments", where="a rule of this project",
        static="a scalar load beyond the kernel's arguments"),
    _static("lane", WAITCHECK, "v_readlane and v_writelane with a constant lane beyond the wave",
        says="lane numbers are below the wave's width", static="a lane outside a wave of this size"),
    _static("graphics", WAITCHECK, "exports and interpolation",
        says="compute kernels neither export nor interpolate", static="a graphics instruction"),
    _static("branch", WAITCHECK, "a branch out of the code or into an instruction",
        says="branch targets are instructions of the code",
        static="a branch out of the code, or into the middle of an instruction"),
    _static("end", WAITCHECK, "no s_endpgm", says="code ends with s_endpgm",
        static="the code ends, or runs into padding, without s_endpgm"),
    _static("endless", WAITCHECK, "a loop without an exit", says="every loop has an exit",
        where="a rule of this project", static="a loop without an exit"),
    _static("unwritten", WAITCHECK,
        "a read of a register that no path has written; a branch on VCC or SCC that some path leaves unwritten",
        says="no register is read that no path has written",
        static="a register that no path has written, or a branch on VCC or SCC that some path leaves unwritten"),
)
# fmt: on

RULES: Mapping[str, SanitizerRule] = {rule.id: rule for rule in _ROWS}
"""Rules by id, in the order of `zinc-rt assumptions`."""


def choose_mode(tools: Iterable[str]) -> str:
    """Return the lowest sanitizer mode of a simulated device that checks all rules of these tools."""
    levels = {rule.level for rule in RULES.values() if rule.tool in set(tools)}
    return next(mode for mode in ("full", "fast", "off") if mode in levels | {"off"})
