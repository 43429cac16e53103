"""The execution of packets: one function per packet, in a table by opcode. A new packet is one new row.

A function takes the channel and a view of the packet (sim.tables.packets). It returns at once: long
operations become Work, waits set the channel's `wait`. It raises Illegal where hardware would stop, and
Fault for a refused address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.execute import atomics, control, data, dispatch, dma, registers, sync, userq
from zinc_rt.sim.tables.layout import View

Execute = Callable[[ComputeChannel, View], None]

EXECUTE: Mapping[int, Execute] = {
    0x10: control.nop,  # NOP
    0x3F: control.execute_indirect,  # INDIRECT_BUFFER, COND_INDIRECT_BUFFER
    0x5C: control.kernel_only,  # INDIRECT_BUFFER_PASID
    0x22: control.cond_exec,  # COND_EXEC
    0x23: control.pred_exec,  # PRED_EXEC
    0x59: control.rewind,  # REWIND
    0xD2: control.kernel_only,  # CLEANER_SHADER
    0x98: control.kernel_only,  # INVALIDATE_TLBS
    0x37: data.write_data,  # WRITE_DATA
    0x40: data.copy_data,  # COPY_DATA
    0x45: data.cond_write,  # COND_WRITE
    0xB2: data.timestamp,  # TIMESTAMP
    0x1E: atomics.atomic_mem,  # ATOMIC_MEM
    0x50: dma.dma_data,  # DMA_DATA
    0x9A: dma.dma_data_fill_multi,  # DMA_DATA_FILL_MULTI
    0x15: dispatch.dispatch_direct,  # DISPATCH_DIRECT
    0x16: dispatch.dispatch_indirect,  # DISPATCH_INDIRECT
    0x76: registers.set_sh_reg,  # SET_SH_REG
    0x9B: registers.set_sh_reg_index,  # SET_SH_REG_INDEX
    0x79: registers.set_uconfig_reg,  # SET_UCONFIG_REG
    0xBA: registers.set_sh_pairs,  # SET_SH_REG_PAIRS
    0xBC: registers.set_packed,  # SET_SH_REG_PAIRS_PACKED
    0xBD: registers.set_packed,  # SET_SH_REG_PAIRS_PACKED_N
    0xBE: registers.set_uconfig_pairs,  # SET_UCONFIG_REG_PAIRS
    0x63: registers.load_sh_reg_index,  # LOAD_SH_REG_INDEX
    0x11: registers.ignore_packet,  # SET_BASE
    0x68: registers.set_config_reg,  # SET_CONFIG_REG
    0x78: control.kernel_only,  # SET_QUEUE_REG
    0x54: registers.ignore_packet,  # PERFMON_CONTROL
    0x3D: registers.ignore_packet,  # PERF_COUNTER_WINDOW
    0x5D: registers.ignore_packet,  # PRIME_UTCL2
    0x58: sync.acquire_mem,  # ACQUIRE_MEM
    0x49: sync.release_mem,  # RELEASE_MEM
    0x46: sync.event_write,  # EVENT_WRITE
    0x95: sync.hdp_flush,  # HDP_FLUSH
    0x3C: sync.wait_reg_mem,  # WAIT_REG_MEM
    0x93: sync.wait_reg_mem64,  # WAIT_REG_MEM64
    0xD0: userq.protected_fence_signal,  # PROTECTED_FENCE_SIGNAL
    0xD1: userq.fence_wait_multi,  # FENCE_WAIT_MULTI
}
"""Packets without a row here stop the queue: ATOMIC_GDS, task shaders, EXECUTE_INDIRECT_V2."""
