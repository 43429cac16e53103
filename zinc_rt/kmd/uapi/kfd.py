"""/dev/kfd: include/uapi/linux/kfd_ioctl.h, Linux 7.2 (interface 1.23). Left out: debugger operations, CRIU,
SVM."""

from __future__ import annotations

from zinc_rt.kmd.uapi.structs import IN, INOUT, OUT, Ioctl, Pointer, Struct, by_key, s32, u32, u64

# queue types, limits
KFD_IOC_QUEUE_TYPE_COMPUTE = 0  # PM4
KFD_IOC_QUEUE_TYPE_SDMA = 1
KFD_IOC_QUEUE_TYPE_COMPUTE_AQL = 2
KFD_IOC_QUEUE_TYPE_SDMA_XGMI = 3
KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID = 4
KFD_MAX_QUEUE_PERCENTAGE = 100
KFD_MAX_QUEUE_PRIORITY = 15
KFD_MIN_QUEUE_RING_SIZE = 1024  # bytes

KFD_IOC_CACHE_POLICY_COHERENT = 0
KFD_IOC_CACHE_POLICY_NONCOHERENT = 1

# ALLOC_MEMORY_OF_GPU: where, then how
KFD_IOC_ALLOC_MEM_FLAGS_VRAM = 1 << 0
KFD_IOC_ALLOC_MEM_FLAGS_GTT = 1 << 1
KFD_IOC_ALLOC_MEM_FLAGS_USERPTR = 1 << 2
KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL = 1 << 3
KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP = 1 << 4
KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE = 1 << 31
KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE = 1 << 30
KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC = 1 << 29  # VRAM the CPU reaches through the BAR
KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE = 1 << 28
KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM = 1 << 27  # mapped twice in a row: AQL rings only
KFD_IOC_ALLOC_MEM_FLAGS_COHERENT = 1 << 26
KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED = 1 << 25
KFD_IOC_ALLOC_MEM_FLAGS_EXT_COHERENT = 1 << 24
KFD_IOC_ALLOC_MEM_FLAGS_CONTIGUOUS = 1 << 23

# events
KFD_IOC_EVENT_SIGNAL = 0
KFD_IOC_EVENT_NODECHANGE = 1
KFD_IOC_EVENT_DEVICESTATECHANGE = 2
KFD_IOC_EVENT_HW_EXCEPTION = 3
KFD_IOC_EVENT_SYSTEM_EVENT = 4
KFD_IOC_EVENT_DEBUG_EVENT = 5
KFD_IOC_EVENT_PROFILE_EVENT = 6
KFD_IOC_EVENT_QUEUE_EVENT = 7
KFD_IOC_EVENT_MEMORY = 8
KFD_IOC_WAIT_RESULT_COMPLETE = 0
KFD_IOC_WAIT_RESULT_TIMEOUT = 1
KFD_IOC_WAIT_RESULT_FAIL = 2
KFD_SIGNAL_EVENT_LIMIT = 4096
KFD_HW_EXCEPTION_WHOLE_GPU_RESET = 0
KFD_HW_EXCEPTION_PER_ENGINE_RESET = 1
KFD_HW_EXCEPTION_GPU_HANG = 0
KFD_HW_EXCEPTION_ECC = 1
KFD_MEM_ERR_NO_RAS = 0
KFD_MEM_ERR_SRAM_ECC = 1
KFD_MEM_ERR_POISON_CONSUMED = 2
KFD_MEM_ERR_GPU_HANG = 3

KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK = 1
KFD_RUNTIME_ENABLE_MODE_TTMP_SAVE_MASK = 2

# byte offsets in the MMIO_REMAP page
KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL = 0
KFD_MMIO_REMAP_HDP_REG_FLUSH_CNTL = 4

GET_VERSION = Struct("struct kfd_ioctl_get_version_args", u32("major_version", OUT), u32("minor_version", OUT))

CREATE_QUEUE = Struct(
    "struct kfd_ioctl_create_queue_args",
    u64("ring_base_address"),
    u64("write_pointer_address"),
    u64("read_pointer_address"),
    u64("doorbell_offset", OUT),
    u32("ring_size"),
    u32("gpu_id"),
    u32("queue_type"),
    u32("queue_percentage"),
    u32("queue_priority"),
    u32("queue_id", OUT),
    u64("eop_buffer_address"),
    u64("eop_buffer_size"),
    u64("ctx_save_restore_address"),
    u32("ctx_save_restore_size"),
    u32("ctl_stack_size"),
    u32("sdma_engine_id"),  # 1.17: the struct grew from 88 to 96 bytes
    u32("metadata_ring_size"),  # 1.22; padding before
)

DESTROY_QUEUE = Struct("struct kfd_ioctl_destroy_queue_args", u32("queue_id"), u32("pad"))

UPDATE_QUEUE = Struct(
    "struct kfd_ioctl_update_queue_args",
    u64("ring_base_address"),
    u32("queue_id"),
    u32("ring_size"),
    u32("queue_percentage"),
    u32("queue_priority"),
)

SET_CU_MASK = Struct(
    "struct kfd_ioctl_set_cu_mask_args",
    u32("queue_id"),
    u32("num_cu_mask"),  # bits
    u64("cu_mask_ptr"),
    pointers=[Pointer("cu_mask_ptr", "num_cu_mask", 4, IN, per=32)],
)

GET_QUEUE_WAVE_STATE = Struct(
    "struct kfd_ioctl_get_queue_wave_state_args",
    u64("ctl_stack_address"),
    u32("ctl_stack_used_size", OUT),
    u32("save_area_used_size", OUT),
    u32("queue_id"),
    u32("pad"),
)

GET_AVAILABLE_MEMORY = Struct(
    "struct kfd_ioctl_get_available_memory_args", u64("available", OUT), u32("gpu_id"), u32("pad")
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

GET_CLOCK_COUNTERS = Struct(
    "struct kfd_ioctl_get_clock_counters_args",
    u64("gpu_clock_counter", OUT),
    u64("cpu_clock_counter", OUT),
    u64("system_clock_counter", OUT),
    u64("system_clock_freq", OUT),
    u32("gpu_id"),
    u32("pad"),
)

PROCESS_DEVICE_APERTURES = Struct(
    "struct kfd_process_device_apertures",
    u64("lds_base", OUT),
    u64("lds_limit", OUT),
    u64("scratch_base", OUT),
    u64("scratch_limit", OUT),
    u64("gpuvm_base", OUT),
    u64("gpuvm_limit", OUT),
    u32("gpu_id", OUT),
    u32("pad"),
)

GET_PROCESS_APERTURES_NEW = Struct(
    "struct kfd_ioctl_get_process_apertures_new_args",
    u64("kfd_process_device_apertures_ptr"),
    u32("num_of_nodes", INOUT),  # 0: only asks how many
    u32("pad"),
    pointers=[Pointer("kfd_process_device_apertures_ptr", "num_of_nodes", PROCESS_DEVICE_APERTURES, OUT)],
)

CREATE_EVENT = Struct(
    "struct kfd_ioctl_create_event_args",
    u64("event_page_offset", INOUT),  # a dGPU passes the handle of its page once; the header says only "from KFD"
    u32("event_trigger_data", OUT),
    u32("event_type"),
    u32("auto_reset"),
    u32("node_id"),
    u32("event_id", OUT),
    u32("event_slot_index", OUT),
)

DESTROY_EVENT = Struct("struct kfd_ioctl_destroy_event_args", u32("event_id"), u32("pad"))
SET_EVENT = Struct("struct kfd_ioctl_set_event_args", u32("event_id"), u32("pad"))
RESET_EVENT = Struct("struct kfd_ioctl_reset_event_args", u32("event_id"), u32("pad"))

EVENT_DATA = Struct(  # a union of three, by the event's type
    "struct kfd_event_data",
    u32("not_present", OUT, c="memory_exception_data.failure.NotPresent"),
    u32("read_only", OUT, c="memory_exception_data.failure.ReadOnly"),
    u32("no_execute", OUT, c="memory_exception_data.failure.NoExecute"),
    u32("imprecise", OUT, c="memory_exception_data.failure.imprecise"),
    u64("va", OUT, c="memory_exception_data.va"),
    u32("memory_gpu_id", OUT, c="memory_exception_data.gpu_id"),
    u32("memory_error_type", OUT, c="memory_exception_data.ErrorType"),
    u64("kfd_event_data_ext"),
    u32("event_id"),
    u32("pad"),
    u32("reset_type", OUT, at=0, c="hw_exception_data.reset_type"),
    u32("reset_cause", OUT, at=4, c="hw_exception_data.reset_cause"),
    u32("memory_lost", OUT, at=8, c="hw_exception_data.memory_lost"),
    u32("reset_gpu_id", OUT, at=12, c="hw_exception_data.gpu_id"),
    u64("last_event_age", INOUT, at=0, c="signal_event_data.last_event_age"),  # 1.14
)

WAIT_EVENTS = Struct(
    "struct kfd_ioctl_wait_events_args",
    u64("events_ptr"),
    u32("num_events"),
    u32("wait_for_all"),
    u32("timeout", INOUT),  # milliseconds; 0xFFFFFFFF: no limit
    u32("wait_result", OUT),
    pointers=[Pointer("events_ptr", "num_events", EVENT_DATA, INOUT)],
)

SET_SCRATCH_BACKING_VA = Struct(
    "struct kfd_ioctl_set_scratch_backing_va_args", u64("va_addr"), u32("gpu_id"), u32("pad")
)

GET_TILE_CONFIG = Struct(
    "struct kfd_ioctl_get_tile_config_args",
    u64("tile_config_ptr"),
    u64("macro_tile_config_ptr"),
    u32("num_tile_configs", INOUT),
    u32("num_macro_tile_configs", INOUT),
    u32("gpu_id"),
    u32("gb_addr_config", OUT),
    u32("num_banks", OUT),
    u32("num_ranks", OUT),
    pointers=[
        Pointer("tile_config_ptr", "num_tile_configs", 4, OUT),
        Pointer("macro_tile_config_ptr", "num_macro_tile_configs", 4, OUT),
    ],
)

SET_TRAP_HANDLER = Struct(
    "struct kfd_ioctl_set_trap_handler_args", u64("tba_addr"), u64("tma_addr"), u32("gpu_id"), u32("pad")
)

ACQUIRE_VM = Struct("struct kfd_ioctl_acquire_vm_args", u32("drm_fd"), u32("gpu_id"))

ALLOC_MEMORY_OF_GPU = Struct(
    "struct kfd_ioctl_alloc_memory_of_gpu_args",
    u64("va_addr"),
    u64("size"),
    u64("handle", OUT),
    u64("mmap_offset", INOUT),  # USERPTR: the pages' address, in; else an offset to map, out
    u32("gpu_id"),
    u32("flags"),
)

FREE_MEMORY_OF_GPU = Struct("struct kfd_ioctl_free_memory_of_gpu_args", u64("handle"))

MAP_MEMORY_TO_GPU = Struct(
    "struct kfd_ioctl_map_memory_to_gpu_args",
    u64("handle"),
    u64("device_ids_array_ptr"),
    u32("n_devices"),
    u32("n_success", INOUT),  # starts at 0
    pointers=[Pointer("device_ids_array_ptr", "n_devices", 4, IN)],
)

UNMAP_MEMORY_FROM_GPU = Struct(
    "struct kfd_ioctl_unmap_memory_from_gpu_args",
    u64("handle"),
    u64("device_ids_array_ptr"),
    u32("n_devices"),
    u32("n_success", INOUT),
    pointers=[Pointer("device_ids_array_ptr", "n_devices", 4, IN)],
)

ALLOC_QUEUE_GWS = Struct(
    "struct kfd_ioctl_alloc_queue_gws_args", u32("queue_id"), u32("num_gws"), u32("first_gws", OUT), u32("pad")
)

GET_DMABUF_INFO = Struct(
    "struct kfd_ioctl_get_dmabuf_info_args",
    u64("size", OUT),
    u64("metadata_ptr"),
    u32("metadata_size", INOUT),
    u32("gpu_id", OUT),
    u32("flags", OUT),
    u32("dmabuf_fd"),
    pointers=[Pointer("metadata_ptr", "metadata_size", 1, OUT)],
)

IMPORT_DMABUF = Struct(
    "struct kfd_ioctl_import_dmabuf_args", u64("va_addr"), u64("handle", OUT), u32("gpu_id"), u32("dmabuf_fd")
)

EXPORT_DMABUF = Struct("struct kfd_ioctl_export_dmabuf_args", u64("handle"), u32("flags"), u32("dmabuf_fd", OUT))

SMI_EVENTS = Struct("struct kfd_ioctl_smi_events_args", u32("gpuid"), u32("anon_fd", OUT))

SET_XNACK_MODE = Struct("struct kfd_ioctl_set_xnack_mode_args", s32("xnack_enabled", INOUT))

RUNTIME_ENABLE = Struct(
    "struct kfd_ioctl_runtime_enable_args", u64("r_debug"), u32("mode_mask"), u32("capabilities_mask", OUT)
)

# Declared so that a device can answer them as the kernel does; ZINC_RT never sends them.
GET_PROCESS_APERTURES = Struct(
    "struct kfd_ioctl_get_process_apertures_args",
    u64("process_apertures", OUT, count=7 * 7),  # 7 of PROCESS_DEVICE_APERTURES
    u32("num_of_nodes", OUT),
    u32("pad"),
)
DBG_REGISTER = Struct("struct kfd_ioctl_dbg_register_args", u32("gpu_id"), u32("pad"))
DBG_UNREGISTER = Struct("struct kfd_ioctl_dbg_unregister_args", u32("gpu_id"), u32("pad"))
DBG_ADDRESS_WATCH = Struct(
    "struct kfd_ioctl_dbg_address_watch_args", u64("content_ptr"), u32("gpu_id"), u32("buf_size_in_bytes")
)
DBG_WAVE_CONTROL = Struct(
    "struct kfd_ioctl_dbg_wave_control_args", u64("content_ptr"), u32("gpu_id"), u32("buf_size_in_bytes")
)
SVM = Struct("struct kfd_ioctl_svm_args", u64("start_addr"), u64("size"), u32("op"), u32("nattr"))

STRUCTS = tuple(value for value in list(globals().values()) if isinstance(value, Struct))


def _command(name: str, direction: str, number: int, struct: Struct | None) -> Ioctl:
    return Ioctl(f"AMDKFD_IOC_{name}", direction, "K", number, struct)


IOC_GET_VERSION = _command("GET_VERSION", "r", 0x01, GET_VERSION)
IOC_CREATE_QUEUE = _command("CREATE_QUEUE", "rw", 0x02, CREATE_QUEUE)
IOC_DESTROY_QUEUE = _command("DESTROY_QUEUE", "rw", 0x03, DESTROY_QUEUE)
IOC_SET_MEMORY_POLICY = _command("SET_MEMORY_POLICY", "w", 0x04, SET_MEMORY_POLICY)
IOC_GET_CLOCK_COUNTERS = _command("GET_CLOCK_COUNTERS", "rw", 0x05, GET_CLOCK_COUNTERS)
IOC_GET_PROCESS_APERTURES = _command("GET_PROCESS_APERTURES", "r", 0x06, GET_PROCESS_APERTURES)
IOC_UPDATE_QUEUE = _command("UPDATE_QUEUE", "w", 0x07, UPDATE_QUEUE)
IOC_CREATE_EVENT = _command("CREATE_EVENT", "rw", 0x08, CREATE_EVENT)
IOC_DESTROY_EVENT = _command("DESTROY_EVENT", "w", 0x09, DESTROY_EVENT)
IOC_SET_EVENT = _command("SET_EVENT", "w", 0x0A, SET_EVENT)
IOC_RESET_EVENT = _command("RESET_EVENT", "w", 0x0B, RESET_EVENT)
IOC_WAIT_EVENTS = _command("WAIT_EVENTS", "rw", 0x0C, WAIT_EVENTS)
IOC_DBG_REGISTER = _command("DBG_REGISTER_DEPRECATED", "w", 0x0D, DBG_REGISTER)
IOC_DBG_UNREGISTER = _command("DBG_UNREGISTER_DEPRECATED", "w", 0x0E, DBG_UNREGISTER)
IOC_DBG_ADDRESS_WATCH = _command("DBG_ADDRESS_WATCH_DEPRECATED", "w", 0x0F, DBG_ADDRESS_WATCH)
IOC_DBG_WAVE_CONTROL = _command("DBG_WAVE_CONTROL_DEPRECATED", "w", 0x10, DBG_WAVE_CONTROL)
IOC_SET_SCRATCH_BACKING_VA = _command("SET_SCRATCH_BACKING_VA", "rw", 0x11, SET_SCRATCH_BACKING_VA)
IOC_GET_TILE_CONFIG = _command("GET_TILE_CONFIG", "rw", 0x12, GET_TILE_CONFIG)
IOC_SET_TRAP_HANDLER = _command("SET_TRAP_HANDLER", "w", 0x13, SET_TRAP_HANDLER)
IOC_GET_PROCESS_APERTURES_NEW = _command("GET_PROCESS_APERTURES_NEW", "rw", 0x14, GET_PROCESS_APERTURES_NEW)
IOC_ACQUIRE_VM = _command("ACQUIRE_VM", "w", 0x15, ACQUIRE_VM)
IOC_ALLOC_MEMORY_OF_GPU = _command("ALLOC_MEMORY_OF_GPU", "rw", 0x16, ALLOC_MEMORY_OF_GPU)
IOC_FREE_MEMORY_OF_GPU = _command("FREE_MEMORY_OF_GPU", "w", 0x17, FREE_MEMORY_OF_GPU)
IOC_MAP_MEMORY_TO_GPU = _command("MAP_MEMORY_TO_GPU", "rw", 0x18, MAP_MEMORY_TO_GPU)
IOC_UNMAP_MEMORY_FROM_GPU = _command("UNMAP_MEMORY_FROM_GPU", "rw", 0x19, UNMAP_MEMORY_FROM_GPU)
IOC_SET_CU_MASK = _command("SET_CU_MASK", "w", 0x1A, SET_CU_MASK)
IOC_GET_QUEUE_WAVE_STATE = _command("GET_QUEUE_WAVE_STATE", "rw", 0x1B, GET_QUEUE_WAVE_STATE)
IOC_GET_DMABUF_INFO = _command("GET_DMABUF_INFO", "rw", 0x1C, GET_DMABUF_INFO)
IOC_IMPORT_DMABUF = _command("IMPORT_DMABUF", "rw", 0x1D, IMPORT_DMABUF)
IOC_ALLOC_QUEUE_GWS = _command("ALLOC_QUEUE_GWS", "rw", 0x1E, ALLOC_QUEUE_GWS)
IOC_SMI_EVENTS = _command("SMI_EVENTS", "rw", 0x1F, SMI_EVENTS)
IOC_SVM = _command("SVM", "rw", 0x20, SVM)
IOC_SET_XNACK_MODE = _command("SET_XNACK_MODE", "rw", 0x21, SET_XNACK_MODE)
IOC_AVAILABLE_MEMORY = _command("AVAILABLE_MEMORY", "rw", 0x23, GET_AVAILABLE_MEMORY)
IOC_EXPORT_DMABUF = _command("EXPORT_DMABUF", "rw", 0x24, EXPORT_DMABUF)
IOC_RUNTIME_ENABLE = _command("RUNTIME_ENABLE", "rw", 0x25, RUNTIME_ENABLE)
IOC_CREATE_PROCESS = _command("CREATE_PROCESS", "", 0x27, None)

IOCTLS = by_key(*(value for value in list(globals().values()) if isinstance(value, Ioctl)))
