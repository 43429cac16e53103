"""A card of this machine, as far as any code can tell: a simulated one that does not say so."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from zinc_rt.sim.in_process import SimDriver

RENDER = "/dev/dri/renderD128"
DRM = "/sys/class/drm/renderD128/device/drm"


class Card(SimDriver):
    """`simulated` is False, and files may be added or replaced."""

    files: Mapping[str, str] = MappingProxyType({DRM + "/card0/card0-DP-1/status": "disconnected\n"})

    @property
    def simulated(self) -> bool:  # type: ignore[override]
        return False

    def read_file(self, path: str) -> bytes:
        if path in self.files:
            return self.files[path].encode()
        return super().read_file(path)

    def list_dir(self, path: str) -> list[str]:
        start = path.rstrip("/") + "/"
        added = {file[len(start) :].split("/")[0] for file in self.files if file.startswith(start)}
        try:
            return sorted({*super().list_dir(path), *added})
        except OSError:
            if not added:
                raise
            return sorted(added)


class LitRegisters(Card):
    """Its display shows a picture."""

    files = MappingProxyType({DRM + "/card0/card0-DP-1/status": "connected\n"})
