"""A machine as typed data, read from a MachineCapture. None, or an empty tuple where stated, means
unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.chips import CHIPS, OLDER_IDS, KnownChip, is_supported
from zinc_rt.doctor.logs import LinuxLog
from zinc_rt.kmd.topology import TopologyNode

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """The link of one PCI function: GT/s and lanes, current and maximum."""

    address: str
    speed: float | None = None
    width: int | None = None
    speed_most: float | None = None
    width_most: int | None = None


@dataclass(frozen=True, slots=True)
class InspectedGpu:
    address: str  # of PCI, with its domain; "" where nothing says
    card: str = ""  # card0
    render: str = ""  # renderD128
    device_id: int | None = None
    driver: str | None = None  # "" where it is known that none is bound
    name: str = ""
    arch: str = ""
    node: TopologyNode | None = None
    vram_bytes: int | None = None
    visible_bytes: int | None = None  # VRAM that the CPU reaches
    vram_used_bytes: int | None = None
    busy_percent: int | None = None
    bar_bytes: int | None = None  # BAR 0; 0 where it has no address
    links: tuple[Link, ...] = ()  # its own, then the bridges above it
    runtime_status: str | None = None
    runtime_control: str | None = None
    power_state: str | None = None
    performance_level: str | None = None
    power_cap_watts: float | None = None
    power_cap_default_watts: float | None = None
    fan_rpm: int | None = None
    temperatures: tuple[tuple[str, float, float | None], ...] = ()  # label, °C, its critical °C
    ras: tuple[tuple[str, int, int], ...] = ()  # block, uncorrectable, correctable errors
    vbios: str | None = None
    firmware: dict[str, int] = field(default_factory=dict)  # MES → version, without its feature bits
    displays: tuple[str, ...] = ()
    answers: dict[str, tuple[bool, str]] = field(default_factory=dict)  # tier → usable, why (ioctl.json)
    gone: bool = False  # nothing answers at its address

    @property
    def chip(self) -> KnownChip | None:
        return CHIPS.get(self.device_id or 0)

    @property
    def title(self) -> str:
        known = self.chip
        title = self.name or (known.name if known else "AMD GPU")
        return " ".join(filter(None, (title, self.arch, self.address or self.card)))

    @property
    def started(self) -> bool:
        """Return whether amdgpu drives it: data that only an initialised driver provides is present."""
        return self.node is not None or (self.driver == "amdgpu" and bool(self.vram_bytes))

    @property
    def integrated(self) -> bool:
        return bool(self.chip and self.chip.apu)

    @property
    def is_relevant(self) -> bool:
        """Return whether this toolkit supports it; an unknown chip is not excluded."""
        return is_supported(self.arch) if self.arch else self.device_id not in OLDER_IDS


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A line of dev.txt."""

    path: str
    mode: str
    uid: str
    gid: str
    acl: bool


@dataclass(frozen=True, slots=True)
class User:
    uid: int | None
    name: str
    groups: frozenset[str]  # names, and numbers as text


@dataclass(frozen=True, slots=True)
class LinuxKernel:
    release: str | None
    version: Version | None
    text: str
    cmdline: tuple[str, ...] | None
    config: dict[str, str] | None
    wsl: bool = False

    def option(self, name: str) -> str | None:
        """Return the last value of a command-line option; "" if it has no value; None if it is absent."""
        values = [word for word in self.cmdline or () if word == name or word.startswith(f"{name}=")]
        return values[-1].partition("=")[2] if values else None


@dataclass(frozen=True, slots=True)
class Module:
    loaded: bool | None
    version: str | None  # what DKMS packages say; modules of the kernel itself say nothing
    dkms: bool | None
    parameters: dict[str, str]
    blacklisted_by: str | None  # the file or command line that keeps it out


@dataclass(frozen=True, slots=True)
class HostSystem:
    distribution: str | None  # ID and ID_LIKE of os-release
    pretty: str | None
    container: str | None  # its kind
    hypervisor: str | None
    secure_boot: bool | None
    lockdown: str | None
    available_bytes: int | None
    total_bytes: int | None
    swap_free_bytes: int | None
    hugepages: tuple[int, int] | None  # free, all
    aspm_policy: str | None
    iommu: str | None  # off, passthrough, translated
    board: str


@dataclass(frozen=True, slots=True)
class InspectedMachine:
    capture: MachineCapture = field(repr=False)
    linux: LinuxKernel
    module: Module
    host: HostSystem
    gpus: tuple[InspectedGpu, ...]
    gpus_known: bool  # whether a GPU that is there would have been seen
    kfd: bool | None  # whether KFD's topology is there
    kfd_problem: str  # what keeps it from being read
    user: User | None
    nodes: tuple[DeviceNode, ...] | None
    packages: dict[str, str] | None
    unconfigured: tuple[str, ...]
    """Packages that dpkg unpacked, but could not configure."""
    users: tuple[str, ...]  # processes that have a GPU open
    log: LinuxLog | None = field(repr=False)
    hung: bool = False  # the user says that it hangs

    @property
    def drives_unlisted_gpu(self) -> bool:
        """Return whether the driver has a GPU, although the capture lists none: only amdgpu creates /dev/kfd, and
        it is loaded for its own devices only.
        """
        if self.gpus or self.gpus_known:
            return False
        paths = {node.path for node in self.nodes or ()}
        return "/dev/kfd" in paths or (bool(self.module.loaded) and any("/renderD" in path for path in paths))

    def start_logged(self, gpu: InspectedGpu) -> bool:
        """Return whether the log contains the last line of the driver's initialisation of this GPU."""
        named = rf" for {re.escape(gpu.address)}\b" if len(self.gpus) > 1 else r"\b"
        return self.log is not None and self.log.search(rf"Initialized amdgpu .*{named}") is not None

    @property
    def is_relevant(self) -> tuple[InspectedGpu, ...]:
        """Return the relevant GPUs: those this toolkit supports; if there are none, all."""
        return tuple(gpu for gpu in self.gpus if gpu.is_relevant) or self.gpus
