"""Kernel versions, as the differences that a client of KFD or of user queues can observe.

The differences are the rows `kernel/FIELD` of zinc_rt/host/facts.yaml, with their sources and the version from
which each value holds. A row `proposed/NAME` is a change that was proposed and is not merged: `7.0+NAME` applies
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from zinc_rt.host.facts import load_table

ENOTSUPP = 524  # include/linux/errno.h; kernel-only, yet let out by amdkfd and amdgpu
VERSIONS = ("6.8", "6.12", "6.14", "6.16", "6.17", "6.18", "6.18.y", "6.19", "7.0", "7.2")
"""In the order in which values of facts.yaml carry over: a value holds until the next version that has another."""


@dataclass(frozen=True, slots=True)
class LinuxProfile:
    """A version of Linux, by the behaviour that clients of amdgpu can observe. The fields are rows of facts.yaml,
    documented there."""

    version: str
    release: str
    drm_minor: int
    kfd_minor: int
    buffer_validation: bool
    gfx1151_new_table: bool
    cwsr_in_sysfs: bool
    kfd_apu_prefers_gtt: bool
    sdma_engine_mask_in_sysfs: bool
    queue_reset: bool
    kfd_open_process: bool
    gem_cache_flags: bool
    userq: bool
    userq_slots: bool
    userq_va_checks: bool
    userq_hardened: bool
    userq_off_errno: int
    userq_unmap_check: bool
    userq_compute_metadata: bool
    userq_reports_doorbell: bool
    userq_eop_check: str
    userq_free_unknown: int
    userq_free_waits_ms: int
    userq_hang_timer: bool
    compute_timeout_ms: int
    userq_mqd_bytes: int


def _find_value(name: str, version: str) -> Any:
    """Return the value of a row at this version: that of the latest version up to it. Raise KeyError if the row
    has none."""
    values = load_table()[f"kernel/{name}"].versions
    return values[[version for version in VERSIONS[: VERSIONS.index(version) + 1] if version in values][-1]]


_NAMES = [field.name for field in fields(LinuxProfile) if field.name != "version"]
LINUX_VERSIONS: Mapping[str, LinuxProfile] = {
    version: LinuxProfile(version=version, **{name: _find_value(name, version) for name in _NAMES})
    for version in VERSIONS
}
PROPOSALS = tuple(id.partition("/")[2] for id in load_table() if id.startswith("proposed/"))


def find_profile(name: str) -> LinuxProfile:
    """Return the profile of VERSION, or of VERSION+PROPOSAL with a proposed change. Raise ValueError for an
    unknown version or proposal."""
    version, *proposals = name.split("+")
    if version not in VERSIONS:
        raise ValueError(f"unknown Linux version {version!r}; available: {', '.join(VERSIONS)}")
    known = LINUX_VERSIONS[version]
    for proposal in proposals:
        row = load_table().get(f"proposed/{proposal}")
        if row is None:
            raise ValueError(f"unknown proposed change {proposal!r}; available: {', '.join(PROPOSALS) or 'none'}")
        known = replace(known, version=f"{known.version}+{proposal}", **row.value)
    return known
