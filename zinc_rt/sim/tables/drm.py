"""The DRM core's layouts: include/uapi/drm/drm.h of Linux 7.2, on x86-64."""

from __future__ import annotations

from zinc_rt.sim.tables.structs import Array, IoctlRow, by_key, parse_struct

DRM_CAP_SYNCOBJ = 19
DRM_CAP_SYNCOBJ_TIMELINE = 20
DRM_SYNCOBJ_CREATE_SIGNALED = 1
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL = 1
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT = 2
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE = 4
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE = 8
DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED = 1
DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE = 1
DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE = 1

VERSION = parse_struct(
    "drm_version",
    64,
    """version_major s32 0; version_minor s32 4; version_patchlevel s32 8; name_len u64 16; name u64 24;
    date_len u64 32; date u64 40; desc_len u64 48; desc u64 56""",
    Array("name", "name_len", 1, "out"),
    Array("date", "date_len", 1, "out"),
    Array("desc", "desc_len", 1, "out"),
)
GEM_CLOSE = parse_struct("drm_gem_close", 8, "handle u32 0; pad u32 4")
GET_CAP = parse_struct("drm_get_cap", 16, "capability u64 0; value u64 8")
PRIME_HANDLE = parse_struct("drm_prime_handle", 12, "handle u32 0; flags u32 4; fd s32 8")
SYNCOBJ_CREATE = parse_struct("drm_syncobj_create", 8, "handle u32 0; flags u32 4")
SYNCOBJ_DESTROY = parse_struct("drm_syncobj_destroy", 8, "handle u32 0; pad u32 4")
SYNCOBJ_HANDLE = parse_struct(
    "drm_syncobj_handle", 24, "handle u32 0; flags u32 4; fd s32 8; pad u32 12; point u64 16"
)
SYNCOBJ_WAIT = parse_struct(
    "drm_syncobj_wait",
    40,
    """handles u64 0; timeout_nsec s64 8; count_handles u32 16; flags u32 20; first_signaled u32 24;
    pad u32 28; deadline_nsec u64 32""",
    Array("handles", "count_handles", 4, "in"),
)
SYNCOBJ_TIMELINE_WAIT = parse_struct(
    "drm_syncobj_timeline_wait",
    48,
    """handles u64 0; points u64 8; timeout_nsec s64 16; count_handles u32 24; flags u32 28;
    first_signaled u32 32; pad u32 36; deadline_nsec u64 40""",
    Array("handles", "count_handles", 4, "in"),
    Array("points", "count_handles", 8, "in"),
)
SYNCOBJ_ARRAY = parse_struct(
    "drm_syncobj_array",
    16,
    "handles u64 0; count_handles u32 8; pad u32 12",
    Array("handles", "count_handles", 4, "in"),
)
SYNCOBJ_TIMELINE_SIGNAL = parse_struct(
    "drm_syncobj_timeline_array",
    24,
    "handles u64 0; points u64 8; count_handles u32 16; flags u32 20",
    Array("handles", "count_handles", 4, "in"),
    Array("points", "count_handles", 8, "in"),
)
SYNCOBJ_QUERY = parse_struct(
    "drm_syncobj_timeline_array",
    24,
    "handles u64 0; points u64 8; count_handles u32 16; flags u32 20",
    Array("handles", "count_handles", 4, "in"),
    Array("points", "count_handles", 8, "out"),
)
SYNCOBJ_TRANSFER = parse_struct(
    "drm_syncobj_transfer",
    32,
    "src_handle u32 0; dst_handle u32 4; src_point u64 8; dst_point u64 16; flags u32 24; pad u32 28",
)

IOCTL_VERSION = IoctlRow("DRM_IOCTL_VERSION", "d", 0x00, "rw", VERSION)
IOCTL_GEM_CLOSE = IoctlRow("DRM_IOCTL_GEM_CLOSE", "d", 0x09, "w", GEM_CLOSE)
IOCTL_GET_CAP = IoctlRow("DRM_IOCTL_GET_CAP", "d", 0x0C, "rw", GET_CAP)
IOCTL_PRIME_HANDLE_TO_FD = IoctlRow("DRM_IOCTL_PRIME_HANDLE_TO_FD", "d", 0x2D, "rw", PRIME_HANDLE)
IOCTL_PRIME_FD_TO_HANDLE = IoctlRow("DRM_IOCTL_PRIME_FD_TO_HANDLE", "d", 0x2E, "rw", PRIME_HANDLE)
IOCTL_SYNCOBJ_CREATE = IoctlRow("DRM_IOCTL_SYNCOBJ_CREATE", "d", 0xBF, "rw", SYNCOBJ_CREATE)
IOCTL_SYNCOBJ_DESTROY = IoctlRow("DRM_IOCTL_SYNCOBJ_DESTROY", "d", 0xC0, "rw", SYNCOBJ_DESTROY)
IOCTL_SYNCOBJ_HANDLE_TO_FD = IoctlRow("DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD", "d", 0xC1, "rw", SYNCOBJ_HANDLE)
IOCTL_SYNCOBJ_FD_TO_HANDLE = IoctlRow("DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE", "d", 0xC2, "rw", SYNCOBJ_HANDLE)
IOCTL_SYNCOBJ_WAIT = IoctlRow("DRM_IOCTL_SYNCOBJ_WAIT", "d", 0xC3, "rw", SYNCOBJ_WAIT)
IOCTL_SYNCOBJ_RESET = IoctlRow("DRM_IOCTL_SYNCOBJ_RESET", "d", 0xC4, "rw", SYNCOBJ_ARRAY)
IOCTL_SYNCOBJ_SIGNAL = IoctlRow("DRM_IOCTL_SYNCOBJ_SIGNAL", "d", 0xC5, "rw", SYNCOBJ_ARRAY)
IOCTL_SYNCOBJ_TIMELINE_WAIT = IoctlRow("DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT", "d", 0xCA, "rw", SYNCOBJ_TIMELINE_WAIT)
IOCTL_SYNCOBJ_QUERY = IoctlRow("DRM_IOCTL_SYNCOBJ_QUERY", "d", 0xCB, "rw", SYNCOBJ_QUERY)
IOCTL_SYNCOBJ_TRANSFER = IoctlRow("DRM_IOCTL_SYNCOBJ_TRANSFER", "d", 0xCC, "rw", SYNCOBJ_TRANSFER)
IOCTL_SYNCOBJ_TIMELINE_SIGNAL = IoctlRow(
    "DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL", "d", 0xCD, "rw", SYNCOBJ_TIMELINE_SIGNAL
)

IOCTLS = by_key(*(item for item in list(globals().values()) if isinstance(item, IoctlRow)))
