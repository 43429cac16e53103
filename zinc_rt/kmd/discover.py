"""Discovery of a machine's AMD GPUs and of the tiers that each supports, without side effects.

Nodes are opened and closed; nothing is allocated, no address space is bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.host.errors import ZincError
from zinc_rt.kmd.cwsr import list_cwsr_sizes
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.open_kfd import check_interface
from zinc_rt.kmd.render_node import RenderNode
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.syscalls import KFD_PATH, open_node, send_ioctl
from zinc_rt.kmd.topology import Topology, TopologyNode, read_topology
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.userq_availability import check_userq_availability

DRM = "/sys/class/drm"
AMD = 0x1002
PACKETS_KNOWN = (11, 12)  # gfx generations whose PM4 packets this version writes


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its render node, by KFD's topology, or by both."""

    render_path: str
    pci_address: str = ""
    device_id: int = 0
    kmd_name: str = ""
    node: TopologyNode | None = None

    @property
    def name(self) -> str:
        return self.render_path.rpartition("/")[2]

    @property
    def arch(self) -> str:
        return self.node.arch if self.node else ""


@dataclass(frozen=True, slots=True)
class GpuInventory:
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...]  # what hid something, each a sentence


@dataclass(frozen=True, slots=True)
class TierAnswer:
    """The result of checking a tier's driver requirements: whether they are met, why, and advice if not."""

    usable: bool
    why: str
    next: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def find_gpus(driver: Driver) -> GpuInventory:
    """Find AMD GPUs, by render node. A missing GPU, driver or sysfs is not an error: `notes` lists the
    observations."""
    notes: list[str] = []
    topology = Topology((), ())
    try:
        topology = read_topology(driver)
    except DriverError as error:
        notes.append(f"KFD topology: {error.why}")
    notes += [f"KFD hides {item}" for item in topology.hidden]
    nodes = {node.render_path: node for node in topology.gpus}
    result = {gpu.render_path: gpu for gpu in _render_nodes(driver, nodes)}
    for path, node in nodes.items():
        result.setdefault(path, Gpu(path, device_id=node.properties.get("device_id", 0), node=node))
    return GpuInventory(tuple(result[path] for path in sorted(result, key=_parse_minor)), tuple(notes))


def check_kfd(driver: Driver, gpu: Gpu) -> TierAnswer:
    """Check the requirements of t1: KFD version, topology node, both device nodes, packet encoders."""
    if gpu.node is None:
        return TierAnswer(
            False,
            "KFD does not list this GPU",
            "`dmesg | grep -i kfd` says why (skipped device, PCIe atomics, a container's device rules)",
        )
    ledger = Ledger("check")
    try:
        fd = open_node(driver, ledger, KFD_PATH)
        version = send_ioctl(driver, fd, kfd.IOC_GET_VERSION, kfd.GET_VERSION.new())
        open_node(driver, ledger, gpu.node.render_path)
        interface = (version["major_version"], version["minor_version"])
        facts = {"kfd": ".".join(map(str, interface)), **_describe_node(gpu.node)}
        check_interface(interface)
        if gpu.node.generation[0] not in PACKETS_KNOWN:
            return TierAnswer(
                False, f"{gpu.arch}: packets are known for gfx11 and gfx12", "use --tier t_cpu", facts
            )
        return TierAnswer(True, f"KFD {facts['kfd']}, {gpu.node.compute_units} CUs", "", facts)
    except ZincError as error:
        return _make_refusal(error)
    finally:
        ledger.close()


def check_user_queues(driver: Driver, gpu: Gpu) -> TierAnswer:
    """Check the requirements of t2: the verdict of the availability table."""
    try:
        node = RenderNode(driver, gpu.render_path)
        try:
            result = check_userq_availability(driver, node)
            version = ".".join(map(str, node.version))
        finally:
            node.close()
    except ZincError as error:
        return _make_refusal(error)
    facts = {
        "drm": version,
        "userq_ip_mask": result.facts.ip_mask,
        "userq_num_slots": result.facts.slots,
        "user_queue_parameter": result.facts.parameter,
        "firmware": result.facts.firmware,
        "generation": list(result.facts.generation),
    }
    return TierAnswer(result.usable, result.why, result.next, facts)


def _render_nodes(driver: Driver, nodes: dict[str, TopologyNode]) -> list[Gpu]:
    try:
        names = [name for name in driver.list_dir(DRM) if re.fullmatch(r"renderD\d+", name)]
    except OSError:
        return []
    gpus = []
    for name in names:
        device = f"{DRM}/{name}/device"
        try:
            vendor = int(driver.read_file(f"{device}/vendor").decode(), 16)
            if vendor != AMD:
                continue
            device_id = int(driver.read_file(f"{device}/device").decode(), 16)
            lines = driver.read_file(f"{device}/uevent").decode().splitlines()
        except OSError:  # no PCI device behind it
            continue
        event = dict(line.split("=", 1) for line in lines if "=" in line)
        path = f"/dev/dri/{name}"
        gpus.append(Gpu(path, event.get("PCI_SLOT_NAME", ""), device_id, event.get("DRIVER", ""), nodes.get(path)))
    return gpus


def _describe_node(node: TopologyNode) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "gpu_id": node.gpu_id,
        "arch": node.arch,
        "compute_units": node.compute_units,
        "shader_engines": node.shader_engines,
        "vram_bytes": node.vram_bytes,
        "small_bar": node.small_bar,
    }
    if node.generation >= (10, 1, 0):
        facts["save_area"] = [
            {"bytes": cwsr_size.buffer_bytes, "save_bytes": cwsr_size.save_bytes, "source": cwsr_size.source}
            for cwsr_size in list_cwsr_sizes(node)
        ]
    return facts


def _make_refusal(error: ZincError) -> TierAnswer:
    first, _, advice = str(error).partition("\n  next: ")
    return TierAnswer(False, first, advice)


def _parse_minor(path: str) -> tuple[int, str]:
    digits = re.search(r"\d+$", path)
    return (int(digits.group()) if digits else 0, path)
