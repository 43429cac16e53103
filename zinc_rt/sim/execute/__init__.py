"""What every packet does: one function a packet, found by the packet's class. Adding a packet is one row.

A function takes the channel and the decoded packet. It returns at once: what takes time becomes Work, what waits
sets the channel's `wait`. It raises Illegal where hardware would stop, Fault where an address is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.pm4.layout import Packet
from zinc_rt.pm4.packets import (
    AcquireMem,
    AtomicMem,
    CleanerShader,
    CondExec,
    CondIndirectBuffer,
    CondWrite,
    CopyData,
    DispatchDirect,
    DispatchIndirect,
    DmaData,
    DmaDataFillMulti,
    EventWrite,
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
from zinc_rt.sim.execute import atomics, control, data, dispatch, dma, registers, sync, userq
from zinc_rt.sim.execute.kind import Execute

EXECUTE: Mapping[type[Packet], Execute] = {
    Nop: control.nop,
    IndirectBuffer: control.indirect_buffer,
    CondIndirectBuffer: control.cond_indirect_buffer,
    IndirectBufferPasid: control.kernel_only,
    CondExec: control.cond_exec,
    PredExec: control.pred_exec,
    Rewind: control.rewind,
    CleanerShader: control.kernel_only,
    InvalidateTlbs: control.kernel_only,
    WriteData: data.write_data,
    CopyData: data.copy_data,
    CondWrite: data.cond_write,
    Timestamp: data.timestamp,
    AtomicMem: atomics.atomic_mem,
    DmaData: dma.dma_data,
    DmaDataFillMulti: dma.dma_data_fill_multi,
    DispatchDirect: dispatch.dispatch_direct,
    DispatchIndirect: dispatch.dispatch_indirect,
    SetShReg: registers.set_sh_reg,
    SetShRegIndex: registers.set_sh_reg_index,
    SetUconfigReg: registers.set_registers,
    SetShRegPairs: registers.set_registers,
    SetShRegPairsPacked: registers.set_packed,
    SetShRegPairsPackedN: registers.set_packed,
    SetUconfigRegPairs: registers.set_registers,
    LoadShRegIndex: registers.load_sh_reg_index,
    SetBase: registers.no_effect,
    SetConfigReg: registers.set_registers,  # every register there is privileged
    SetQueueReg: control.kernel_only,
    PerfmonControl: registers.no_effect,
    PerfCounterWindow: registers.no_effect,
    PrimeUtcl2: registers.no_effect,
    AcquireMem: sync.acquire_mem,
    ReleaseMem: sync.release_mem,
    EventWrite: sync.event_write,
    HdpFlush: sync.hdp_flush,
    WaitRegMem: sync.wait_reg_mem,
    WaitRegMem64: sync.wait_reg_mem64,
    ProtectedFenceSignal: userq.protected_fence_signal,
    FenceWaitMulti: userq.fence_wait_multi,
}
"""Packets of the decoder that are not here stop the queue: ATOMIC_GDS, task shaders, EXECUTE_INDIRECT_V2."""
