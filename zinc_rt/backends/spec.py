"""Tier descriptions as data: name, module, selection. It imports nothing expensive, because --help reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.kmd.discover import Gpu
    from zinc_rt.kmd.driver import Driver


class DeviceKind(Enum):
    """The kind of processor, as far as memory and waiting depend on it."""

    HOST = "the host's processor"
    SIMULATED = "a simulated GPU"
    SOFTWARE = "a driver that computes on the host's processor"
    GPU = "a GPU that this runtime drives"
    API_GPU = "a GPU behind the driver of an API, which may not report its bandwidth"

    @property
    def uses_host_memory(self) -> bool:
        return self not in (DeviceKind.GPU, DeviceKind.API_GPU)


@dataclass(frozen=True, slots=True)
class Host:
    """The input of a probe. `driver` and AMD's `gpus` are for tiers that use them (`simulable`). `device`:
    the requested device of a tier that lists its own; "": the best one."""

    cores: int
    driver: Driver | None = None
    gpus: tuple[Gpu, ...] = ()
    device: str = ""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A tier's description of one device."""

    device: str
    usable: bool
    why: str
    next: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a tier is usable on this machine: the reason, advice if it cannot run models, and the device."""

    usable: bool
    why: str
    next: str = ""
    gpu: Gpu | None = None
    devices: tuple[OnDevice, ...] = ()  # all that it looked at
    unchecked: str = ""  # usable only because nobody asks what pm4-test passed; why it was to be asked


@dataclass(frozen=True, slots=True)
class Opening:
    """The input of a tier's `open`. `kernel_set` "": the one that fits the device. `gpu` None: the first
    usable one of `driver`. `device`: see Host. `after` is called when the backend is closed, or could not
    be opened."""

    spec: BackendSpec
    ordering: str
    kernel_set: str = ""
    driver: Driver | None = None
    gpu: Gpu | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    after: Callable[[], None] = lambda: None
    device: str = ""


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """One row of the registry. `module` has `probe(host) -> Availability` and `open(opening) -> Backend`; "" for a
    tier that is not built in this version. `preference`: auto tries the highest first and never tries 0.
    """

    tier: str
    title: str
    module: str = ""
    preference: int = 0
    kernel_sets: tuple[str, ...] = ()  # the first where the device does not decide
    options: tuple[str, ...] = ()  # names of those its `open` takes
    orderings: tuple[str, ...] = ()  # those it computes; (): every one
    simulable: bool = False  # its device is reached through kmd.Driver: a simulated one can stand in
    kind: DeviceKind = DeviceKind.GPU  # of a device that is neither simulated nor a driver in software
    submission_seconds: float = 0.0  # the longest submission that its driver tolerates on a GPU; 0: any
    lists_devices: bool = False  # it has devices of its own: --device TIER[:NUMBER or part of a name] takes one

    def computes(self, ordering: str) -> bool:
        return not self.orderings or ordering in self.orderings

    @property
    def built(self) -> bool:
        return bool(self.module)

    def probe(self, host: Host) -> Availability:
        """Probe a tier that is built."""
        availability: Availability = import_module(self.module).probe(host)
        return availability

    def open(
        self,
        ordering: str,
        *,
        kernel_set: str = "",
        driver: Driver | None = None,
        gpu: Gpu | None = None,
        options: Mapping[str, Any] | None = None,
        after: Callable[[], None] = lambda: None,
        device: str = "",
    ) -> Any:
        """Open a new Backend (backends.base). It uses those `options` that it supports. Raise
        UnsupportedError with the reason if it cannot be opened."""
        taken = {name: value for name, value in (options or {}).items() if name in self.options}
        opening = Opening(self, ordering, kernel_set, driver, gpu, taken, after, device)
        return import_module(self.module).open(opening)
