"""What a simulated device says that no hardware can, in the words of a backend."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.backends.amd.source_lines import with_source
from zinc_rt.backends.base import Finding, Store
from zinc_rt.exec import Buffer
from zinc_rt.kernels.zrt import Zrt
from zinc_rt.kmd.driver import SideChannel


class AmdInstrument:
    def __init__(self, device: SideChannel, read: Callable[[str], Zrt]) -> None:
        """`device`: the driver's side channel. `read`: a kernel by name, for the lines of its source."""
        self._device = device
        self._read = read

    def findings(self) -> list[Finding]:
        found = (Finding(each.rule, with_source(each.sentence, self._read)) for each in self._device.findings())
        return list(dict.fromkeys(found))

    def watch(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        self._device.watch(buffer.storage.gpu_va + offset_bytes, size_bytes)

    def stores(self) -> list[Store]:
        return list(self._device.stores())
