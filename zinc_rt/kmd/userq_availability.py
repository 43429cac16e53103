"""Checks whether this GPU supports compute user queues, with a reason and advice: facts, then a table of verdicts.

The conditions are those of amdgpu (amdgpu_kms.c, gfx_v11_0.c, gfx_v12_0.c, mes_userqueue.c, Linux 6.16 to 7.0).
`userq_ip_mask` is amdgpu's verdict; the rows below it only explain why the bit is clear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.render_node import RenderNode, parse_ip_version
from zinc_rt.kmd.topology import format_arch_name
from zinc_rt.kmd.uapi import amdgpu

PARAMETER = "/sys/module/amdgpu/parameters/user_queue"
T1 = "--tier t1 needs none of this"

IpVersion = tuple[int, int, int]

_GFX12 = {"ME": 2780, "PFP": 2840, "MEC": 3050, "MES": 123}
_GFX11 = {"ME": 2420, "PFP": 2580, "MEC": 2650, "MES": 120}
MINIMA: dict[IpVersion, dict[str, int]] = {  # firmware versions below which the functions are not registered
    (12, 0, 0): _GFX12,
    (12, 0, 1): _GFX12,
    (11, 0, 0): _GFX11,
    (11, 0, 2): _GFX11,
    (11, 0, 3): _GFX11,
}
EXCLUDED: frozenset[IpVersion] = frozenset(  # switched off in the code, through 7.0
    {(11, 0, 1), (11, 0, 4), (11, 5, 0), (11, 5, 1), (11, 5, 2), (11, 5, 3)}
)


@dataclass(frozen=True, slots=True)
class UserqFacts:
    generation: IpVersion
    ip_mask: int  # DEV_INFO.userq_ip_mask; 0 also where Linux is older than the field (6.16)
    slots: int  # HW_IP_INFO(COMPUTE).userq_num_slots; 0 also before 6.17
    parameter: int | None  # amdgpu.user_queue; None where this amdgpu has no such parameter
    firmware: dict[str, int] = field(default_factory=dict)

    @property
    def offered(self) -> bool:
        return bool(self.ip_mask >> amdgpu.AMDGPU_HW_IP_COMPUTE & 1)

    @property
    def too_old(self) -> list[str]:
        """The firmware versions below their minimum, such as `MES 110 < 123`."""
        minima = MINIMA.get(self.generation, {})
        return [
            f"{name} {self.firmware[name]} < {minimum}"
            for name, minimum in minima.items()
            if name in self.firmware and self.firmware[name] < minimum
        ]


@dataclass(frozen=True, slots=True)
class UserqAvailability:
    usable: bool
    why: str
    next: str
    facts: UserqFacts


@dataclass(frozen=True, slots=True)
class AvailabilityRow:
    """A verdict and its condition `when`. The texts `why` and `next` may use the facts, `arch` and `old` (outdated
    firmware).
    """

    when: Callable[[UserqFacts], bool]
    usable: bool
    why: str
    next: str


ROWS = (
    AvailabilityRow(
        lambda f: f.offered and f.slots > 0, True, "{f.slots} compute slots (user_queue={f.parameter})", ""
    ),
    AvailabilityRow(lambda f: f.offered, True, "offered; this amdgpu does not count slots (Linux 6.16)", ""),
    AvailabilityRow(
        lambda f: f.generation[0] < 11,
        False,
        "{arch} has no user queues: gfx11 and later do",
        T1,
    ),
    AvailabilityRow(
        lambda f: f.parameter is None,
        False,
        "this amdgpu has no user queues (they came with Linux 6.16)",
        f"use Linux 6.17 or newer; {T1}",
    ),
    AvailabilityRow(
        lambda f: f.generation in EXCLUDED,
        False,
        "amdgpu leaves {arch} out of user queues (through Linux 7.0), whatever amdgpu.user_queue says",
        "use --tier t1",
    ),
    AvailabilityRow(
        lambda f: f.parameter is not None and f.parameter <= 0,
        False,
        "user queues are off: amdgpu.user_queue={f.parameter}, the default",
        f"boot with amdgpu.user_queue=1 on the kernel command line; {T1}",
    ),
    AvailabilityRow(
        lambda f: bool(f.too_old),
        False,
        "user queues are on, but firmware is too old: {old}",
        f"update linux-firmware and boot again; {T1}",
    ),
    AvailabilityRow(
        lambda f: True,
        False,
        "amdgpu.user_queue={f.parameter} and {f.slots} slots, but amdgpu does not offer compute",
        f"`dmesg | grep -iE 'mes|userq'` may say why; {T1}",
    ),
)


def decide_availability(facts: UserqFacts) -> UserqAvailability:
    """Return the first matching row. An excluded chip matches before its module parameter, since no setting
    enables it."""
    row = next(row for row in ROWS if row.when(facts))
    words = {"f": facts, "arch": format_arch_name(facts.generation), "old": ", ".join(facts.too_old)}
    return UserqAvailability(row.usable, row.why.format(**words), row.next.format(**words), facts)


def check_userq_availability(driver: Driver, node: RenderNode) -> UserqAvailability:
    return decide_availability(query_facts(driver, node))


def query_facts(driver: Driver, node: RenderNode) -> UserqFacts:
    compute = node.query_compute_ip()
    return UserqFacts(
        generation=parse_ip_version(compute),
        ip_mask=node.device()["userq_ip_mask"],
        slots=compute["userq_num_slots"],
        parameter=_read_parameter(driver),
        firmware=node.query_firmware(),
    )


def _read_parameter(driver: Driver) -> int | None:
    try:
        return int(driver.read_file(PARAMETER).decode())
    except FileNotFoundError:
        return None
