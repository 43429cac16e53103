"""All packets of the compute engine. The classes register themselves in BY_OPCODE; this module re-exports them."""

# ruff: noqa: F401

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from zinc_rt.pm4.packet import BY_OPCODE, Packet
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

for _module in iter_modules(__path__):  # a file here needs no registration: its classes register themselves
    import_module(f"{__name__}.{_module.name}")

PACKETS: tuple[type[Packet], ...] = tuple(cls for _, classes in sorted(BY_OPCODE.items()) for cls in classes)
