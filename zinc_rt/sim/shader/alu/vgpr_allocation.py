"""s_alloc_vgpr: change the VGPR count of a wave with dynamic VGPRs.

Sources: RDNA4 ISA guide, 16.3 (SCC reports success; on failure nothing changes); LLVM AMDGPUSubtarget (blocks of
16, at most 8; wave32 only).
"""

from __future__ import annotations

from zinc_rt.isa import Instruction
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, NotSimulated
from zinc_rt.sim.shader.emit.values import I64, constant
from zinc_rt.sim.shader.layout import VGPR_BLOCK, VGPR_BLOCKS

_MULTIPLIER, _INCREMENT = 0x5851F42D4C957F2D, 0x14057B7EF767814F  # Knuth, MMIX
_REFUSED_SHIFT = 62  # one wish in four


def _allocate(e: Emitter, i: Instruction) -> None:
    """Emit s_alloc_vgpr. Allocates whole blocks, at least one. Fails above the maximum, and at times if a seed
    injects failures.
    """
    if not e.regs.dynamic:
        raise NotSimulated("RSRC2 bit 6 enables dynamic VGPRs, which are not supported in wave64")
    b, frame = e.b, e.frame
    scalar = e.scalar(i.operands[0])
    maximum = VGPR_BLOCK * VGPR_BLOCKS
    fits = b.at_most(scalar, maximum)
    blocks = b.and_(b.add(scalar, VGPR_BLOCK - 1), ~(VGPR_BLOCK - 1) & 0xFFFFFFFF)
    wanted = b.select(b.equal(blocks, 0), VGPR_BLOCK, blocks)
    has, seed = frame.state_field("vgprs"), frame.field("vgpr_seed")
    number = b.add(b.add(frame.state_field("vgpr_random"), seed), b.zext(frame.state_field("wave_index"), I64))
    number = b.add(b.mul(number, constant(_MULTIPLIER, I64)), constant(_INCREMENT, I64))
    frame.set_state_field("vgpr_random", number)
    refused = b.all(b.unequal(seed, 0), b.below(has, wanted), b.equal(b.lshr(number, _REFUSED_SHIFT), 0))
    argument = b.and_(fits, b.not_(refused))
    frame.set_state_field("vgprs", b.select(argument, wanted, has))
    e.regs.scc = argument


EMIT: dict[str, EmitFunction] = {"s_alloc_vgpr": _allocate}
