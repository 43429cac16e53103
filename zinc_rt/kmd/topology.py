"""GPUs in KFD's sysfs topology: one folder per node, `name value` lines."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from zinc_rt.host.errors import InputError
from zinc_rt.isa.target import TARGETS
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.errors import DriverError

NODES = "/sys/devices/virtual/kfd/kfd/topology/nodes"
HEAP_PUBLIC, HEAP_PRIVATE = 1, 2  # HSA_MEM_HEAP_TYPE_FB_* in amdkfd/kfd_crat.h: VRAM in the BAR, and beyond it


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """One GPU. `properties` holds every line unmodified, including names newer than this code."""

    index: int
    gpu_id: int
    name: str
    properties: dict[str, int] = field(repr=False)
    heaps: dict[int, int] = field(default_factory=dict, repr=False)  # heap type → bytes
    memory_clock: tuple[int, int] = (0, 0)  # of VRAM: bits of its bus, MHz at most

    def __getitem__(self, name: str) -> int:
        try:
            return self.properties[name]
        except KeyError:
            raise InputError(
                f"{NODES}/{self.index}/properties has no {name}",
                next="use a newer Linux: amdkfd has had it since 5.x",
            ) from None

    @property
    def generation(self) -> tuple[int, int, int]:
        """The chip's (major, minor, step): (12, 0, 1) for gfx1201."""
        version = self["gfx_target_version"]
        return version // 10000, version // 100 % 100, version % 100

    @property
    def arch(self) -> str:
        return format_arch_name(self.generation)

    @property
    def render_path(self) -> str:
        return f"/dev/dri/renderD{self['drm_render_minor']}"

    @property
    def compute_units(self) -> int:
        return self["simd_count"] // self["simd_per_cu"]

    @property
    def shader_engines(self) -> int:
        return self["array_count"] // self["simd_arrays_per_engine"]

    @property
    def xccs(self) -> int:
        return self.properties.get("num_xcc", 1) or 1

    @property
    def vram_bytes(self) -> int:
        return sum(self.heaps.get(kind, 0) for kind in (HEAP_PUBLIC, HEAP_PRIVATE))

    @property
    def memory_bytes_per_second(self) -> float:
        """The peak VRAM bandwidth; 0.0 if unknown to the node or to this code."""
        bits, mhz = self.memory_clock
        target = TARGETS.get(self.arch)
        return bits / 8 * mhz * 1e6 * target.transfers_per_clock if target is not None else 0.0

    @property
    def small_bar(self) -> bool | None:
        """True if part of VRAM is inaccessible to the CPU; None if the node does not list its memory."""
        return None if not self.vram_bytes else bool(self.heaps.get(HEAP_PRIVATE))


@dataclass(frozen=True, slots=True)
class Topology:
    gpus: tuple[TopologyNode, ...]
    hidden: tuple[str, ...]  # nodes this process may not read, each with the reason


def format_arch_name(generation: tuple[int, int, int]) -> str:
    """Return LLVM's name of a chip: gfx1201 for (12, 0, 1), gfx90a for (9, 0, 10)."""
    major, minor, step = generation
    return f"gfx{major}{minor:x}{step:x}"


def read_topology(driver: Driver) -> Topology:
    """Read every GPU node, by index. CPU nodes are omitted; a node hidden by the device cgroup is listed by
    name.
    """
    try:
        names = driver.list_dir(NODES)
    except OSError as error:
        raise DriverError("open /dev/kfd", error.errno or errno.ENOENT, NODES) from error
    gpus, hidden = [], []
    for index in sorted(int(name) for name in names if name.isdecimal()):
        path = f"{NODES}/{index}"
        try:
            gpu_id = driver.read_file(f"{path}/gpu_id").decode().strip()
            if not gpu_id:
                hidden.append(f"node {index}: its gpu_id is empty")
                continue
            if int(gpu_id) == 0:
                continue
            properties = parse_properties(driver.read_file(f"{path}/properties"), path)
            if not properties:
                hidden.append(f"node {index}: its properties are empty")
                continue
            name = driver.read_file(f"{path}/name").decode().strip()
        except PermissionError as error:
            hidden.append(f"node {index}: {error.strerror or 'not allowed'} (device cgroup of a container?)")
            continue
        gpus.append(TopologyNode(index, int(gpu_id), name, properties, *_sum_memory(_read_banks(driver, path))))
    return Topology(tuple(gpus), tuple(hidden))


def parse_properties(text: bytes, where: str) -> dict[str, int]:
    properties = {}
    for line in text.decode().splitlines():
        name, _, value = line.partition(" ")
        if not name or not value.strip().isdecimal():
            raise InputError(
                f"{where}/properties: {line!r} is not a line with a name and a value", next="please report it"
            )
        properties[name] = int(value)
    return properties


def _read_banks(driver: Driver, path: str) -> list[dict[str, int]]:
    """Return the memory banks of a node; empty if Linux or a container hides them."""
    try:
        return [
            parse_properties(driver.read_file(f"{path}/mem_banks/{bank}/properties"), f"{path}/mem_banks/{bank}")
            for bank in driver.list_dir(f"{path}/mem_banks")
        ]
    except OSError:
        return []


def _sum_memory(banks: list[dict[str, int]]) -> tuple[dict[int, int], tuple[int, int]]:
    """Return the bytes of each heap type, and the clock of VRAM."""
    heaps: dict[int, int] = {}
    clock = (0, 0)
    for bank in banks:
        kind = bank.get("heap_type", 0)
        heaps[kind] = heaps.get(kind, 0) + bank.get("size_in_bytes", 0)
        if kind in (HEAP_PUBLIC, HEAP_PRIVATE):
            clock = (bank.get("width", 0), bank.get("mem_clk_max", 0))
    return heaps, clock
