"""Wait counters, with the names of gfx12: the instructions that increment each, and the waits on them.

RDNA4 ISA guide, "Data dependency resolution", and LLVM's SIInsertWaitcnts for gfx12. Every counter except KMCNT is
in order: scalar memory returns in any order, so only a wait for 0 is meaningful on KMCNT. Several vector memory
loads to one register may nevertheless write it in any order; LDS writes registers in order.

VMCNT of gfx11 is the sum of LOADCNT, SAMPLECNT and BVHCNT, and LGKMCNT that of DSCNT and KMCNT (RDNA3 5.6).
All vector memory loads of gfx11 count in LOADCNT here, because VMCNT is in order. A wait for n of LGKMCNT is a
wait for n of DSCNT, whose operations complete in order, and for scalar memory only if n is 0.
"""

from __future__ import annotations

from zinc_rt.isa.effects import Effects
from zinc_rt.isa.instruction import Instruction

LOAD, STORE, DS, KM, SAMPLE, BVH, EXP = "loadcnt", "storecnt", "dscnt", "kmcnt", "samplecnt", "bvhcnt", "expcnt"
COUNTERS = (LOAD, STORE, DS, KM, SAMPLE, BVH, EXP)
# s_waitcnt of gfx11, which gfx12 executes too: counter, low bit, value without a wait (RDNA3 ISA guide, 4.4).
# vmcnt and lgkmcnt are sums of several counters of gfx12, none of which exceeds the sum.
_LEGACY = (*((counter, 10, 63) for counter in (LOAD, SAMPLE, BVH)), (DS, 4, 63), (KM, 4, 63), (EXP, 0, 7))
INVALIDATIONS = ("global_inv", "buffer_gl0_inv", "buffer_gl1_inv")
MOST = 64  # above every counter's maximum: the widest has 6 bits


def list_waits(instruction: Instruction) -> tuple[tuple[str, int], ...]:
    """Return the (counter, maximum remaining count) pairs that an instruction waits for."""
    names, value = instruction.row.waits, instruction.words[0] & 0xFFFF
    if names == ("legacy",):
        fields = ((counter, value >> low & maximum, maximum) for counter, low, maximum in _LEGACY)
        return tuple((counter, remain) for counter, remain, maximum in fields if remain < maximum)
    if names in (("vector",), ("lgkm",)):
        counters = (LOAD, SAMPLE, BVH) if names == ("vector",) else (DS, KM)
        return tuple((counter, value & 63) for counter in counters)
    if names == ("all",):
        return tuple((counter, 0) for counter in COUNTERS)
    # With two counters, the first is in bits 13:8 and the second in 5:0.
    return tuple((counter, value >> 8 * index & 63) for index, counter in enumerate(reversed(names)))[::-1]


def list_issued_counts(instruction: Instruction, effects: Effects) -> tuple[tuple[str, int], ...]:
    """Return the (counter, halves of registers written at completion) pairs that an instruction increments."""
    row = instruction.row
    if row.counter and row.encoding != "MIMG":  # whose rows are shared with gfx12: VMCNT counts them on gfx11
        return ((row.counter, effects.written_halves),)
    if row.pipe != "vmem":
        return ()
    counter = LOAD if effects.writes else STORE
    if row.encoding == "FLAT":  # the address may be in LDS
        return (counter, effects.written_halves), (DS, effects.written_halves)
    return ((counter, effects.written_halves),)
