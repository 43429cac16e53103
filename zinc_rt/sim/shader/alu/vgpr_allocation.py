"""s_alloc_vgpr: a wave with dynamic VGPRs asks for another number of them.

Sources: RDNA4 ISA guide, 16.3 (SCC says whether it has them now; nothing changes where it has not); LLVM
AMDGPUSubtarget (blocks of 16, 8 of them at most; waves of 32 lanes only).
"""

from __future__ import annotations

from zinc_rt.isa import Instruction
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, NotSimulated
from zinc_rt.sim.shader.emit.values import I64, constant
from zinc_rt.sim.shader.layout import VGPR_BLOCK, VGPR_BLOCKS

_MULTIPLIER, _INCREMENT = 0x5851F42D4C957F2D, 0x14057B7EF767814F  # Knuth, MMIX
_REFUSED_SHIFT = 62  # one wish in four


def _allocate(e: Emitter, i: Instruction) -> None:
    """Whole blocks, at least one. More than there are, and now and then what a seed refuses, is not given."""
    if not e.regs.dynamic:
        raise NotSimulated("dynamic VGPRs, which RSRC2 bit 6 turns on")
    b, frame = e.b, e.frame
    asked = e.scalar(i.operands[0])
    most = VGPR_BLOCK * VGPR_BLOCKS
    fits = b.at_most(asked, most)
    blocks = b.and_(b.add(asked, VGPR_BLOCK - 1), ~(VGPR_BLOCK - 1) & 0xFFFFFFFF)
    wanted = b.select(b.equal(blocks, 0), VGPR_BLOCK, blocks)
    has, seed = frame.state_field("vgprs"), frame.field("vgpr_seed")
    number = b.add(b.add(frame.state_field("vgpr_random"), seed), b.zext(frame.state_field("wave_index"), I64))
    number = b.add(b.mul(number, constant(_MULTIPLIER, I64)), constant(_INCREMENT, I64))
    frame.set_state_field("vgpr_random", number)
    refused = b.all(b.unequal(seed, 0), b.below(has, wanted), b.equal(b.lshr(number, _REFUSED_SHIFT), 0))
    given = b.and_(fits, b.not_(refused))
    frame.set_state_field("vgprs", b.select(given, wanted, has))
    e.regs.scc = given


EMIT: dict[str, EmitFunction] = {"s_alloc_vgpr": _allocate}
