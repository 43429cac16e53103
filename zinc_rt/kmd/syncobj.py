"""DRM sync objects, which amdgpu signals for page-table updates and for user-queue fences."""

from __future__ import annotations

import errno
import math
import time

from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.render_node import RenderNode
from zinc_rt.kmd.resources import AllocatedResource
from zinc_rt.kmd.uapi import drm
from zinc_rt.kmd.uapi.host_memory import make_u32_array, make_u64_array
from zinc_rt.kmd.uapi.structs import Ioctl, StructBytes

_SUBMITTED = drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT


class Syncobj:
    """A sync object, binary or a timeline; only the wait functions differ."""

    def __init__(self, node: RenderNode, name: str) -> None:
        self._node = node
        ioctl = node.ioctl(drm.IOCTL_SYNCOBJ_CREATE, drm.SYNCOBJ_CREATE.new(), name)
        self.handle = ioctl["handle"]
        self.held: AllocatedResource = node.ledger.hold("syncobj", name, self._destroy)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the fence. Return whether it was signalled in time. A fence that ended with an error, as after
        a reset, is signalled too: Linux does not report its error here."""
        handles = make_u32_array([self.handle])
        request = drm.SYNCOBJ_WAIT.new(
            handles=handles.address,
            count_handles=1,
            flags=_SUBMITTED,
            timeout_nsec=_compute_deadline_ns(timeout_seconds),
        )
        return self._wait_ioctl(drm.IOCTL_SYNCOBJ_WAIT, request, self.held.name)

    def wait_point(self, point: int, timeout_seconds: float) -> bool:
        """Wait for a point of the timeline, which may not have been submitted yet."""
        handles, points = make_u32_array([self.handle]), make_u64_array([point])
        request = drm.SYNCOBJ_TIMELINE_WAIT.new(
            handles=handles.address,
            points=points.address,
            count_handles=1,
            flags=_SUBMITTED,
            timeout_nsec=_compute_deadline_ns(timeout_seconds),
        )
        return self._wait_ioctl(drm.IOCTL_SYNCOBJ_TIMELINE_WAIT, request, f"{self.held.name} point {point}")

    def destroy(self) -> None:
        self.held.release()

    def _wait_ioctl(self, command: Ioctl, request: StructBytes, about: str) -> bool:
        try:
            self._node.ioctl(command, request, about)
        except DriverError as error:
            if error.errno == errno.ETIME:
                return False
            raise
        return True

    def _destroy(self) -> None:
        self._node.ioctl(drm.IOCTL_SYNCOBJ_DESTROY, drm.SYNCOBJ_DESTROY.new(handle=self.handle), "syncobj")


def _compute_deadline_ns(timeout_seconds: float) -> int:
    """Return the CLOCK_MONOTONIC deadline of a wait: DRM takes an absolute time, not a duration."""
    return time.monotonic_ns() + math.ceil(max(0.0, timeout_seconds) * 1e9)
