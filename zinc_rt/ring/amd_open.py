"""From a driver to a backend: the GPU found, opened, and closed again with the backend."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

from zinc_rt.errors import NothingRan
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.kmd.topology import Node, read_topology
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.pm4.generation import ARCHITECTURES
from zinc_rt.ring.amd import AmdBackend
from zinc_rt.ring.base import Device, Tier
from zinc_rt.ring.device_memory import Announce
from zinc_rt.ring.kernel_side import KfdSide, UserqSide


def open_t1(driver: Driver, *, node: Node | None = None, interrupts: bool = False, **options: Any) -> AmdBackend:
    """KFD on `node`, else on the first GPU with packet layouts. `options`: AmdBackend's."""
    process = KfdProcess(driver)
    with ExitStack() as undo:
        undo.callback(process.close)
        gpu = process.open_gpu(node or first_gpu(driver))
        side = KfdSide(gpu, interrupts=interrupts)
        device = device_of(driver, gpu.node)
        backend = AmdBackend(
            side, tier=Tier.T1, device=device, owner=process.close, announce=_announce(driver), **options
        )
        undo.pop_all()
    return backend


def open_t2(driver: Driver, *, node: Node | None = None, **options: Any) -> AmdBackend:
    """User queues on `node`, else on the first GPU with packet layouts. Raises UnsupportedError saying why not."""
    node = node or first_gpu(driver)
    gpu = UserqGpu(driver, node.render_path)
    with ExitStack() as undo:
        undo.callback(gpu.close)
        device = device_of(driver, node)
        backend = AmdBackend(
            UserqSide(gpu), tier=Tier.T2, device=device, owner=gpu.close, announce=_announce(driver), **options
        )
        undo.pop_all()
    return backend


def first_gpu(driver: Driver) -> Node:
    """Raises NothingRan naming what is there instead."""
    topology = read_topology(driver)
    for node in topology.gpus:
        if node.arch in ARCHITECTURES:
            return node
    seen = [f"{node.arch} ({node.name})" for node in topology.gpus] + list(topology.hidden)
    raise NothingRan(
        f"no GPU that tiers t1 and t2 can use; wanted one of {', '.join(ARCHITECTURES)}, "
        f"saw {', '.join(seen) or 'none'}",
        next="use --tier t_cpu",
    )


def _announce(driver: Driver) -> Announce | None:
    """What a simulated device has beside the Driver protocol."""
    announce: Announce | None = getattr(driver, "announce", None)
    return announce


def device_of(driver: Driver, node: Node) -> Device:
    release = ""
    with suppress(OSError):
        release = driver.read_file("/proc/sys/kernel/osrelease").decode().strip()
    firmware = f"MEC {node.properties['fw_version']}" if "fw_version" in node.properties else ""
    return Device(node.name or node.arch, node.arch, driver.simulated, kernel=release, firmware=firmware)
