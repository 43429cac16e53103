"""An open /dev/kfd: its interface version, its ioctls, and the address windows of this process."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.syscalls import KFD_PATH, open_node, send_ioctl
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import HostArray
from zinc_rt.kmd.uapi.structs import Ioctl, StructBytes

NEEDED = (1, 14)  # event ages and RUNTIME_ENABLE


@dataclass(frozen=True, slots=True)
class Apertures:
    """The first and the last address of each window. LDS and scratch matter only to flat addressing."""

    lds: tuple[int, int]
    scratch: tuple[int, int]
    gpuvm: tuple[int, int]


class OpenKfd:
    """The common object for a process's KFD calls. `ledger` tracks it and the resources that outlive a single
    GPU.
    """

    def __init__(self, driver: Driver, ledger: Ledger) -> None:
        self.driver = driver
        self.ledger = ledger
        self.fd = open_node(driver, ledger, KFD_PATH)
        version = self.ioctl(kfd.IOC_GET_VERSION, kfd.GET_VERSION.new())
        self.version = version["major_version"], version["minor_version"]
        check_interface(self.version)

    def ioctl(self, command: Ioctl, record: StructBytes, about: str = "") -> StructBytes:
        return send_ioctl(self.driver, self.fd, command, record, about)

    def query_apertures(self) -> dict[int, Apertures]:
        """Return the windows of each GPU, by gpu_id."""
        request = kfd.GET_PROCESS_APERTURES_NEW.new()
        count = self.ioctl(kfd.IOC_GET_PROCESS_APERTURES_NEW, request)["num_of_nodes"]
        array = HostArray(bytes(count * kfd.PROCESS_DEVICE_APERTURES.size_bytes))
        request = kfd.GET_PROCESS_APERTURES_NEW.new(
            kfd_process_device_apertures_ptr=array.address, num_of_nodes=count
        )
        filled = min(count, self.ioctl(kfd.IOC_GET_PROCESS_APERTURES_NEW, request)["num_of_nodes"])
        windows = (array.record(kfd.PROCESS_DEVICE_APERTURES, index) for index in range(filled))
        return {
            window["gpu_id"]: Apertures(
                (window["lds_base"], window["lds_limit"]),
                (window["scratch_base"], window["scratch_limit"]),
                (window["gpuvm_base"], window["gpuvm_limit"]),
            )
            for window in windows
        }


def check_interface(version: tuple[int, int]) -> None:
    """Raise UnsupportedError if KFD is too old or has an unknown major version."""
    if version[0] != NEEDED[0] or version < NEEDED:
        raise UnsupportedError(
            f"KFD interface {_format_version(version)}: expected {_format_version(NEEDED)} or later "
            f"of {NEEDED[0]}.x",
            next="use Linux 6.6 or newer",
        )


def _format_version(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
