"""The interface between launch() and a debugger."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.transport import DeviceBuffer
from zinc_rt.launching.code_object import CodeImage, CodeKernel
from zinc_rt.launching.launch_findings import LaunchFindings
from zinc_rt.launching.values import LaunchBuffer

Submit = Callable[[float, Callable[[], str]], float]
"""(time-out in seconds, a function that returns why the launch will never end or ""): the seconds it took."""


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A launch whose memory is allocated and filled. `submit` runs it, any number of times.

    `buffers`: of the arguments by name. `regions`: (name, VA, size in bytes) of all its memory, where the CPU maps
    it at the same address.
    """

    driver: Driver
    image: CodeImage
    kernel: CodeKernel
    buffers: Mapping[str, tuple[DeviceBuffer, LaunchBuffer]]
    regions: tuple[tuple[str, int, int], ...]
    findings: LaunchFindings
    submit: Submit

    def save_regions(self) -> tuple[bytes, ...]:
        """Return the contents of `regions`."""
        return tuple(ctypes.string_at(va, size) for _, va, size in self.regions)

    def restore(self, saved: tuple[bytes, ...]) -> None:
        """Set the contents of `regions`, and forget which outputs the kernel stored."""
        for (_, va, size), data in zip(self.regions, saved, strict=True):
            ctypes.memmove(va, data, size)
        self.findings.begin()


class LaunchDebugger(Protocol):
    """A debugger that takes over the run of a launch on a simulated device."""

    def open_device(self, chip: str, options: dict[str, Any]) -> Driver:
        """Return a new device of this chip with these `options` of MachineOptions."""

    def close_device(self) -> None: ...

    def run(self, prepared: PreparedLaunch) -> float:
        """Run the launch as often as the debugger needs. Return the seconds that it took."""
