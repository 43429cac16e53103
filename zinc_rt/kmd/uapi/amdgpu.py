"""amdgpu on a render node: include/uapi/drm/amdgpu_drm.h, Linux 7.2. Memory and user queues only, without CS."""

from __future__ import annotations

from zinc_rt.kmd.uapi.structs import Ioctl, Struct, StructField, index_by_key, u16, u32, u64

AMDGPU_GEM_DOMAIN_GTT = 0x2
AMDGPU_GEM_DOMAIN_VRAM = 0x4
AMDGPU_GEM_DOMAIN_DOORBELL = 0x40  # 6.6

AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED = 1 << 0
AMDGPU_GEM_CREATE_NO_CPU_ACCESS = 1 << 1
AMDGPU_GEM_CREATE_VRAM_CLEARED = 1 << 3
AMDGPU_GEM_CREATE_COHERENT = 1 << 13  # 6.18, also UNCACHED
AMDGPU_GEM_CREATE_UNCACHED = 1 << 14

AMDGPU_GEM_OP_GET_GEM_CREATE_INFO = 0

AMDGPU_VA_OP_MAP = 1
AMDGPU_VA_OP_UNMAP = 2
AMDGPU_VM_PAGE_READABLE = 1 << 1
AMDGPU_VM_PAGE_WRITEABLE = 1 << 2
AMDGPU_VM_PAGE_EXECUTABLE = 1 << 3
AMDGPU_VM_MTYPE_DEFAULT = 0 << 5
AMDGPU_VM_MTYPE_UC = 4 << 5

AMDGPU_HW_IP_COMPUTE = 1

AMDGPU_INFO_HW_IP_INFO = 0x02
AMDGPU_INFO_FW_VERSION = 0x0E
AMDGPU_INFO_DEV_INFO = 0x16
AMDGPU_INFO_NUM_EVICTIONS = 0x18
AMDGPU_INFO_MEMORY = 0x19
AMDGPU_INFO_VRAM_LOST_COUNTER = 0x1F
AMDGPU_INFO_GPUVM_FAULT = 0x23
AMDGPU_INFO_UQ_FW_AREAS = 0x24

AMDGPU_INFO_FW_GFX_ME = 0x04
AMDGPU_INFO_FW_GFX_PFP = 0x05
AMDGPU_INFO_FW_GFX_MEC = 0x08
AMDGPU_INFO_FW_MES_KIQ = 0x19
AMDGPU_INFO_FW_MES = 0x1A

AMDGPU_USERQ_OP_CREATE = 1
AMDGPU_USERQ_OP_FREE = 2
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_NORMAL_LOW = 0
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_LOW = 1
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_NORMAL_HIGH = 2
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_HIGH = 3  # CAP_SYS_NICE or DRM master

GEM_CREATE = Struct(
    "union drm_amdgpu_gem_create",
    u64("bo_size", c="in.bo_size"),
    u64("alignment", c="in.alignment"),
    u64("domains", c="in.domains"),
    u64("domain_flags", c="in.domain_flags"),
    u32("handle", at=0, c="out.handle"),
)

GEM_MMAP = Struct(
    "union drm_amdgpu_gem_mmap",
    u32("handle", c="in.handle"),
    u64("addr_ptr", at=0, c="out.addr_ptr"),  # an offset for mmap of the render node, no pointer
)

GEM_CREATE_INFO = Struct(
    "struct drm_amdgpu_gem_create_in", u64("bo_size"), u64("alignment"), u64("domains"), u64("domain_flags")
)

GEM_OP = Struct(
    "struct drm_amdgpu_gem_op",
    u32("handle"),
    u32("op"),
    u64("value"),
    u32("num_entries"),  # 6.18, also the padding: the struct grew from 16 to 24 bytes
    u32("padding"),
)

GEM_VA = Struct(
    "struct drm_amdgpu_gem_va",
    u32("handle"),
    u32("_pad"),
    u32("operation"),
    u32("flags"),
    u64("va_address"),
    u64("offset_in_bo"),
    u64("map_size"),
    u64("vm_timeline_point"),  # 6.16: the struct grew from 40 to 64 bytes
    u32("vm_timeline_syncobj_out"),
    u32("num_syncobj_handles"),
    u64("input_fence_syncobj_handles"),
)

INFO = Struct(
    "struct drm_amdgpu_info",
    u64("return_pointer"),
    u32("return_size"),
    u32("query"),
    u32("hw_ip_type", c="query_hw_ip.type"),
    u32("hw_ip_instance", c="query_hw_ip.ip_instance"),
    u32("fw_type", at=16, c="query_fw.fw_type"),
    u32("fw_ip_instance", at=20, c="query_fw.ip_instance"),
    u32("fw_index", at=24, c="query_fw.index"),
    u32("fw_pad", at=28, c="query_fw._pad"),
)

INFO_FIRMWARE = Struct("struct drm_amdgpu_info_firmware", u32("ver"), u32("feature"))

INFO_HW_IP = Struct(
    "struct drm_amdgpu_info_hw_ip",
    u32("hw_ip_version_major"),
    u32("hw_ip_version_minor"),
    u64("capabilities_flags"),
    u32("ib_start_alignment"),
    u32("ib_size_alignment"),
    u32("available_rings"),
    u32("ip_discovery_version"),  # bits 23:16 major, 15:8 minor, 7:0 revision
    u32("userq_num_slots"),  # 6.17
)

INFO_DEVICE = Struct(
    "struct drm_amdgpu_info_device",
    u32("device_id"),
    u32("chip_rev"),
    u32("external_rev"),
    u32("pci_rev"),
    u32("family"),
    u32("num_shader_engines"),
    u32("num_shader_arrays_per_engine"),
    u32("gpu_counter_freq"),  # kHz
    u64("max_engine_clock"),  # kHz
    u64("max_memory_clock"),  # kHz
    u32("cu_active_number"),
    u32("cu_ao_mask"),
    u32("cu_bitmap", count=16),  # [4][4]
    u32("enabled_rb_pipes_mask"),
    u32("num_rb_pipes"),
    u32("num_hw_gfx_contexts"),
    u32("pcie_gen"),
    u64("ids_flags"),
    u64("virtual_address_offset"),
    u64("virtual_address_max"),
    u32("virtual_address_alignment"),
    u32("pte_fragment_size"),
    u32("gart_page_size"),
    u32("ce_ram_size"),
    u32("vram_type"),
    u32("vram_bit_width"),
    u32("vce_harvest_config"),
    u32("gc_double_offchip_lds_buf"),
    u64("prim_buf_gpu_addr"),
    u64("pos_buf_gpu_addr"),
    u64("cntl_sb_buf_gpu_addr"),
    u64("param_buf_gpu_addr"),
    u32("prim_buf_size"),
    u32("pos_buf_size"),
    u32("cntl_sb_buf_size"),
    u32("param_buf_size"),
    u32("wave_front_size"),
    u32("num_shader_visible_vgprs"),
    u32("num_cu_per_sh"),
    u32("num_tcc_blocks"),
    u32("gs_vgt_table_depth"),
    u32("gs_prim_buffer_depth"),
    u32("max_gs_waves_per_vgt"),
    u32("pcie_num_lanes"),
    u32("cu_ao_bitmap", count=16),  # [4][4]
    u64("high_va_offset"),
    u64("high_va_max"),
    u32("pa_sc_tile_steering_override"),
    u64("tcc_disabled_mask"),
    u64("min_engine_clock"),  # kHz
    u64("min_memory_clock"),  # kHz
    u32("tcp_cache_size"),
    u32("num_sqc_per_wgp"),
    u32("sqc_data_cache_size"),
    u32("sqc_inst_cache_size"),
    u32("gl1c_cache_size"),
    u32("gl2c_cache_size"),
    u64("mall_size"),
    u32("enabled_rb_pipes_mask_hi"),
    u32("shadow_size"),
    u32("shadow_alignment"),
    u32("csa_size"),
    u32("csa_alignment"),
    u32("userq_ip_mask"),  # 6.16: bit n, AMDGPU_HW_IP_n takes user queues
    u32("pad"),
)


def _heap_fields(name: str) -> list[StructField]:
    return [
        u64(f"{name}.{part}") for part in ("total_heap_size", "usable_heap_size", "heap_usage", "max_allocation")
    ]


INFO_MEMORY = Struct(
    "struct drm_amdgpu_memory_info",
    *_heap_fields("vram"),
    *_heap_fields("cpu_accessible_vram"),
    *_heap_fields("gtt"),
)

INFO_GPUVM_FAULT = Struct("struct drm_amdgpu_info_gpuvm_fault", u64("addr"), u32("status"), u32("vmhub"))

INFO_UQ_METADATA = Struct(
    "struct drm_amdgpu_info_uq_metadata",
    u32("shadow_size", c="gfx.shadow_size"),
    u32("shadow_alignment", c="gfx.shadow_alignment"),
    u32("csa_size", c="gfx.csa_size"),
    u32("csa_alignment", c="gfx.csa_alignment"),
    u32("eop_size", at=0, c="compute.eop_size"),
    u32("eop_alignment", at=4, c="compute.eop_alignment"),
)

USERQ_MQD_COMPUTE = Struct("struct drm_amdgpu_userq_mqd_compute_gfx11", u64("eop_va"))  # gfx12 too

USERQ_MQD_COMPUTE_CWSR = Struct(  # not merged: proposed/userq-cwsr of facts.yaml
    "proposed drm_amdgpu_userq_mqd_compute_gfx11",
    u64("eop_va"),
    u64("ctx_save_area_va"),
    u32("ctx_save_area_size"),
    u32("ctl_stack_size"),
)

USERQ = Struct(
    "union drm_amdgpu_userq",
    u32("op", c="in.op"),
    u32("queue_id", c="in.queue_id"),
    u32("ip_type", c="in.ip_type"),
    u32("doorbell_handle", c="in.doorbell_handle"),
    u32("doorbell_offset", c="in.doorbell_offset"),  # in 8-byte units
    u32("flags", c="in.flags"),
    u64("queue_va", c="in.queue_va"),
    u64("queue_size", c="in.queue_size"),
    u64("rptr_va", c="in.rptr_va"),
    u64("wptr_va", c="in.wptr_va"),
    u64("mqd", c="in.mqd"),
    u64("mqd_size", c="in.mqd_size"),
    u32("new_queue_id", at=0, c="out.queue_id"),
)

USERQ_SIGNAL = Struct(
    "struct drm_amdgpu_userq_signal",
    u32("queue_id"),
    u32("pad"),
    u64("syncobj_handles"),
    u16("num_syncobj_handles"),  # u64 up to 7.0: the same bytes, as long as the padding is zero
    u16("pad0"),
    u32("pad1"),
    u64("bo_read_handles"),
    u64("bo_write_handles"),
    u32("num_bo_read_handles"),
    u32("num_bo_write_handles"),
)

USERQ_FENCE_INFO = Struct("struct drm_amdgpu_userq_fence_info", u64("va"), u64("value"))

USERQ_WAIT = Struct(
    "struct drm_amdgpu_userq_wait",
    u32("waitq_id"),
    u32("pad"),
    u64("syncobj_handles"),
    u64("syncobj_timeline_handles"),
    u64("syncobj_timeline_points"),
    u64("bo_read_handles"),
    u64("bo_write_handles"),
    u16("num_syncobj_timeline_handles"),
    u16("num_fences"),  # 0: only asks how many
    u16("num_syncobj_handles"),  # u32 up to 7.0
    u16("pad0"),
    u32("num_bo_read_handles"),
    u32("num_bo_write_handles"),
    u64("out_fences"),
)

DRM_COMMAND_BASE = 0x40


def _make_ioctl(name: str, direction: str, number: int, struct: Struct) -> Ioctl:
    return Ioctl(f"DRM_IOCTL_AMDGPU_{name}", direction, "d", DRM_COMMAND_BASE + number, struct)


IOCTL_GEM_CREATE = _make_ioctl("GEM_CREATE", "rw", 0x00, GEM_CREATE)
IOCTL_GEM_MMAP = _make_ioctl("GEM_MMAP", "rw", 0x01, GEM_MMAP)
IOCTL_INFO = _make_ioctl("INFO", "w", 0x05, INFO)
IOCTL_GEM_VA = _make_ioctl("GEM_VA", "w", 0x08, GEM_VA)
IOCTL_GEM_OP = _make_ioctl("GEM_OP", "rw", 0x10, GEM_OP)
IOCTL_USERQ = _make_ioctl("USERQ", "rw", 0x16, USERQ)
IOCTL_USERQ_SIGNAL = _make_ioctl("USERQ_SIGNAL", "rw", 0x17, USERQ_SIGNAL)
IOCTL_USERQ_WAIT = _make_ioctl("USERQ_WAIT", "rw", 0x18, USERQ_WAIT)

IOCTLS = index_by_key(globals())
