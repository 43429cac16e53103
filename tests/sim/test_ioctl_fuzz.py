"""Hostile arguments: every ioctl with any bytes is a success or an errno, and the device lives on."""

from __future__ import annotations

import random

import pytest
from sim.device import PAGE, open_client
from support import Counts

from zinc_rt.kmd.uapi.host_memory import make_u32_array
from zinc_rt.kmd.uapi.structs import encode_ioctl
from zinc_rt.sim.driver import drm_ioctls, kfd_ioctls
from zinc_rt.sim.tables.structs import IoctlRow

HANDLERS = [*kfd_ioctls.HANDLERS.values(), *drm_ioctls.HANDLERS.values()]
WAITS = {"AMDKFD_IOC_WAIT_EVENTS", "DRM_IOCTL_SYNCOBJ_WAIT", "DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT"}
WAITS.add("DRM_IOCTL_AMDGPU_USERQ_WAIT")


def random_number(random_: random.Random, bits: int, known_values: list[int]) -> int:
    """Return a number: an edge value, a small value, a meaningful value, or a random one."""
    edges = [0, 1, 2, 3, PAGE, PAGE - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 47, (1 << 63), (1 << 64) - 1]
    choice = random_.choice([edges, known_values, range(16), [random_.getrandbits(bits)]])
    return random_.choice(list(choice)) & ((1 << bits) - 1)


@pytest.mark.rest(keep=19)
@pytest.mark.parametrize("command", [row.ioctl for row in HANDLERS], ids=lambda item: item.name)
def test_any_ioctl_argument_gives_success_or_errno(command: IoctlRow, slow_counts: Counts) -> None:
    random_ = random.Random(command.name)
    with open_client() as c:
        buffer, array = c.alloc(PAGE), make_u32_array([c.gpu_id, 1, 2, 3] * 64)
        c.queue()
        c.event()
        known = [c.gpu_id, buffer["handle"], buffer["va_addr"], array.address, c.drm, c.kfd, 0x8000]
        fd = c.kfd if command.type_ == "K" else c.drm
        for _ in range(slow_counts(40, 3000)):
            raw = bytearray()
            for member in command.layout.fields.values() if command.layout else ():
                for _ in range(member.count):
                    raw += random_number(random_, member.size_bytes * 8, known).to_bytes(
                        member.size_bytes, "little"
                    )
            size = random_.choice([len(raw), len(raw), len(raw), 0, 4, len(raw) + 8, 96])
            arg = raw[:size].ljust(size, b"\xff")
            if command.name in WAITS:
                arg = bytearray(len(arg)) if random_.random() < 0.5 else arg
                arg[16:24] = bytes(len(arg[16:24]))  # no timeout: nobody waits for ever
            try:
                c.driver.ioctl(fd, encode_ioctl("rw", command.type_, command.number, size), arg)
            except OSError as error:
                assert error.errno and 0 < error.errno < 600, error
            assert len(arg) == size
        if c.drm not in c.driver.process.files:
            return
        assert c.driver.read_file("/proc/version")


def test_unknown_ioctl_numbers_and_types_are_rejected(slow_counts: Counts) -> None:
    with open_client() as c:
        for request in range(0, 1 << 16, 7):
            known = chr(request >> 8) in "Kd"
            if not known or request & 0xFF in kfd_ioctls.HANDLERS or request & 0xFF in drm_ioctls.HANDLERS:
                continue
            with pytest.raises(OSError):
                c.driver.ioctl(c.kfd, request, bytearray())
            with pytest.raises(OSError):
                c.driver.ioctl(c.drm, request, bytearray())
