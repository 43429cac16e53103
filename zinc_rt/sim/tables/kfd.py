"""The layouts of /dev/kfd: include/uapi/linux/kfd_ioctl.h of Linux 7.2 (interface 1.23), on x86-64."""

from __future__ import annotations

from zinc_rt.sim.tables.structs import Array, IoctlRow, by_key, parse_struct

KFD_IOC_QUEUE_TYPE_COMPUTE = 0
KFD_IOC_QUEUE_TYPE_SDMA = 1
KFD_IOC_QUEUE_TYPE_COMPUTE_AQL = 2
KFD_IOC_QUEUE_TYPE_SDMA_XGMI = 3
KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID = 4
KFD_MAX_QUEUE_PERCENTAGE = 100
KFD_MAX_QUEUE_PRIORITY = 15
KFD_MIN_QUEUE_RING_SIZE = 1024
KFD_IOC_CACHE_POLICY_COHERENT = 0
KFD_IOC_CACHE_POLICY_NONCOHERENT = 1
KFD_IOC_ALLOC_MEM_FLAGS_VRAM = 1
KFD_IOC_ALLOC_MEM_FLAGS_GTT = 2
KFD_IOC_ALLOC_MEM_FLAGS_USERPTR = 4
KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL = 8
KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP = 0x10
KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE = 0x80000000
KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE = 0x40000000
KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC = 0x20000000
KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM = 0x8000000
KFD_IOC_ALLOC_MEM_FLAGS_COHERENT = 0x4000000
KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED = 0x2000000
KFD_IOC_ALLOC_MEM_FLAGS_EXT_COHERENT = 0x1000000
KFD_IOC_EVENT_SIGNAL = 0
KFD_IOC_EVENT_HW_EXCEPTION = 3
KFD_IOC_EVENT_DEBUG_EVENT = 5
KFD_IOC_EVENT_MEMORY = 8
KFD_IOC_WAIT_RESULT_COMPLETE = 0
KFD_IOC_WAIT_RESULT_TIMEOUT = 1
KFD_IOC_WAIT_RESULT_FAIL = 2
KFD_SIGNAL_EVENT_LIMIT = 4096
KFD_HW_EXCEPTION_WHOLE_GPU_RESET = 0
KFD_HW_EXCEPTION_PER_ENGINE_RESET = 1
KFD_HW_EXCEPTION_GPU_HANG = 0
KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK = 1

GET_VERSION = parse_struct("kfd_ioctl_get_version_args", 8, "major_version u32 0; minor_version u32 4")
CREATE_QUEUE = parse_struct(
    "kfd_ioctl_create_queue_args",
    96,
    """ring_base_address u64 0; write_pointer_address u64 8; read_pointer_address u64 16;
    doorbell_offset u64 24; ring_size u32 32; gpu_id u32 36; queue_type u32 40; queue_percentage u32 44;
    queue_priority u32 48; queue_id u32 52; eop_buffer_address u64 56; eop_buffer_size u64 64;
    ctx_save_restore_address u64 72; ctx_save_restore_size u32 80; ctl_stack_size u32 84;
    sdma_engine_id u32 88; metadata_ring_size u32 92""",
)
DESTROY_QUEUE = parse_struct("kfd_ioctl_destroy_queue_args", 8, "queue_id u32 0; pad u32 4")
UPDATE_QUEUE = parse_struct(
    "kfd_ioctl_update_queue_args",
    24,
    "ring_base_address u64 0; queue_id u32 8; ring_size u32 12; queue_percentage u32 16; queue_priority u32 20",
)
SET_CU_MASK = parse_struct(
    "kfd_ioctl_set_cu_mask_args",
    16,
    "queue_id u32 0; num_cu_mask u32 4; cu_mask_ptr u64 8",
    Array("cu_mask_ptr", "num_cu_mask", 4, "in", per=32),
)
GET_QUEUE_WAVE_STATE = parse_struct(
    "kfd_ioctl_get_queue_wave_state_args",
    24,
    "ctl_stack_address u64 0; ctl_stack_used_size u32 8; save_area_used_size u32 12; queue_id u32 16; pad u32 20",
)
GET_AVAILABLE_MEMORY = parse_struct(
    "kfd_ioctl_get_available_memory_args", 16, "available u64 0; gpu_id u32 8; pad u32 12"
)
SET_MEMORY_POLICY = parse_struct(
    "kfd_ioctl_set_memory_policy_args",
    32,
    """alternate_aperture_base u64 0; alternate_aperture_size u64 8; gpu_id u32 16; default_policy u32 20;
    alternate_policy u32 24; misc_process_flag u32 28""",
)
GET_CLOCK_COUNTERS = parse_struct(
    "kfd_ioctl_get_clock_counters_args",
    40,
    """gpu_clock_counter u64 0; cpu_clock_counter u64 8; system_clock_counter u64 16; system_clock_freq u64 24;
    gpu_id u32 32; pad u32 36""",
)
PROCESS_DEVICE_APERTURES = parse_struct(
    "kfd_process_device_apertures",
    56,
    """lds_base u64 0; lds_limit u64 8; scratch_base u64 16; scratch_limit u64 24; gpuvm_base u64 32;
    gpuvm_limit u64 40; gpu_id u32 48; pad u32 52""",
)
GET_PROCESS_APERTURES = parse_struct(
    "kfd_ioctl_get_process_apertures_args",
    400,
    "num_of_nodes u32 392; pad u32 396",  # before them 7 of the structs above
)
GET_PROCESS_APERTURES_NEW = parse_struct(
    "kfd_ioctl_get_process_apertures_new_args",
    16,
    "kfd_process_device_apertures_ptr u64 0; num_of_nodes u32 8; pad u32 12",
    Array("kfd_process_device_apertures_ptr", "num_of_nodes", 56, "out"),
)
CREATE_EVENT = parse_struct(
    "kfd_ioctl_create_event_args",
    32,
    """event_page_offset u64 0; event_trigger_data u32 8; event_type u32 12; auto_reset u32 16; node_id u32 20;
    event_id u32 24; event_slot_index u32 28""",
)
DESTROY_EVENT = parse_struct("kfd_ioctl_destroy_event_args", 8, "event_id u32 0; pad u32 4")
SET_EVENT = parse_struct("kfd_ioctl_set_event_args", 8, "event_id u32 0; pad u32 4")
RESET_EVENT = parse_struct("kfd_ioctl_reset_event_args", 8, "event_id u32 0; pad u32 4")
EVENT_DATA = parse_struct(
    "kfd_event_data",
    48,
    """not_present=memory_exception_data.failure.NotPresent u32 0;
    read_only=memory_exception_data.failure.ReadOnly u32 4;
    no_execute=memory_exception_data.failure.NoExecute u32 8;
    memory_exception_data.failure.imprecise u32 12; memory_exception_data.va u64 16;
    memory_gpu_id=memory_exception_data.gpu_id u32 24;
    memory_error_type=memory_exception_data.ErrorType u32 28; hw_exception_data.reset_type u32 0;
    hw_exception_data.reset_cause u32 4; hw_exception_data.memory_lost u32 8;
    reset_gpu_id=hw_exception_data.gpu_id u32 12; signal_event_data.last_event_age u64 0;
    kfd_event_data_ext u64 32; event_id u32 40; pad u32 44""",
)
WAIT_EVENTS = parse_struct(
    "kfd_ioctl_wait_events_args",
    24,
    "events_ptr u64 0; num_events u32 8; wait_for_all u32 12; timeout u32 16; wait_result u32 20",
    Array("events_ptr", "num_events", 48, "both"),
)
SET_SCRATCH_BACKING_VA = parse_struct(
    "kfd_ioctl_set_scratch_backing_va_args", 16, "va_addr u64 0; gpu_id u32 8; pad u32 12"
)
GET_TILE_CONFIG = parse_struct(
    "kfd_ioctl_get_tile_config_args",
    40,
    """tile_config_ptr u64 0; macro_tile_config_ptr u64 8; num_tile_configs u32 16;
    num_macro_tile_configs u32 20; gpu_id u32 24; gb_addr_config u32 28; num_banks u32 32; num_ranks u32 36""",
    Array("tile_config_ptr", "num_tile_configs", 4, "out"),
    Array("macro_tile_config_ptr", "num_macro_tile_configs", 4, "out"),
)
SET_TRAP_HANDLER = parse_struct(
    "kfd_ioctl_set_trap_handler_args", 24, "tba_addr u64 0; tma_addr u64 8; gpu_id u32 16; pad u32 20"
)
ACQUIRE_VM = parse_struct("kfd_ioctl_acquire_vm_args", 8, "drm_fd u32 0; gpu_id u32 4")
ALLOC_MEMORY_OF_GPU = parse_struct(
    "kfd_ioctl_alloc_memory_of_gpu_args",
    40,
    "va_addr u64 0; size u64 8; handle u64 16; mmap_offset u64 24; gpu_id u32 32; flags u32 36",
)
FREE_MEMORY_OF_GPU = parse_struct("kfd_ioctl_free_memory_of_gpu_args", 8, "handle u64 0")
MAP_MEMORY_TO_GPU = parse_struct(
    "kfd_ioctl_map_memory_to_gpu_args",
    24,
    "handle u64 0; device_ids_array_ptr u64 8; n_devices u32 16; n_success u32 20",
    Array("device_ids_array_ptr", "n_devices", 4, "in"),
)
UNMAP_MEMORY_FROM_GPU = parse_struct(
    "kfd_ioctl_unmap_memory_from_gpu_args",
    24,
    "handle u64 0; device_ids_array_ptr u64 8; n_devices u32 16; n_success u32 20",
    Array("device_ids_array_ptr", "n_devices", 4, "in"),
)
ALLOC_QUEUE_GWS = parse_struct(
    "kfd_ioctl_alloc_queue_gws_args", 16, "queue_id u32 0; num_gws u32 4; first_gws u32 8; pad u32 12"
)
GET_DMABUF_INFO = parse_struct(
    "kfd_ioctl_get_dmabuf_info_args",
    32,
    "size u64 0; metadata_ptr u64 8; metadata_size u32 16; gpu_id u32 20; flags u32 24; dmabuf_fd u32 28",
    Array("metadata_ptr", "metadata_size", 1, "out"),
)
IMPORT_DMABUF = parse_struct(
    "kfd_ioctl_import_dmabuf_args", 24, "va_addr u64 0; handle u64 8; gpu_id u32 16; dmabuf_fd u32 20"
)
EXPORT_DMABUF = parse_struct("kfd_ioctl_export_dmabuf_args", 16, "handle u64 0; flags u32 8; dmabuf_fd u32 12")
SMI_EVENTS = parse_struct("kfd_ioctl_smi_events_args", 8, "gpuid u32 0; anon_fd u32 4")
SET_XNACK_MODE = parse_struct("kfd_ioctl_set_xnack_mode_args", 4, "xnack_enabled s32 0")
RUNTIME_ENABLE = parse_struct(
    "kfd_ioctl_runtime_enable_args", 16, "r_debug u64 0; mode_mask u32 8; capabilities_mask u32 12"
)
DBG_REGISTER = parse_struct("kfd_ioctl_dbg_register_args", 8, "gpu_id u32 0; pad u32 4")
DBG_UNREGISTER = parse_struct("kfd_ioctl_dbg_unregister_args", 8, "gpu_id u32 0; pad u32 4")
DBG_ADDRESS_WATCH = parse_struct(
    "kfd_ioctl_dbg_address_watch_args", 16, "content_ptr u64 0; gpu_id u32 8; buf_size_in_bytes u32 12"
)
DBG_WAVE_CONTROL = parse_struct(
    "kfd_ioctl_dbg_wave_control_args", 16, "content_ptr u64 0; gpu_id u32 8; buf_size_in_bytes u32 12"
)
SVM = parse_struct("kfd_ioctl_svm_args", 24, "start_addr u64 0; size u64 8; op u32 16; nattr u32 20")
CRIU = parse_struct(
    "kfd_ioctl_criu_args",
    56,
    """devices u64 0; bos u64 8; priv_data u64 16; priv_data_size u64 24; num_devices u32 32; num_bos u32 36;
    num_objects u32 40; pid u32 44; op u32 48""",
)
DBG_TRAP = parse_struct("kfd_ioctl_dbg_trap_args", 32, "pid u32 0; op u32 4")
PROFILER = parse_struct("kfd_ioctl_profiler_args", 16, "op u32 0")

IOC_GET_VERSION = IoctlRow("AMDKFD_IOC_GET_VERSION", "K", 0x01, "r", GET_VERSION)
IOC_CREATE_QUEUE = IoctlRow("AMDKFD_IOC_CREATE_QUEUE", "K", 0x02, "rw", CREATE_QUEUE)
IOC_DESTROY_QUEUE = IoctlRow("AMDKFD_IOC_DESTROY_QUEUE", "K", 0x03, "rw", DESTROY_QUEUE)
IOC_SET_MEMORY_POLICY = IoctlRow("AMDKFD_IOC_SET_MEMORY_POLICY", "K", 0x04, "w", SET_MEMORY_POLICY)
IOC_GET_CLOCK_COUNTERS = IoctlRow("AMDKFD_IOC_GET_CLOCK_COUNTERS", "K", 0x05, "rw", GET_CLOCK_COUNTERS)
IOC_GET_PROCESS_APERTURES = IoctlRow("AMDKFD_IOC_GET_PROCESS_APERTURES", "K", 0x06, "r", GET_PROCESS_APERTURES)
IOC_UPDATE_QUEUE = IoctlRow("AMDKFD_IOC_UPDATE_QUEUE", "K", 0x07, "w", UPDATE_QUEUE)
IOC_CREATE_EVENT = IoctlRow("AMDKFD_IOC_CREATE_EVENT", "K", 0x08, "rw", CREATE_EVENT)
IOC_DESTROY_EVENT = IoctlRow("AMDKFD_IOC_DESTROY_EVENT", "K", 0x09, "w", DESTROY_EVENT)
IOC_SET_EVENT = IoctlRow("AMDKFD_IOC_SET_EVENT", "K", 0x0A, "w", SET_EVENT)
IOC_RESET_EVENT = IoctlRow("AMDKFD_IOC_RESET_EVENT", "K", 0x0B, "w", RESET_EVENT)
IOC_WAIT_EVENTS = IoctlRow("AMDKFD_IOC_WAIT_EVENTS", "K", 0x0C, "rw", WAIT_EVENTS)
IOC_DBG_REGISTER = IoctlRow("AMDKFD_IOC_DBG_REGISTER_DEPRECATED", "K", 0x0D, "w", DBG_REGISTER)
IOC_DBG_UNREGISTER = IoctlRow("AMDKFD_IOC_DBG_UNREGISTER_DEPRECATED", "K", 0x0E, "w", DBG_UNREGISTER)
IOC_DBG_ADDRESS_WATCH = IoctlRow("AMDKFD_IOC_DBG_ADDRESS_WATCH_DEPRECATED", "K", 0x0F, "w", DBG_ADDRESS_WATCH)
IOC_DBG_WAVE_CONTROL = IoctlRow("AMDKFD_IOC_DBG_WAVE_CONTROL_DEPRECATED", "K", 0x10, "w", DBG_WAVE_CONTROL)
IOC_SET_SCRATCH_BACKING_VA = IoctlRow("AMDKFD_IOC_SET_SCRATCH_BACKING_VA", "K", 0x11, "rw", SET_SCRATCH_BACKING_VA)
IOC_GET_TILE_CONFIG = IoctlRow("AMDKFD_IOC_GET_TILE_CONFIG", "K", 0x12, "rw", GET_TILE_CONFIG)
IOC_SET_TRAP_HANDLER = IoctlRow("AMDKFD_IOC_SET_TRAP_HANDLER", "K", 0x13, "w", SET_TRAP_HANDLER)
IOC_GET_PROCESS_APERTURES_NEW = IoctlRow(
    "AMDKFD_IOC_GET_PROCESS_APERTURES_NEW", "K", 0x14, "rw", GET_PROCESS_APERTURES_NEW
)
IOC_ACQUIRE_VM = IoctlRow("AMDKFD_IOC_ACQUIRE_VM", "K", 0x15, "w", ACQUIRE_VM)
IOC_ALLOC_MEMORY_OF_GPU = IoctlRow("AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", "K", 0x16, "rw", ALLOC_MEMORY_OF_GPU)
IOC_FREE_MEMORY_OF_GPU = IoctlRow("AMDKFD_IOC_FREE_MEMORY_OF_GPU", "K", 0x17, "w", FREE_MEMORY_OF_GPU)
IOC_MAP_MEMORY_TO_GPU = IoctlRow("AMDKFD_IOC_MAP_MEMORY_TO_GPU", "K", 0x18, "rw", MAP_MEMORY_TO_GPU)
IOC_UNMAP_MEMORY_FROM_GPU = IoctlRow("AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU", "K", 0x19, "rw", UNMAP_MEMORY_FROM_GPU)
IOC_SET_CU_MASK = IoctlRow("AMDKFD_IOC_SET_CU_MASK", "K", 0x1A, "w", SET_CU_MASK)
IOC_GET_QUEUE_WAVE_STATE = IoctlRow("AMDKFD_IOC_GET_QUEUE_WAVE_STATE", "K", 0x1B, "rw", GET_QUEUE_WAVE_STATE)
IOC_GET_DMABUF_INFO = IoctlRow("AMDKFD_IOC_GET_DMABUF_INFO", "K", 0x1C, "rw", GET_DMABUF_INFO)
IOC_IMPORT_DMABUF = IoctlRow("AMDKFD_IOC_IMPORT_DMABUF", "K", 0x1D, "rw", IMPORT_DMABUF)
IOC_ALLOC_QUEUE_GWS = IoctlRow("AMDKFD_IOC_ALLOC_QUEUE_GWS", "K", 0x1E, "rw", ALLOC_QUEUE_GWS)
IOC_SMI_EVENTS = IoctlRow("AMDKFD_IOC_SMI_EVENTS", "K", 0x1F, "rw", SMI_EVENTS)
IOC_SVM = IoctlRow("AMDKFD_IOC_SVM", "K", 0x20, "rw", SVM)
IOC_SET_XNACK_MODE = IoctlRow("AMDKFD_IOC_SET_XNACK_MODE", "K", 0x21, "rw", SET_XNACK_MODE)
IOC_CRIU_OP = IoctlRow("AMDKFD_IOC_CRIU_OP", "K", 0x22, "rw", CRIU)
IOC_AVAILABLE_MEMORY = IoctlRow("AMDKFD_IOC_AVAILABLE_MEMORY", "K", 0x23, "rw", GET_AVAILABLE_MEMORY)
IOC_EXPORT_DMABUF = IoctlRow("AMDKFD_IOC_EXPORT_DMABUF", "K", 0x24, "rw", EXPORT_DMABUF)
IOC_RUNTIME_ENABLE = IoctlRow("AMDKFD_IOC_RUNTIME_ENABLE", "K", 0x25, "rw", RUNTIME_ENABLE)
IOC_DBG_TRAP = IoctlRow("AMDKFD_IOC_DBG_TRAP", "K", 0x26, "rw", DBG_TRAP)
IOC_CREATE_PROCESS = IoctlRow("AMDKFD_IOC_CREATE_PROCESS", "K", 0x27, "")
IOC_PROFILER = IoctlRow("AMDKFD_IOC_PROFILER", "K", 0x28, "rw", PROFILER)

IOCTLS = by_key(*(item for item in list(globals().values()) if isinstance(item, IoctlRow)))
