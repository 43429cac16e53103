"""A render node of amdgpu and its queries: version, device, IP, firmware, memory, last fault."""

from __future__ import annotations

import errno

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.syscalls import open_node, send_ioctl
from zinc_rt.kmd.transport import MemoryFault
from zinc_rt.kmd.uapi import amdgpu, drm
from zinc_rt.kmd.uapi.host_memory import HostArray
from zinc_rt.kmd.uapi.structs import Ioctl, Struct, StructBytes, u32, u64

FIRMWARE = {  # name → AMDGPU_INFO_FW_*
    "ME": amdgpu.AMDGPU_INFO_FW_GFX_ME,
    "PFP": amdgpu.AMDGPU_INFO_FW_GFX_PFP,
    "MEC": amdgpu.AMDGPU_INFO_FW_GFX_MEC,
    "MES_KIQ": amdgpu.AMDGPU_INFO_FW_MES_KIQ,
    "MES": amdgpu.AMDGPU_INFO_FW_MES,
}
FIRMWARE_VERSION_MASK = {"MES": 0xFFF, "MES_KIQ": 0xFFF}  # AMDGPU_MES_VERSION_MASK: above lie feature bits


class RenderNode:
    """An open /dev/dri/renderD*. Resources created through it are tracked in `ledger`."""

    def __init__(self, driver: Driver, path: str) -> None:
        self.driver = driver
        self.path = path
        self.ledger = Ledger(path)
        with self.ledger.release_on_failure():
            self.fd = open_node(driver, self.ledger, path)
            self.driver_name, self.version = self._query_version()
            if self.driver_name != "amdgpu":
                raise UnsupportedError(f"{path}: its driver is {self.driver_name}, not amdgpu")

    def ioctl(self, command: Ioctl, record: StructBytes, about: str = "") -> StructBytes:
        return send_ioctl(self.driver, self.fd, command, record, about)

    def query_info(self, query: int, answer: Struct, about: str, **arguments: int) -> StructBytes:
        """Query amdgpu and return `answer`; fields newer than this amdgpu version stay zero."""
        array = HostArray(bytes(answer.size_bytes))
        request = amdgpu.INFO.new(
            return_pointer=array.address, return_size=answer.size_bytes, query=query, **arguments
        )
        self.ioctl(amdgpu.IOCTL_INFO, request, about)
        return array.record(answer)

    def device(self) -> StructBytes:
        return self.query_info(amdgpu.AMDGPU_INFO_DEV_INFO, amdgpu.INFO_DEVICE, "DEV_INFO")

    def query_compute_ip(self) -> StructBytes:
        return self.query_info(
            amdgpu.AMDGPU_INFO_HW_IP_INFO,
            amdgpu.INFO_HW_IP,
            "HW_IP_INFO compute",
            hw_ip_type=amdgpu.AMDGPU_HW_IP_COMPUTE,
        )

    def memory(self) -> StructBytes:
        return self.query_info(amdgpu.AMDGPU_INFO_MEMORY, amdgpu.INFO_MEMORY, "MEMORY")

    def query_placement(self, handle: int) -> int:
        """Return the domains (AMDGPU_GEM_DOMAIN_*) in which a buffer may be: those of GEM_CREATE, to which Linux
        adds GTT if there was no room in VRAM."""
        array = HostArray(bytes(amdgpu.GEM_CREATE_INFO.size_bytes))
        request = amdgpu.GEM_OP.new(
            handle=handle, op=amdgpu.AMDGPU_GEM_OP_GET_GEM_CREATE_INFO, value=array.address
        )
        self.ioctl(amdgpu.IOCTL_GEM_OP, request, f"buffer {handle}")
        return array.record(amdgpu.GEM_CREATE_INFO)["domains"]

    def query_firmware(self) -> dict[str, int]:
        """Return firmware versions by name; names unknown to this amdgpu version are omitted."""
        versions = {}
        for name, kind in FIRMWARE.items():
            try:
                answer = self.query_info(
                    amdgpu.AMDGPU_INFO_FW_VERSION, amdgpu.INFO_FIRMWARE, f"FW_VERSION {name}", fw_type=kind
                )
            except DriverError as error:
                if error.errno != errno.EINVAL:
                    raise
                continue
            versions[name] = answer["ver"] & FIRMWARE_VERSION_MASK.get(name, 0xFFFFFFFF)
        return versions

    def fault(self) -> MemoryFault | None:
        """Return the last page fault in this node's address space, or None. No event signals it, so query it after
        a hang."""
        last = self.query_info(amdgpu.AMDGPU_INFO_GPUVM_FAULT, amdgpu.INFO_GPUVM_FAULT, "GPUVM_FAULT")
        return MemoryFault(last["addr"], status=last["status"]) if last["addr"] or last["status"] else None

    def query_evictions(self) -> int:
        """Return how many VRAM buffers, of any client, Linux has moved to host memory since the driver started
        (num_evictions, amdgpu_bo_move)."""
        counter = Struct("uint64_t", u64("count"))
        return self.query_info(amdgpu.AMDGPU_INFO_NUM_EVICTIONS, counter, "NUM_EVICTIONS")["count"]

    def query_vram_lost_count(self) -> int:
        """Return the number of resets that lost the content of VRAM."""
        counter = Struct("uint32_t", u32("count"))
        return self.query_info(amdgpu.AMDGPU_INFO_VRAM_LOST_COUNTER, counter, "VRAM_LOST_COUNTER")["count"]

    def query_eop_bytes(self) -> int:
        """Return the size of a compute user queue's EOP buffer. Linux up to 7.0 does not report it: 2048."""
        try:
            areas = self.query_info(
                amdgpu.AMDGPU_INFO_UQ_FW_AREAS,
                amdgpu.INFO_UQ_METADATA,
                "UQ_FW_AREAS compute",
                hw_ip_type=amdgpu.AMDGPU_HW_IP_COMPUTE,
            )
        except DriverError as error:
            if error.errno != errno.EINVAL:
                raise
            return 2048
        return areas["eop_size"] or 2048

    def close(self) -> None:
        self.ledger.close()

    def _query_version(self) -> tuple[str, tuple[int, int, int]]:
        room = HostArray(bytes(32))
        request = drm.VERSION.new(name_len=room.size_bytes, name=room.address)
        self.ioctl(drm.IOCTL_VERSION, request, self.path)
        name = room.bytes()[: request["name_len"]].decode(errors="replace")
        return name, (request["version_major"], request["version_minor"], request["version_patchlevel"])


def parse_ip_version(answer: StructBytes) -> tuple[int, int, int]:
    """Return an IP's (major, minor, revision) as discovered: (12, 0, 1) is gfx1201."""
    packed = answer["ip_discovery_version"]
    return packed >> 16 & 0xFF, packed >> 8 & 0xFF, packed & 0xFF
