"""DRM core on a render node: include/uapi/drm/drm.h, Linux 7.2. Only the syncobj ioctls of a queue client."""

from __future__ import annotations

from zinc_rt.kmd.uapi.structs import Ioctl, Struct, index_by_key, s32, s64, u32, u64

DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL = 1 << 0
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT = 1 << 1

VERSION = Struct(
    "struct drm_version",
    s32("version_major"),
    s32("version_minor"),
    s32("version_patchlevel"),
    u64("name_len"),  # in: room; out: the whole length, even where less was copied
    u64("name"),
    u64("date_len"),
    u64("date"),
    u64("desc_len"),
    u64("desc"),
)

GEM_CLOSE = Struct("struct drm_gem_close", u32("handle"), u32("pad"))

SYNCOBJ_CREATE = Struct("struct drm_syncobj_create", u32("handle"), u32("flags"))
SYNCOBJ_DESTROY = Struct("struct drm_syncobj_destroy", u32("handle"), u32("pad"))

SYNCOBJ_WAIT = Struct(
    "struct drm_syncobj_wait",
    u64("handles"),
    s64("timeout_nsec"),  # absolute, CLOCK_MONOTONIC
    u32("count_handles"),
    u32("flags"),
    u32("first_signaled"),
    u32("pad"),
    u64("deadline_nsec"),  # 6.6
)

SYNCOBJ_TIMELINE_WAIT = Struct(
    "struct drm_syncobj_timeline_wait",
    u64("handles"),
    u64("points"),
    s64("timeout_nsec"),  # absolute, CLOCK_MONOTONIC
    u32("count_handles"),
    u32("flags"),
    u32("first_signaled"),
    u32("pad"),
    u64("deadline_nsec"),  # 6.6
)


def _make_ioctl(name: str, direction: str, number: int, struct: Struct) -> Ioctl:
    return Ioctl(f"DRM_IOCTL_{name}", direction, "d", number, struct)


IOCTL_VERSION = _make_ioctl("VERSION", "rw", 0x00, VERSION)
IOCTL_GEM_CLOSE = _make_ioctl("GEM_CLOSE", "w", 0x09, GEM_CLOSE)
IOCTL_SYNCOBJ_CREATE = _make_ioctl("SYNCOBJ_CREATE", "rw", 0xBF, SYNCOBJ_CREATE)
IOCTL_SYNCOBJ_DESTROY = _make_ioctl("SYNCOBJ_DESTROY", "rw", 0xC0, SYNCOBJ_DESTROY)
IOCTL_SYNCOBJ_WAIT = _make_ioctl("SYNCOBJ_WAIT", "rw", 0xC3, SYNCOBJ_WAIT)
IOCTL_SYNCOBJ_TIMELINE_WAIT = _make_ioctl("SYNCOBJ_TIMELINE_WAIT", "rw", 0xCA, SYNCOBJ_TIMELINE_WAIT)

IOCTLS = index_by_key(globals())
