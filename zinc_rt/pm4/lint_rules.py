"""The linter's rules as data: one row per rule with its meaning and severity (design §5).

error    illegal: it stops the queue, faults, or has an effect other than the documented one finding  reserved,
unverified or pointless, but used by shipped software without failures
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from zinc_rt.pm4.generation import Generation

Severity = Literal["error", "finding"]
QueueInterface = Literal["kfd", "userq"]
Mapped = Callable[[int, int, str], str | None]
"""(va, size_bytes, "read" | "write" | "execute") -> why that is not possible, None where it is."""
Complaint = tuple[int, str, str, str]
"""Dword in the packet, rule, what was seen and wanted, what to do next."""


@dataclass(frozen=True, slots=True)
class StreamContext:
    """The environment in which the stream would run."""

    generation: Generation
    queue: QueueInterface
    is_ib: bool
    mapped: Mapped | None


@dataclass(frozen=True, slots=True)
class Rule:
    severity: Severity
    means: str


RULES: Mapping[str, Rule] = {
    # headers
    "type": Rule("error", "not a type-3 packet"),
    "opcode": Rule("error", "an opcode that no engine defines"),
    "other-engine": Rule("error", "a packet for the graphics engines or the driver's own queue"),
    "generation": Rule("error", "a compute packet that this chip does not have"),
    "count": Rule("error", "the header's count matches no form of the packet"),
    "truncated": Rule("error", "the stream ends inside the packet"),
    "predicate": Rule("error", "header bit 0: predication does not exist on compute"),
    "shader-type": Rule(
        "finding", "header bit 1: reserved on compute queues (it selects compute on graphics queues)"
    ),
    # fields
    "reserved-bits": Rule("error", "bits outside all fields of the packet are set"),
    "value": Rule("error", "a field value that is undefined on this chip"),
    "value-unverified": Rule("finding", "a field value that is not in the list of known values"),
    "gcr-reserved": Rule("finding", "cache operations that do not exist on gfx12"),
    "event": Rule("error", "the event index does not match the event type"),
    # addresses
    "alignment": Rule("error", "the hardware ignores the low address bits, so a different address is accessed"),
    "address-range": Rule("error", "an address that cannot be mapped: in the first 64 KiB or not canonical"),
    "unmapped": Rule("error", "the address is not mapped, or not with the required permission"),
    # indirect buffers
    "ib-valid": Rule("error", "INDIRECT_BUFFER without bit 23, which compute needs"),
    "ib-inherit-vmid": Rule("error", "INDIRECT_BUFFER on a user queue without bit 30: it would run in VMID 0"),
    "ib-inherit-vmid-kfd": Rule(
        "finding", "INDIRECT_BUFFER on a KFD queue with bit 30, which only user queues need"
    ),
    "ib-vmid": Rule("error", "INDIRECT_BUFFER with a VMID or privileged mode, which only the driver may set"),
    "ib-size": Rule("error", "INDIRECT_BUFFER with size 0"),
    "ib-alignment": Rule(
        "finding", "an IB whose start or size is not a multiple of 32 bytes, as the INFO ioctl requires"
    ),
    "ib-nesting": Rule("finding", "an IB calls an IB: nesting deeper than one level is unverified"),
    "ib-chain": Rule("finding", "chain bit set in the ring: its effect there is unverified"),
    # registers
    "register-range": Rule("error", "the register is outside the packet's register space"),
    "register-privileged": Rule(
        "error", "a privileged register: the write raises an interrupt and stops the queue"
    ),
    "register-unknown": Rule("finding", "a register that is not in the register table"),
    "register-bits": Rule("finding", "register bits outside all fields on this chip are set"),
    "register-count": Rule("error", "the count of packed pairs does not match the packet's contents"),
    "user-data": Rule("error", "more than 16 user-data registers"),
    "dynamic-vgpr": Rule("finding", "RSRC2 bit 6: a trap handler on gfx11, dynamic VGPRs on gfx12"),
    "rsrc1-priv": Rule("finding", "RSRC1 PRIV: a gfx11 workaround, leave it 0 on gfx12"),
    # order and sense
    "dispatch-disabled": Rule("error", "a dispatch initiator without COMPUTE_SHADER_EN: nothing is launched"),
    "dispatch-state": Rule(
        "finding", "a dispatch whose program address or workgroup size is not set in this stream"
    ),
    "workgroup-size": Rule("error", "a workgroup with no work-items or more than 1024"),
    "dispatch-empty": Rule("finding", "a dispatch with a dimension of 0: nothing is launched"),
    "skip-range": Rule("error", "the skipped dwords end past the end of the stream or inside a packet"),
    "pred-exec-ring": Rule("error", "PRED_EXEC in the ring, where it is not allowed (only in IBs)"),
    "unlisted": Rule("finding", "a packet that is not in AMD's tables of compute packets"),
    "privileged": Rule("error", "a packet that only the driver's queues accept"),
    "fence-write-back": Rule("finding", "a fence after a dispatch whose stores may still be in L2"),
    "fence-queue": Rule("error", "PROTECTED_FENCE_SIGNAL on a KFD queue: its MQD has no fence address"),
    "fence-order": Rule(
        "finding", "PROTECTED_FENCE_SIGNAL should be the last packet, directly after a RELEASE_MEM"
    ),
    "fence-wait": Rule("finding", "FENCE_WAIT_MULTI: the layout of its control dword is unverified"),
    "fence-wait-many": Rule("error", "FENCE_WAIT_MULTI takes at most 32 fences"),
    "empty": Rule("finding", "a packet that has no effect"),
}
