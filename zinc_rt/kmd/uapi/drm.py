"""DRM core on a render node: include/uapi/drm/drm.h, Linux 7.2. Of the syncobj calls, those a queue client
needs."""

from __future__ import annotations

from zinc_rt.kmd.uapi.structs import IN, INOUT, OUT, Ioctl, Pointer, Struct, by_key, s32, s64, u32, u64

DRM_CAP_SYNCOBJ = 0x13
DRM_CAP_SYNCOBJ_TIMELINE = 0x14

DRM_SYNCOBJ_CREATE_SIGNALED = 1 << 0
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL = 1 << 0
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT = 1 << 1
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE = 1 << 2
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE = 1 << 3
DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED = 1 << 0

VERSION = Struct(
    "struct drm_version",
    s32("version_major", OUT),
    s32("version_minor", OUT),
    s32("version_patchlevel", OUT),
    u64("name_len", INOUT),  # in: room; out: the whole length, even where less was copied
    u64("name"),
    u64("date_len", INOUT),
    u64("date"),
    u64("desc_len", INOUT),
    u64("desc"),
    pointers=[
        Pointer("name", "name_len", 1, OUT),
        Pointer("date", "date_len", 1, OUT),
        Pointer("desc", "desc_len", 1, OUT),
    ],
)

GEM_CLOSE = Struct("struct drm_gem_close", u32("handle"), u32("pad"))
GET_CAP = Struct("struct drm_get_cap", u64("capability"), u64("value", OUT))
PRIME_HANDLE = Struct("struct drm_prime_handle", u32("handle", INOUT), u32("flags"), s32("fd", INOUT))

SYNCOBJ_CREATE = Struct("struct drm_syncobj_create", u32("handle", OUT), u32("flags"))
SYNCOBJ_DESTROY = Struct("struct drm_syncobj_destroy", u32("handle"), u32("pad"))

SYNCOBJ_WAIT = Struct(
    "struct drm_syncobj_wait",
    u64("handles"),
    s64("timeout_nsec"),  # absolute, CLOCK_MONOTONIC
    u32("count_handles"),
    u32("flags"),
    u32("first_signaled", OUT),
    u32("pad"),
    u64("deadline_nsec"),  # 6.6
    pointers=[Pointer("handles", "count_handles", 4, IN)],
)

SYNCOBJ_TIMELINE_WAIT = Struct(
    "struct drm_syncobj_timeline_wait",
    u64("handles"),
    u64("points"),
    s64("timeout_nsec"),  # absolute, CLOCK_MONOTONIC
    u32("count_handles"),
    u32("flags"),
    u32("first_signaled", OUT),
    u32("pad"),
    u64("deadline_nsec"),  # 6.6
    pointers=[Pointer("handles", "count_handles", 4, IN), Pointer("points", "count_handles", 8, IN)],
)

SYNCOBJ_ARRAY = Struct(
    "struct drm_syncobj_array",
    u64("handles"),
    u32("count_handles"),
    u32("pad"),
    pointers=[Pointer("handles", "count_handles", 4, IN)],
)

_TIMELINE = (u64("handles"), u64("points"), u32("count_handles"), u32("flags"))
SYNCOBJ_TIMELINE_SIGNAL = Struct(
    "struct drm_syncobj_timeline_array",
    *_TIMELINE,
    pointers=[Pointer("handles", "count_handles", 4, IN), Pointer("points", "count_handles", 8, IN)],
)
SYNCOBJ_QUERY = Struct(
    "struct drm_syncobj_timeline_array",
    *_TIMELINE,
    pointers=[Pointer("handles", "count_handles", 4, IN), Pointer("points", "count_handles", 8, OUT)],
)

STRUCTS = tuple(value for value in list(globals().values()) if isinstance(value, Struct))


def _command(name: str, direction: str, number: int, struct: Struct) -> Ioctl:
    return Ioctl(f"DRM_IOCTL_{name}", direction, "d", number, struct)


IOCTL_VERSION = _command("VERSION", "rw", 0x00, VERSION)
IOCTL_GEM_CLOSE = _command("GEM_CLOSE", "w", 0x09, GEM_CLOSE)
IOCTL_GET_CAP = _command("GET_CAP", "rw", 0x0C, GET_CAP)
IOCTL_PRIME_HANDLE_TO_FD = _command("PRIME_HANDLE_TO_FD", "rw", 0x2D, PRIME_HANDLE)
IOCTL_PRIME_FD_TO_HANDLE = _command("PRIME_FD_TO_HANDLE", "rw", 0x2E, PRIME_HANDLE)
IOCTL_SYNCOBJ_CREATE = _command("SYNCOBJ_CREATE", "rw", 0xBF, SYNCOBJ_CREATE)
IOCTL_SYNCOBJ_DESTROY = _command("SYNCOBJ_DESTROY", "rw", 0xC0, SYNCOBJ_DESTROY)
IOCTL_SYNCOBJ_WAIT = _command("SYNCOBJ_WAIT", "rw", 0xC3, SYNCOBJ_WAIT)
IOCTL_SYNCOBJ_RESET = _command("SYNCOBJ_RESET", "rw", 0xC4, SYNCOBJ_ARRAY)
IOCTL_SYNCOBJ_SIGNAL = _command("SYNCOBJ_SIGNAL", "rw", 0xC5, SYNCOBJ_ARRAY)
IOCTL_SYNCOBJ_TIMELINE_WAIT = _command("SYNCOBJ_TIMELINE_WAIT", "rw", 0xCA, SYNCOBJ_TIMELINE_WAIT)
IOCTL_SYNCOBJ_QUERY = _command("SYNCOBJ_QUERY", "rw", 0xCB, SYNCOBJ_QUERY)
IOCTL_SYNCOBJ_TIMELINE_SIGNAL = _command("SYNCOBJ_TIMELINE_SIGNAL", "rw", 0xCD, SYNCOBJ_TIMELINE_SIGNAL)

IOCTLS = by_key(*(value for value in list(globals().values()) if isinstance(value, Ioctl)))
