"""gfx12's wait counters: which instructions count in which, and what the waits wait for.

RDNA4 ISA guide, "Data dependency resolution", and LLVM's SIInsertWaitcnts for gfx12. Each counter is in order but
KMCNT: scalar memory returns in any order, so only a wait for 0 means anything there. Several loads to one register
may even so write it in any order.
"""

from __future__ import annotations

from zinc_rt.isa.effects import SCC, Effects, bit
from zinc_rt.isa.instruction import Instruction

LOAD, STORE, DS, KM, SAMPLE, BVH, EXP = "loadcnt", "storecnt", "dscnt", "kmcnt", "samplecnt", "bvhcnt", "expcnt"
COUNTERS = (LOAD, STORE, DS, KM, SAMPLE, BVH, EXP)
MOST = 64  # what no counter reaches: 6 bits are the widest

_ONE = {f"s_wait_{counter}": counter for counter in COUNTERS}
_TWO = {"s_wait_loadcnt_dscnt": LOAD, "s_wait_storecnt_dscnt": STORE}  # bits 13:8, DS in 5:0
_SCALAR_RESULTS = ("s_sendmsg_rtn", "s_get_barrier_state")


def waits(instruction: Instruction) -> tuple[tuple[str, int], ...]:
    """(counter, how many may remain) of an instruction that waits, else nothing."""
    mnemonic = instruction.mnemonic
    if not mnemonic.startswith("s_wait"):
        return ()
    value = instruction.words[0] & 0xFFFF
    if mnemonic in _ONE:
        return ((_ONE[mnemonic], value & 63),)
    if mnemonic in _TWO:
        return ((_TWO[mnemonic], value >> 8 & 63), (DS, value & 63))
    return tuple((counter, 0) for counter in COUNTERS) if mnemonic == "s_wait_idle" else ()


def counted(instruction: Instruction, effects: Effects) -> tuple[tuple[str, int], ...]:
    """(counter, registers written when it is done) of an instruction that counts, else nothing."""
    mnemonic, encoding = instruction.mnemonic, instruction.encoding
    if effects.unit in ("valu", "other") and encoding != "EXP":
        return ()
    if effects.unit == "salu":
        if mnemonic.startswith(_SCALAR_RESULTS):
            return ((KM, effects.writes),)
        return ((KM, bit(SCC)),) if mnemonic == "s_barrier_signal_isfirst" else ()
    if effects.unit == "smem":
        return () if "prefetch" in mnemonic else ((KM, effects.writes),)
    if effects.unit == "ds":
        return () if mnemonic == "ds_nop" else ((DS, effects.writes),)
    if encoding == "EXP":
        return ((EXP, 0),)
    if encoding == "VSAMPLE":
        return ((SAMPLE, effects.writes),)
    if "_bvh" in mnemonic:
        return ((BVH, effects.writes),)
    counter = LOAD if effects.writes or mnemonic == "global_inv" else STORE
    if encoding == "FLAT":  # it may turn out to be LDS
        return (counter, effects.writes), (DS, effects.writes)
    return ((counter, effects.writes),)
