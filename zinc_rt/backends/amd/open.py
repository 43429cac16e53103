"""Open a backend from a driver: select a GPU, open it, and close it with the backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

from zinc_rt.backends import registry
from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.kmd_side import KmdSide
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.base import Device
from zinc_rt.backends.spec import Availability, Host, OnDevice, Opening
from zinc_rt.host.errors import NothingRan, UnsupportedError
from zinc_rt.kernels import sets
from zinc_rt.kmd.discover import Gpu, TierAnswer
from zinc_rt.kmd.driver import Driver, SideChannel
from zinc_rt.kmd.topology import TopologyNode, read_topology
from zinc_rt.pm4.generation import ARCHITECTURES

UNNAMED = ("", "ip discovery")  # what amdgpu calls every chip whose parts it finds by itself
# Cards by PCI device id (libdrm data/amdgpu.ids): a gate asks which card a speed is of, and amdgpu does not say.
CARDS = {0x7551: "Radeon AI PRO R9700", 0x7550: "Radeon RX 9070 series"}
Check = Callable[[Driver, Gpu], TierAnswer]  # kmd.discover's


def check_availability(host: Host, tier: str, check: Check) -> Availability:
    """Apply a tier's check to every AMD GPU. Return the result of the first usable GPU, else of the first one with
    kernels."""
    driver = host.driver
    if driver is None or not host.gpus:
        return Availability(False, "no AMD GPU was found", "zinc-rt devices lists the paths that were searched")
    known = tuple(name for name in registry.spec(tier).kernel_sets if name in ARCHITECTURES)
    devices = tuple(_make_device_row(check(driver, gpu), gpu, tier, known) for gpu in host.gpus)
    ordered = sorted(
        devices,
        key=lambda device: (
            not device.usable,
            device.gpu is None or sets.find_code_chip(device.gpu.arch) not in known,
        ),
    )
    best = ordered[0]
    return Availability(best.usable, f"{best.device}: {best.why}", best.next, best.gpu, devices)


def _make_device_row(answer: TierAnswer, gpu: Gpu, tier: str, known: tuple[str, ...]) -> OnDevice:
    label = f"{gpu.name} {gpu.arch}".strip()
    if answer.usable and sets.find_code_chip(gpu.arch) not in known:
        text = (
            f"the driver is ready ({answer.why}), but kernels to run models with are there for {', '.join(known)}"
        )
        next_ = f"zinc-rt pm4-test --tiers {tier} brings the card up; models run with --tier t_cpu"
        return OnDevice(label, False, text, next_, answer.facts, gpu)
    return OnDevice(label, answer.usable, answer.why, answer.next, answer.facts, gpu)


def open_amd(opening: Opening, opener: Callable[..., AmdBackend]) -> AmdBackend:
    """Open a backend. `opener` is open_t1 or open_t2. Option `kernels` replaces the chip's own set. Raise
    UnsupportedError for a kernel set of another chip."""
    with ExitStack() as undo:
        undo.callback(opening.after)
        driver = opening.driver
        if driver is None:
            raise UnsupportedError(f"tier {opening.spec.tier} needs Linux", next="use --tier t_cpu")
        node = opening.gpu.node if opening.gpu is not None else None
        node = node or find_first_gpu(driver)
        known = sets.find_chip_kernels(node.arch, opening.kernel_set)
        if opening.kernel_set and known is None:
            raise UnsupportedError(
                f"tier {opening.spec.tier}: the kernels of {opening.kernel_set} do not run on this {node.arch}",
                next=f"use --tier {opening.spec.tier}",
            )
        kernels = opening.options.get("kernels") or known
        assert kernels is None or isinstance(kernels, sets.BinaryKernelSet)
        undo.pop_all()
    return opener(driver, AmdOptions(opening.ordering, kernels), node=node, after=opening.after)


def find_first_gpu(driver: Driver) -> TopologyNode:
    """Return the first GPU. Raise NothingRan, with the devices that are present instead."""
    topology = read_topology(driver)
    for node in topology.gpus:
        if node.arch in ARCHITECTURES:
            return node
    seen = [f"{node.arch} ({node.name})" for node in topology.gpus] + list(topology.hidden)
    raise NothingRan(
        f"no GPU that tiers t1 and t2 can use; expected one of {', '.join(ARCHITECTURES)}, "
        f"saw {', '.join(seen) or 'none'}",
        next="use --tier t_cpu",
    )


def open_backend(
    driver: Driver, node: TopologyNode, side: KmdSide, tier: str, options: AmdOptions, undo: ExitStack
) -> AmdBackend:
    """Create the backend over an open transport. The contents of `undo` are closed with it."""
    channel = driver if isinstance(driver, SideChannel) else None
    backend = AmdBackend(side, registry.spec(tier), describe_device(driver, node), options, channel=channel)
    backend.owner = undo.pop_all().close
    return backend


def describe_device(driver: Driver, node: TopologyNode) -> Device:
    release = ""
    with suppress(OSError):
        release = driver.read_file("/proc/sys/kernel/osrelease").decode().strip()
    firmware = f"MEC {node.properties['fw_version']}" if "fw_version" in node.properties else ""
    vendor_id, device_id = (node.properties.get(name, 0) for name in ("vendor_id", "device_id"))
    name = CARDS.get(device_id, "") or node.name
    if name in UNNAMED:
        name = f"AMD {node.arch}"
    return Device(
        name,
        node.arch,
        driver.simulated,
        kernel=release,
        firmware=firmware,
        memory_bytes_per_second=node.memory_bytes_per_second,
        memory_bytes=node.vram_bytes,
        pci_id=f"{vendor_id:04x}:{device_id:04x}" if device_id else "",
        render_path=node.render_path,
    )
