"""From a driver to a backend: the GPU found, opened, and closed again with the backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.kernel_side import KfdSide, UserqSide
from zinc_rt.backends.base import Device, Tier
from zinc_rt.errors import NothingRan
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.kmd.topology import Node, read_topology
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.pm4.generation import ARCHITECTURES

UNNAMED = ("", "ip discovery")  # what amdgpu calls every chip whose parts it finds by itself


def open_t1(
    driver: Driver,
    *,
    node: Node | None = None,
    interrupts: bool = False,
    after: Callable[[], None] = lambda: None,
    **options: Any,
) -> AmdBackend:
    """KFD on `node`, else on the first GPU with packet layouts. `options`: AmdBackend's. `after` is called when
    the backend has closed, or could not be opened."""
    process = KfdProcess(driver)
    with ExitStack() as undo:
        undo.callback(after)
        undo.callback(process.close)
        gpu = process.open_gpu(node or first_gpu(driver))
        side = KfdSide(gpu, interrupts=interrupts)
        device = device_of(driver, gpu.node)
        backend = AmdBackend(side, tier=Tier.T1, device=device, **_extras(driver), **options)
        backend.owner = undo.pop_all().close
    return backend


def open_t2(
    driver: Driver, *, node: Node | None = None, after: Callable[[], None] = lambda: None, **options: Any
) -> AmdBackend:
    """User queues on `node`, else as open_t1. Raises UnsupportedError saying why not."""
    with ExitStack() as undo:
        undo.callback(after)
        node = node or first_gpu(driver)
        gpu = UserqGpu(driver, node.render_path)
        undo.callback(gpu.close)
        device = device_of(driver, node)
        backend = AmdBackend(UserqSide(gpu), tier=Tier.T2, device=device, **_extras(driver), **options)
        backend.owner = undo.pop_all().close
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


def _extras(driver: Driver) -> dict[str, Any]:
    """What a simulated device has beside the Driver protocol."""
    names = ("announce", "findings", "expect", "watch", "stores")
    return {name: getattr(driver, name) for name in names if hasattr(driver, name)}


def device_of(driver: Driver, node: Node) -> Device:
    release = ""
    with suppress(OSError):
        release = driver.read_file("/proc/sys/kernel/osrelease").decode().strip()
    firmware = f"MEC {node.properties['fw_version']}" if "fw_version" in node.properties else ""
    name = node.name if node.name not in UNNAMED else f"AMD {node.arch}"
    return Device(name, node.arch, driver.simulated, kernel=release, firmware=firmware)
