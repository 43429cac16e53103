"""Ioctls that the tests send and the runtime never does: a device must answer them as amdgpu and KFD would."""

from __future__ import annotations

from zinc_rt.kmd.uapi.amdgpu import DRM_COMMAND_BASE
from zinc_rt.kmd.uapi.structs import Ioctl, Struct, index_by_key, s32, u32, u64

KFD_IOC_QUEUE_TYPE_SDMA = 1
KFD_IOC_QUEUE_TYPE_COMPUTE_AQL = 2
KFD_IOC_QUEUE_TYPE_SDMA_XGMI = 3
KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID = 4
KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL = 1 << 3
KFD_IOC_WAIT_RESULT_FAIL = 2
AMDGPU_VA_OP_CLEAR = 3

GET_QUEUE_WAVE_STATE = Struct(
    "struct kfd_ioctl_get_queue_wave_state_args",
    u64("ctl_stack_address"),
    u32("ctl_stack_used_size"),
    u32("save_area_used_size"),
    u32("queue_id"),
    u32("pad"),
)

SET_MEMORY_POLICY = Struct(
    "struct kfd_ioctl_set_memory_policy_args",
    u64("alternate_aperture_base"),
    u64("alternate_aperture_size"),
    u32("gpu_id"),
    u32("default_policy"),
    u32("alternate_policy"),
    u32("misc_process_flag"),  # 1.18; padding before
)

SET_TRAP_HANDLER = Struct(
    "struct kfd_ioctl_set_trap_handler_args", u64("tba_addr"), u64("tma_addr"), u32("gpu_id"), u32("pad")
)

ALLOC_QUEUE_GWS = Struct(
    "struct kfd_ioctl_alloc_queue_gws_args", u32("queue_id"), u32("num_gws"), u32("first_gws"), u32("pad")
)

GET_DMABUF_INFO = Struct(
    "struct kfd_ioctl_get_dmabuf_info_args",
    u64("size"),
    u64("metadata_ptr"),
    u32("metadata_size"),
    u32("gpu_id"),
    u32("flags"),
    u32("dmabuf_fd"),
)

IMPORT_DMABUF = Struct(
    "struct kfd_ioctl_import_dmabuf_args", u64("va_addr"), u64("handle"), u32("gpu_id"), u32("dmabuf_fd")
)

EXPORT_DMABUF = Struct("struct kfd_ioctl_export_dmabuf_args", u64("handle"), u32("flags"), u32("dmabuf_fd"))

SMI_EVENTS = Struct("struct kfd_ioctl_smi_events_args", u32("gpuid"), u32("anon_fd"))

SET_XNACK_MODE = Struct("struct kfd_ioctl_set_xnack_mode_args", s32("xnack_enabled"))

RUNTIME_ENABLE = Struct(
    "struct kfd_ioctl_runtime_enable_args", u64("r_debug"), u32("mode_mask"), u32("capabilities_mask")
)

DBG_REGISTER = Struct("struct kfd_ioctl_dbg_register_args", u32("gpu_id"), u32("pad"))

DBG_WAVE_CONTROL = Struct(
    "struct kfd_ioctl_dbg_wave_control_args", u64("content_ptr"), u32("gpu_id"), u32("buf_size_in_bytes")
)

GET_CAP = Struct("struct drm_get_cap", u64("capability"), u64("value"))

PRIME_HANDLE = Struct("struct drm_prime_handle", u32("handle"), u32("flags"), s32("fd"))

GEM_USERPTR = Struct("struct drm_amdgpu_gem_userptr", u64("addr"), u64("size"), u32("flags"), u32("handle"))

CTX = Struct(
    "union drm_amdgpu_ctx",
    u32("op", c="in.op"),
    u32("flags", c="in.flags"),
    u32("ctx_id", c="in.ctx_id"),
    s32("priority", c="in.priority"),
    u32("new_ctx_id", at=0, c="out.alloc.ctx_id"),
    u64("state_flags", at=0, c="out.state.flags"),
    u32("hangs", at=8, c="out.state.hangs"),
    u32("reset_status", at=12, c="out.state.reset_status"),
)

SYNCOBJ_ARRAY = Struct("struct drm_syncobj_array", u64("handles"), u32("count_handles"), u32("pad"))


def kfd_ioctl(name: str, direction: str, number: int, struct: Struct) -> Ioctl:
    return Ioctl(f"AMDKFD_IOC_{name}", direction, "K", number, struct)


def drm_ioctl(name: str, direction: str, number: int, struct: Struct) -> Ioctl:
    return Ioctl(f"DRM_IOCTL_{name}", direction, "d", number, struct)


def amdgpu_ioctl(name: str, direction: str, number: int, struct: Struct) -> Ioctl:
    return drm_ioctl(f"AMDGPU_{name}", direction, DRM_COMMAND_BASE + number, struct)


IOC_SET_MEMORY_POLICY = kfd_ioctl("SET_MEMORY_POLICY", "w", 0x04, SET_MEMORY_POLICY)
IOC_DBG_REGISTER = kfd_ioctl("DBG_REGISTER_DEPRECATED", "w", 0x0D, DBG_REGISTER)
IOC_DBG_WAVE_CONTROL = kfd_ioctl("DBG_WAVE_CONTROL_DEPRECATED", "w", 0x10, DBG_WAVE_CONTROL)
IOC_SET_TRAP_HANDLER = kfd_ioctl("SET_TRAP_HANDLER", "w", 0x13, SET_TRAP_HANDLER)
IOC_GET_QUEUE_WAVE_STATE = kfd_ioctl("GET_QUEUE_WAVE_STATE", "rw", 0x1B, GET_QUEUE_WAVE_STATE)
IOC_GET_DMABUF_INFO = kfd_ioctl("GET_DMABUF_INFO", "rw", 0x1C, GET_DMABUF_INFO)
IOC_IMPORT_DMABUF = kfd_ioctl("IMPORT_DMABUF", "rw", 0x1D, IMPORT_DMABUF)
IOC_ALLOC_QUEUE_GWS = kfd_ioctl("ALLOC_QUEUE_GWS", "rw", 0x1E, ALLOC_QUEUE_GWS)
IOC_SMI_EVENTS = kfd_ioctl("SMI_EVENTS", "rw", 0x1F, SMI_EVENTS)
IOC_SET_XNACK_MODE = kfd_ioctl("SET_XNACK_MODE", "rw", 0x21, SET_XNACK_MODE)
IOC_EXPORT_DMABUF = kfd_ioctl("EXPORT_DMABUF", "rw", 0x24, EXPORT_DMABUF)
IOC_RUNTIME_ENABLE = kfd_ioctl("RUNTIME_ENABLE", "rw", 0x25, RUNTIME_ENABLE)
IOCTL_GET_CAP = drm_ioctl("GET_CAP", "rw", 0x0C, GET_CAP)
IOCTL_PRIME_HANDLE_TO_FD = drm_ioctl("PRIME_HANDLE_TO_FD", "rw", 0x2D, PRIME_HANDLE)
IOCTL_PRIME_FD_TO_HANDLE = drm_ioctl("PRIME_FD_TO_HANDLE", "rw", 0x2E, PRIME_HANDLE)
IOCTL_CTX = amdgpu_ioctl("CTX", "rw", 0x02, CTX)
IOCTL_GEM_USERPTR = amdgpu_ioctl("GEM_USERPTR", "rw", 0x11, GEM_USERPTR)
IOCTL_SYNCOBJ_RESET = drm_ioctl("SYNCOBJ_RESET", "rw", 0xC4, SYNCOBJ_ARRAY)
IOCTL_SYNCOBJ_SIGNAL = drm_ioctl("SYNCOBJ_SIGNAL", "rw", 0xC5, SYNCOBJ_ARRAY)

IOCTLS = index_by_key(globals())
