"""A tier in one file: what docs/extending.md shows. T-CPU's backend under another name."""

from __future__ import annotations

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.backends.spec import Availability, Host, OnDevice, Opening


def probe(host: Host) -> Availability:
    device = OnDevice("abacus", True, f"beads for {host.cores} cores")
    return Availability(True, device.why, devices=(device,))


def open(opening: Opening) -> CpuBackend:
    return CpuBackend(opening.ordering, spec=opening.spec)
