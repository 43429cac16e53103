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
    "opcode": Rule("error", "no engine knows the opcode"),
    "other-engine": Rule("error", "a packet for the graphics engines or the driver's own queue"),
    "generation": Rule("error", "a compute packet, but not of this chip"),
    "count": Rule("error", "the header's count fits no form of the packet"),
    "truncated": Rule("error", "the stream ends inside the packet"),
    "predicate": Rule("error", "header bit 0: predication does not exist on compute"),
    "shader-type": Rule("finding", "header bit 1: reserved on compute, the graphics engines' compute bit"),
    # fields
    "reserved-bits": Rule("error", "bits that no field of the packet has"),
    "value": Rule("error", "a field holds a value that means nothing on this chip"),
    "value-unverified": Rule("finding", "a field holds a value this table has no name for"),
    "gcr-reserved": Rule("finding", "cache operations that gfx12 does not have"),
    "event": Rule("error", "event type and event index do not belong together"),
    # addresses
    "alignment": Rule("error", "the hardware drops the low address bits: the access lands elsewhere"),
    "address-range": Rule("error", "a VA that cannot be mapped: null page or the hole in the middle"),
    "unmapped": Rule("error", "the resolver has no such mapping, or not with that permission"),
    # indirect buffers
    "ib-valid": Rule("error", "INDIRECT_BUFFER without bit 23, which compute needs"),
    "ib-inherit-vmid": Rule("error", "INDIRECT_BUFFER on a user queue without bit 30: it would run in VMID 0"),
    "ib-inherit-vmid-kfd": Rule(
        "finding", "INDIRECT_BUFFER on a KFD queue with bit 30, which only user queues need"
    ),
    "ib-vmid": Rule("error", "INDIRECT_BUFFER naming a VMID or privileged mode: the driver's"),
    "ib-size": Rule("error", "INDIRECT_BUFFER of no dwords"),
    "ib-alignment": Rule("finding", "INFO asks for IBs that start and end on 32 bytes"),
    "ib-nesting": Rule("finding", "an IB calls an IB: deeper than one level is unverified"),
    "ib-chain": Rule("finding", "chain in the ring: what would be replaced is unverified"),
    # registers
    "register-range": Rule("error", "the register lies outside the packet's space"),
    "register-privileged": Rule("error", "a privileged register: interrupt, and the queue stops"),
    "register-unknown": Rule("finding", "a register without a name here"),
    "register-bits": Rule("finding", "bits of a register that have no field on this chip"),
    "register-count": Rule("error", "the packed pairs' count is not what the packet holds"),
    "user-data": Rule("error", "more than the 16 user-data registers there are"),
    "dynamic-vgpr": Rule("finding", "RSRC2 bit 6: a trap handler on gfx11, dynamic VGPRs on gfx12"),
    "rsrc1-priv": Rule("finding", "RSRC1 PRIV: a gfx11 workaround, leave it 0 on gfx12"),
    # order and sense
    "dispatch-disabled": Rule("error", "dispatch initiator without COMPUTE_SHADER_EN: nothing launches"),
    "dispatch-state": Rule("finding", "a dispatch whose kernel or workgroup size this stream never sets"),
    "workgroup-size": Rule("error", "a workgroup of no work-items, or of more than 1024"),
    "dispatch-empty": Rule("finding", "a zero dimension: nothing launches"),
    "skip-range": Rule("error", "the skipped dwords end past the stream or inside a packet"),
    "pred-exec-ring": Rule("error", "PRED_EXEC in the ring: it is for IBs"),
    "unlisted": Rule("finding", "a packet that AMD's compute tables do not list"),
    "privileged": Rule("error", "a packet for the driver's own queues"),
    "fence-write-back": Rule("finding", "a fence behind a dispatch whose stores may still lie in L2"),
    "fence-queue": Rule("error", "PROTECTED_FENCE_SIGNAL on a KFD queue: its MQD has no fence address"),
    "fence-order": Rule("finding", "PROTECTED_FENCE_SIGNAL should be last, right behind a RELEASE_MEM"),
    "fence-wait": Rule("finding", "FENCE_WAIT_MULTI: its control dword's layout is unverified"),
    "fence-wait-many": Rule("error", "FENCE_WAIT_MULTI takes at most 32 fences"),
    "empty": Rule("finding", "the packet does nothing"),
}
