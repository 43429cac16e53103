"""Every packet of the compute engine, by opcode."""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets.control import (
    CleanerShader,
    CondExec,
    CondIndirectBuffer,
    IndirectBuffer,
    IndirectBufferPasid,
    Nop,
    PredExec,
    Rewind,
)
from zinc_rt.pm4.packets.data import (
    AtomicMem,
    CondWrite,
    CopyData,
    DmaData,
    DmaDataFillMulti,
    Timestamp,
    WriteData,
)
from zinc_rt.pm4.packets.dispatch import (
    DispatchDirect,
    DispatchIndirect,
    DispatchTaskmeshDirectAce,
    DispatchTaskmeshIndirectMultiAce,
    DispatchTaskStateInit,
    ExecuteIndirectV2,
)
from zinc_rt.pm4.packets.registers import (
    LoadShRegIndex,
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
)
from zinc_rt.pm4.packets.sync import (
    AcquireMem,
    AtomicGds,
    EventWrite,
    HdpFlush,
    ReleaseMem,
    WaitRegMem,
    WaitRegMem64,
)
from zinc_rt.pm4.packets.system import InvalidateTlbs, PerfCounterWindow, PerfmonControl, PrimeUtcl2
from zinc_rt.pm4.packets.userq import FenceWaitMulti, ProtectedFenceSignal

PACKETS: tuple[type[Packet], ...] = (
    Nop,
    SetBase,
    DispatchDirect,
    DispatchIndirect,
    AtomicGds,
    AtomicMem,
    CondExec,
    PredExec,
    WriteData,
    WaitRegMem,
    PerfCounterWindow,
    IndirectBuffer,
    CondIndirectBuffer,
    CopyData,
    CondWrite,
    EventWrite,
    ReleaseMem,
    DmaData,
    PerfmonControl,
    AcquireMem,
    Rewind,
    IndirectBufferPasid,
    PrimeUtcl2,
    LoadShRegIndex,
    SetConfigReg,
    SetShReg,
    SetQueueReg,
    SetUconfigReg,
    WaitRegMem64,
    HdpFlush,
    InvalidateTlbs,
    DmaDataFillMulti,
    SetShRegIndex,
    DispatchTaskStateInit,
    DispatchTaskmeshDirectAce,
    DispatchTaskmeshIndirectMultiAce,
    Timestamp,
    ExecuteIndirectV2,
    SetShRegPairs,
    SetShRegPairsPacked,
    SetShRegPairsPackedN,
    SetUconfigRegPairs,
    ProtectedFenceSignal,
    FenceWaitMulti,
    CleanerShader,
)

BY_OPCODE: Mapping[int, tuple[type[Packet], ...]] = {
    int(op): tuple(cls for cls in PACKETS if op == cls.OP) for op in {cls.OP for cls in PACKETS}
}

__all__ = ["BY_OPCODE", "PACKETS", *(cls.__name__ for cls in PACKETS)]
