"""amdgpu's layouts on a render node: include/uapi/drm/amdgpu_drm.h of Linux 7.2, on x86-64."""

from __future__ import annotations

from zinc_rt.sim.tables.structs import Array, IoctlRow, by_key, parse_struct

AMDGPU_GEM_DOMAIN_CPU = 1
AMDGPU_GEM_DOMAIN_GTT = 2
AMDGPU_GEM_DOMAIN_VRAM = 4
AMDGPU_GEM_DOMAIN_GDS = 8
AMDGPU_GEM_DOMAIN_GWS = 0x10
AMDGPU_GEM_DOMAIN_OA = 0x20
AMDGPU_GEM_DOMAIN_DOORBELL = 0x40
AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED = 1
AMDGPU_GEM_CREATE_NO_CPU_ACCESS = 2
AMDGPU_GEM_CREATE_CPU_GTT_USWC = 4
AMDGPU_GEM_CREATE_VRAM_CLEARED = 8
AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS = 0x20
AMDGPU_GEM_CREATE_VM_ALWAYS_VALID = 0x40
AMDGPU_GEM_CREATE_EXPLICIT_SYNC = 0x80
AMDGPU_GEM_CREATE_CP_MQD_GFX9 = 0x100
AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE = 0x200
AMDGPU_GEM_CREATE_ENCRYPTED = 0x400
AMDGPU_GEM_CREATE_PREEMPTIBLE = 0x800
AMDGPU_GEM_CREATE_DISCARDABLE = 0x1000
AMDGPU_GEM_CREATE_COHERENT = 0x2000
AMDGPU_GEM_CREATE_UNCACHED = 0x4000
AMDGPU_GEM_CREATE_EXT_COHERENT = 0x8000
AMDGPU_GEM_CREATE_GFX12_DCC = 0x10000
AMDGPU_GEM_OP_GET_GEM_CREATE_INFO = 0
AMDGPU_GEM_OP_SET_PLACEMENT = 1
AMDGPU_VA_OP_MAP = 1
AMDGPU_VA_OP_UNMAP = 2
AMDGPU_VA_OP_CLEAR = 3
AMDGPU_VA_OP_REPLACE = 4
AMDGPU_VM_DELAY_UPDATE = 1
AMDGPU_VM_PAGE_READABLE = 2
AMDGPU_VM_PAGE_WRITEABLE = 4
AMDGPU_VM_PAGE_EXECUTABLE = 8
AMDGPU_VM_PAGE_PRT = 0x10
AMDGPU_VM_MTYPE_DEFAULT = 0
AMDGPU_VM_MTYPE_NC = 0x20
AMDGPU_VM_MTYPE_WC = 0x40
AMDGPU_VM_MTYPE_CC = 0x60
AMDGPU_VM_MTYPE_UC = 0x80
AMDGPU_VM_MTYPE_RW = 0xA0
AMDGPU_VM_PAGE_NOALLOC = 0x200
AMDGPU_HW_IP_GFX = 0
AMDGPU_HW_IP_COMPUTE = 1
AMDGPU_HW_IP_DMA = 2
AMDGPU_INFO_ACCEL_WORKING = 0
AMDGPU_INFO_HW_IP_INFO = 2
AMDGPU_INFO_HW_IP_COUNT = 3
AMDGPU_INFO_TIMESTAMP = 5
AMDGPU_INFO_FW_VERSION = 0xE
AMDGPU_INFO_VRAM_USAGE = 0x10
AMDGPU_INFO_GTT_USAGE = 0x11
AMDGPU_INFO_VRAM_GTT = 0x14
AMDGPU_INFO_READ_MMR_REG = 0x15
AMDGPU_INFO_DEV_INFO = 0x16
AMDGPU_INFO_VIS_VRAM_USAGE = 0x17
AMDGPU_INFO_NUM_EVICTIONS = 0x18
AMDGPU_INFO_MEMORY = 0x19
AMDGPU_INFO_VRAM_LOST_COUNTER = 0x1F
AMDGPU_INFO_GPUVM_FAULT = 0x23
AMDGPU_INFO_UQ_FW_AREAS = 0x24
AMDGPU_INFO_FW_GFX_ME = 4
AMDGPU_INFO_FW_GFX_PFP = 5
AMDGPU_INFO_FW_GFX_MEC = 8
AMDGPU_INFO_FW_SDMA = 0xB
AMDGPU_INFO_FW_MES_KIQ = 0x19
AMDGPU_INFO_FW_MES = 0x1A
AMDGPU_USERQ_OP_CREATE = 1
AMDGPU_USERQ_OP_FREE = 2
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_HIGH = 3
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_SECURE = 4
AMDGPU_CTX_OP_ALLOC_CTX = 1
AMDGPU_CTX_OP_FREE_CTX = 2
AMDGPU_CTX_OP_QUERY_STATE = 3
AMDGPU_CTX_OP_QUERY_STATE2 = 4
AMDGPU_CTX_OP_GET_STABLE_PSTATE = 5
AMDGPU_CTX_OP_SET_STABLE_PSTATE = 6
AMDGPU_CTX_STABLE_PSTATE_FLAGS_MASK = 0xF
AMDGPU_CTX_STABLE_PSTATE_PEAK = 4
AMDGPU_CTX_UNKNOWN_RESET = 3
AMDGPU_CTX_QUERY2_FLAGS_RESET = 1
AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST = 2
AMDGPU_CTX_QUERY2_FLAGS_GUILTY = 4
AMDGPU_CTX_QUERY2_FLAGS_RESET_IN_PROGRESS = 0x20
AMDGPU_BO_LIST_OP_CREATE = 0
AMDGPU_BO_LIST_OP_DESTROY = 1
AMDGPU_BO_LIST_OP_UPDATE = 2
AMDGPU_CHUNK_ID_IB = 1
AMDGPU_CHUNK_ID_FENCE = 2
AMDGPU_CHUNK_ID_DEPENDENCIES = 3
AMDGPU_CHUNK_ID_SYNCOBJ_IN = 4
AMDGPU_CHUNK_ID_SYNCOBJ_OUT = 5
AMDGPU_CHUNK_ID_BO_HANDLES = 6
AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES = 7
AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT = 8
AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL = 9
AMDGPU_CHUNK_ID_CP_GFX_SHADOW = 0xA
AMDGPU_IB_FLAG_EMIT_MEM_SYNC = 0x40
AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ = 0
AMDGPU_GEM_METADATA_OP_SET_METADATA = 1
AMDGPU_GEM_METADATA_OP_GET_METADATA = 2
AMDGPU_VM_OP_RESERVE_VMID = 1
AMDGPU_VM_OP_UNRESERVE_VMID = 2

GEM_CREATE = parse_struct(
    "union drm_amdgpu_gem_create",
    32,
    "in.bo_size u64 0; in.alignment u64 8; in.domains u64 16; in.domain_flags u64 24; out.handle u32 0",
)
GEM_CREATE_INFO = parse_struct(
    "drm_amdgpu_gem_create_in", 32, "bo_size u64 0; alignment u64 8; domains u64 16; domain_flags u64 24"
)
GEM_MMAP = parse_struct("union drm_amdgpu_gem_mmap", 8, "in.handle u32 0; out.addr_ptr u64 0")
GEM_USERPTR = parse_struct("drm_amdgpu_gem_userptr", 24, "addr u64 0; size u64 8; flags u32 16; handle u32 20")
GEM_VA = parse_struct(
    "drm_amdgpu_gem_va",
    64,
    """handle u32 0; _pad u32 4; operation u32 8; flags u32 12; va_address u64 16; offset_in_bo u64 24;
    map_size u64 32; vm_timeline_point u64 40; vm_timeline_syncobj_out u32 48; num_syncobj_handles u32 52;
    input_fence_syncobj_handles u64 56""",
    Array("input_fence_syncobj_handles", "num_syncobj_handles", 4, "in"),
)
GEM_OP = parse_struct(
    "drm_amdgpu_gem_op",
    24,
    "handle u32 0; op u32 4; value u64 8; num_entries u32 16; padding u32 20",
    Array("value", "", 32, "out", only_if=("op", AMDGPU_GEM_OP_GET_GEM_CREATE_INFO)),
)
CTX = parse_struct(
    "union drm_amdgpu_ctx",
    16,
    """in.op u32 0; in.flags u32 4; in.ctx_id u32 8; in.priority s32 12; new_ctx_id=out.alloc.ctx_id u32 0;
    state_flags=out.state.flags u64 0; out.state.hangs u32 8; out.state.reset_status u32 12""",
)
CS = parse_struct(
    "union drm_amdgpu_cs",
    24,
    """in.ctx_id u32 0; in.bo_list_handle u32 4; in.num_chunks u32 8; in.flags u32 12; in.chunks u64 16;
    out.handle u64 0""",
)
CS_CHUNK = parse_struct("drm_amdgpu_cs_chunk", 16, "chunk_id u32 0; length_dw u32 4; chunk_data u64 8")
CS_CHUNK_IB = parse_struct(
    "drm_amdgpu_cs_chunk_ib",
    32,
    """_pad u32 0; flags u32 4; va_start u64 8; ib_bytes u32 16; ip_type u32 20; ip_instance u32 24;
    ring u32 28""",
)
CS_CHUNK_FENCE = parse_struct("drm_amdgpu_cs_chunk_fence", 8, "handle u32 0; offset u32 4")
CS_CHUNK_DEP = parse_struct(
    "drm_amdgpu_cs_chunk_dep", 24, "ip_type u32 0; ip_instance u32 4; ring u32 8; ctx_id u32 12; handle u64 16"
)
CS_CHUNK_SEM = parse_struct("drm_amdgpu_cs_chunk_sem", 4, "handle u32 0")
CS_CHUNK_SYNCOBJ = parse_struct("drm_amdgpu_cs_chunk_syncobj", 16, "handle u32 0; flags u32 4; point u64 8")
BO_LIST = parse_struct(
    "union drm_amdgpu_bo_list",
    24,
    """in.operation u32 0; in.list_handle u32 4; in.bo_number u32 8; in.bo_info_size u32 12; in.bo_info_ptr u64 16;
    new_list_handle=out.list_handle u32 0""",
)
BO_LIST_IN = parse_struct(
    "drm_amdgpu_bo_list_in",
    24,
    "operation u32 0; list_handle u32 4; bo_number u32 8; bo_info_size u32 12; bo_info_ptr u64 16",
)
BO_LIST_ENTRY = parse_struct("drm_amdgpu_bo_list_entry", 8, "bo_handle u32 0; bo_priority u32 4")
WAIT_CS = parse_struct(
    "union drm_amdgpu_wait_cs",
    32,
    """in.handle u64 0; in.timeout u64 8; in.ip_type u32 16; in.ip_instance u32 20; in.ring u32 24;
    in.ctx_id u32 28; out.status u64 0""",
)
FENCE = parse_struct(
    "drm_amdgpu_fence", 24, "ctx_id u32 0; ip_type u32 4; ip_instance u32 8; ring u32 12; seq_no u64 16"
)
WAIT_FENCES = parse_struct(
    "union drm_amdgpu_wait_fences",
    24,
    """in.fences u64 0; in.fence_count u32 8; in.wait_all u32 12; in.timeout_ns u64 16; out.status u32 0;
    out.first_signaled u32 4""",
    Array("fences", "fence_count", 24, "in"),
)
FENCE_TO_HANDLE = parse_struct(
    "union drm_amdgpu_fence_to_handle",
    32,
    """in.fence.ctx_id u32 0; in.fence.ip_type u32 4; in.fence.ip_instance u32 8; in.fence.ring u32 12;
    in.fence.seq_no u64 16; in.what u32 24; in.pad u32 28; out.handle u32 0""",
)
GEM_METADATA = parse_struct(
    "drm_amdgpu_gem_metadata",
    288,
    """handle u32 0; op u32 4; data.flags u64 8; data.tiling_info u64 16; data.data_size_bytes u32 24;
    data.data u32*64 28""",
)
GEM_WAIT_IDLE = parse_struct(
    "union drm_amdgpu_gem_wait_idle",
    16,
    "in.handle u32 0; in.flags u32 4; in.timeout u64 8; out.status u32 0; out.domain u32 4",
)
VM = parse_struct("union drm_amdgpu_vm", 8, "in.op u32 0; in.flags u32 4; out_flags=out.flags u64 0")
INFO = parse_struct(
    "drm_amdgpu_info",
    32,
    """return_pointer u64 0; return_size u32 8; query u32 12; hw_ip_type=query_hw_ip.type u32 16;
    hw_ip_instance=query_hw_ip.ip_instance u32 20; query_fw.fw_type u32 16;
    fw_ip_instance=query_fw.ip_instance u32 20; fw_index=query_fw.index u32 24; fw_pad=query_fw._pad u32 28;
    dword_offset=read_mmr_reg.dword_offset u32 16; count=read_mmr_reg.count u32 20;
    instance=read_mmr_reg.instance u32 24; register_flags=read_mmr_reg.flags u32 28""",
    Array("return_pointer", "return_size", 1, "both"),
)
INFO_FIRMWARE = parse_struct("drm_amdgpu_info_firmware", 8, "ver u32 0; feature u32 4")
INFO_HW_IP = parse_struct(
    "drm_amdgpu_info_hw_ip",
    40,
    """hw_ip_version_major u32 0; hw_ip_version_minor u32 4; capabilities_flags u64 8;
    ib_start_alignment u32 16; ib_size_alignment u32 20; available_rings u32 24;
    ip_discovery_version u32 28; userq_num_slots u32 32""",
)
INFO_DEVICE = parse_struct(
    "drm_amdgpu_info_device",
    448,
    """device_id u32 0; chip_rev u32 4; external_rev u32 8; pci_rev u32 12; family u32 16;
    num_shader_engines u32 20; num_shader_arrays_per_engine u32 24; gpu_counter_freq u32 28;
    max_engine_clock u64 32; max_memory_clock u64 40; cu_active_number u32 48; cu_ao_mask u32 52;
    cu_bitmap u32*16 56; enabled_rb_pipes_mask u32 120; num_rb_pipes u32 124; num_hw_gfx_contexts u32 128;
    pcie_gen u32 132; ids_flags u64 136; virtual_address_offset u64 144; virtual_address_max u64 152;
    virtual_address_alignment u32 160; pte_fragment_size u32 164; gart_page_size u32 168;
    ce_ram_size u32 172; vram_type u32 176; vram_bit_width u32 180; vce_harvest_config u32 184;
    gc_double_offchip_lds_buf u32 188; prim_buf_gpu_addr u64 192; pos_buf_gpu_addr u64 200;
    cntl_sb_buf_gpu_addr u64 208; param_buf_gpu_addr u64 216; prim_buf_size u32 224; pos_buf_size u32 228;
    cntl_sb_buf_size u32 232; param_buf_size u32 236; wave_front_size u32 240;
    num_shader_visible_vgprs u32 244; num_cu_per_sh u32 248; num_tcc_blocks u32 252;
    gs_vgt_table_depth u32 256; gs_prim_buffer_depth u32 260; max_gs_waves_per_vgt u32 264;
    pcie_num_lanes u32 268; cu_ao_bitmap u32*16 272; high_va_offset u64 336; high_va_max u64 344;
    pa_sc_tile_steering_override u32 352; tcc_disabled_mask u64 360; min_engine_clock u64 368;
    min_memory_clock u64 376; tcp_cache_size u32 384; num_sqc_per_wgp u32 388; sqc_data_cache_size u32 392;
    sqc_inst_cache_size u32 396; gl1c_cache_size u32 400; gl2c_cache_size u32 404; mall_size u64 408;
    enabled_rb_pipes_mask_hi u32 416; shadow_size u32 420; shadow_alignment u32 424; csa_size u32 428;
    csa_alignment u32 432; userq_ip_mask u32 436; pad u32 440""",
)
INFO_MEMORY = parse_struct(
    "drm_amdgpu_memory_info",
    96,
    """=vram.total_heap_size u64 0; =vram.usable_heap_size u64 8; =vram.heap_usage u64 16;
    =vram.max_allocation u64 24; =cpu_accessible_vram.total_heap_size u64 32;
    =cpu_accessible_vram.usable_heap_size u64 40; =cpu_accessible_vram.heap_usage u64 48;
    =cpu_accessible_vram.max_allocation u64 56; =gtt.total_heap_size u64 64; =gtt.usable_heap_size u64 72;
    =gtt.heap_usage u64 80; =gtt.max_allocation u64 88""",
)
INFO_GPUVM_FAULT = parse_struct("drm_amdgpu_info_gpuvm_fault", 16, "addr u64 0; status u32 8; vmhub u32 12")
INFO_UQ_METADATA = parse_struct(
    "drm_amdgpu_info_uq_metadata",
    16,
    """gfx.shadow_size u32 0; gfx.shadow_alignment u32 4; gfx.csa_size u32 8; gfx.csa_alignment u32 12;
    compute.eop_size u32 0; compute.eop_alignment u32 4""",
)
USERQ_MQD_COMPUTE = parse_struct("drm_amdgpu_userq_mqd_compute_gfx11", 8, "eop_va u64 0")
USERQ_MQD_COMPUTE_CWSR = parse_struct(
    "proposed drm_amdgpu_userq_mqd_compute_gfx11",
    24,
    "eop_va u64 0; ctx_save_area_va u64 8; ctx_save_area_size u32 16; ctl_stack_size u32 20",
)
USERQ = parse_struct(
    "union drm_amdgpu_userq",
    72,
    """in.op u32 0; in.queue_id u32 4; in.ip_type u32 8; in.doorbell_handle u32 12; in.doorbell_offset u32 16;
    in.flags u32 20; in.queue_va u64 24; in.queue_size u64 32; in.rptr_va u64 40; in.wptr_va u64 48;
    in.mqd u64 56; in.mqd_size u64 64; new_queue_id=out.queue_id u32 0""",
    Array("mqd", "mqd_size", 1, "in"),
)
USERQ_SIGNAL = parse_struct(
    "drm_amdgpu_userq_signal",
    48,
    """queue_id u32 0; pad u32 4; syncobj_handles u64 8; num_syncobj_handles u16 16; pad0 u16 18; pad1 u32 20;
    bo_read_handles u64 24; bo_write_handles u64 32; num_bo_read_handles u32 40; num_bo_write_handles u32 44""",
    Array("syncobj_handles", "num_syncobj_handles", 4, "in"),
    Array("bo_read_handles", "num_bo_read_handles", 4, "in"),
    Array("bo_write_handles", "num_bo_write_handles", 4, "in"),
)
USERQ_FENCE_INFO = parse_struct("drm_amdgpu_userq_fence_info", 16, "va u64 0; value u64 8")
USERQ_WAIT = parse_struct(
    "drm_amdgpu_userq_wait",
    72,
    """waitq_id u32 0; pad u32 4; syncobj_handles u64 8; syncobj_timeline_handles u64 16;
    syncobj_timeline_points u64 24; bo_read_handles u64 32; bo_write_handles u64 40;
    num_syncobj_timeline_handles u16 48; num_fences u16 50; num_syncobj_handles u16 52; pad0 u16 54;
    num_bo_read_handles u32 56; num_bo_write_handles u32 60; out_fences u64 64""",
    Array("syncobj_handles", "num_syncobj_handles", 4, "in"),
    Array("syncobj_timeline_handles", "num_syncobj_timeline_handles", 4, "in"),
    Array("syncobj_timeline_points", "num_syncobj_timeline_handles", 8, "in"),
    Array("bo_read_handles", "num_bo_read_handles", 4, "in"),
    Array("bo_write_handles", "num_bo_write_handles", 4, "in"),
    Array("out_fences", "num_fences", 16, "out"),
)

IOCTL_GEM_CREATE = IoctlRow("DRM_IOCTL_AMDGPU_GEM_CREATE", "d", 0x40, "rw", GEM_CREATE)
IOCTL_GEM_MMAP = IoctlRow("DRM_IOCTL_AMDGPU_GEM_MMAP", "d", 0x41, "rw", GEM_MMAP)
IOCTL_CTX = IoctlRow("DRM_IOCTL_AMDGPU_CTX", "d", 0x42, "rw", CTX)
IOCTL_BO_LIST = IoctlRow("DRM_IOCTL_AMDGPU_BO_LIST", "d", 0x43, "rw", BO_LIST)
IOCTL_CS = IoctlRow("DRM_IOCTL_AMDGPU_CS", "d", 0x44, "rw", CS)
IOCTL_INFO = IoctlRow("DRM_IOCTL_AMDGPU_INFO", "d", 0x45, "w", INFO)
IOCTL_GEM_METADATA = IoctlRow("DRM_IOCTL_AMDGPU_GEM_METADATA", "d", 0x46, "rw", GEM_METADATA)
IOCTL_GEM_WAIT_IDLE = IoctlRow("DRM_IOCTL_AMDGPU_GEM_WAIT_IDLE", "d", 0x47, "rw", GEM_WAIT_IDLE)
IOCTL_GEM_VA = IoctlRow("DRM_IOCTL_AMDGPU_GEM_VA", "d", 0x48, "w", GEM_VA)
IOCTL_WAIT_CS = IoctlRow("DRM_IOCTL_AMDGPU_WAIT_CS", "d", 0x49, "rw", WAIT_CS)
IOCTL_GEM_OP = IoctlRow("DRM_IOCTL_AMDGPU_GEM_OP", "d", 0x50, "rw", GEM_OP)
IOCTL_GEM_USERPTR = IoctlRow("DRM_IOCTL_AMDGPU_GEM_USERPTR", "d", 0x51, "rw", GEM_USERPTR)
IOCTL_WAIT_FENCES = IoctlRow("DRM_IOCTL_AMDGPU_WAIT_FENCES", "d", 0x52, "rw", WAIT_FENCES)
IOCTL_VM = IoctlRow("DRM_IOCTL_AMDGPU_VM", "d", 0x53, "rw", VM)
IOCTL_FENCE_TO_HANDLE = IoctlRow("DRM_IOCTL_AMDGPU_FENCE_TO_HANDLE", "d", 0x54, "rw", FENCE_TO_HANDLE)
IOCTL_USERQ = IoctlRow("DRM_IOCTL_AMDGPU_USERQ", "d", 0x56, "rw", USERQ)
IOCTL_USERQ_SIGNAL = IoctlRow("DRM_IOCTL_AMDGPU_USERQ_SIGNAL", "d", 0x57, "rw", USERQ_SIGNAL)
IOCTL_USERQ_WAIT = IoctlRow("DRM_IOCTL_AMDGPU_USERQ_WAIT", "d", 0x58, "rw", USERQ_WAIT)

IOCTLS = by_key(*(item for item in list(globals().values()) if isinstance(item, IoctlRow)))
