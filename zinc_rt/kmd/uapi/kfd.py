"""/dev/kfd: include/uapi/linux/kfd_ioctl.h, Linux 7.2 (interface 1.23), without debugger operations, CRIU and
SVM.
"""

from __future__ import annotations

from zinc_rt.kmd.uapi.structs import Ioctl, Struct, index_by_key, u32, u64

# queue types, limits
KFD_IOC_QUEUE_TYPE_COMPUTE = 0  # PM4
KFD_IOC_QUEUE_TYPE_COMPUTE_AQL = 2

# ALLOC_MEMORY_OF_GPU: where, then how
KFD_IOC_ALLOC_MEM_FLAGS_VRAM = 1 << 0
KFD_IOC_ALLOC_MEM_FLAGS_GTT = 1 << 1
KFD_IOC_ALLOC_MEM_FLAGS_USERPTR = 1 << 2
KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP = 1 << 4
KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE = 1 << 31
KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE = 1 << 30
KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC = 1 << 29  # VRAM the CPU reaches through the BAR
KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE = 1 << 28
KFD_IOC_ALLOC_MEM_FLAGS_COHERENT = 1 << 26
KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED = 1 << 25

# events
KFD_IOC_EVENT_SIGNAL = 0
KFD_IOC_EVENT_HW_EXCEPTION = 3
KFD_IOC_EVENT_MEMORY = 8
KFD_IOC_WAIT_RESULT_COMPLETE = 0
KFD_IOC_WAIT_RESULT_TIMEOUT = 1
KFD_SIGNAL_EVENT_LIMIT = 4096
KFD_HW_EXCEPTION_WHOLE_GPU_RESET = 0
KFD_HW_EXCEPTION_ECC = 1

# byte offsets in the MMIO_REMAP page
KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL = 0

GET_VERSION = Struct("struct kfd_ioctl_get_version_args", u32("major_version"), u32("minor_version"))

CREATE_QUEUE = Struct(
    "struct kfd_ioctl_create_queue_args",
    u64("ring_base_address"),
    u64("write_pointer_address"),
    u64("read_pointer_address"),
    u64("doorbell_offset"),
    u32("ring_size"),
    u32("gpu_id"),
    u32("queue_type"),
    u32("queue_percentage"),
    u32("queue_priority"),
    u32("queue_id"),
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
)

GET_AVAILABLE_MEMORY = Struct(
    "struct kfd_ioctl_get_available_memory_args", u64("available"), u32("gpu_id"), u32("pad")
)

GET_CLOCK_COUNTERS = Struct(
    "struct kfd_ioctl_get_clock_counters_args",
    u64("gpu_clock_counter"),
    u64("cpu_clock_counter"),
    u64("system_clock_counter"),
    u64("system_clock_freq"),
    u32("gpu_id"),
    u32("pad"),
)

PROCESS_DEVICE_APERTURES = Struct(
    "struct kfd_process_device_apertures",
    u64("lds_base"),
    u64("lds_limit"),
    u64("scratch_base"),
    u64("scratch_limit"),
    u64("gpuvm_base"),
    u64("gpuvm_limit"),
    u32("gpu_id"),
    u32("pad"),
)

GET_PROCESS_APERTURES_NEW = Struct(
    "struct kfd_ioctl_get_process_apertures_new_args",
    u64("kfd_process_device_apertures_ptr"),
    u32("num_of_nodes"),  # 0: only asks how many
    u32("pad"),
)

CREATE_EVENT = Struct(
    "struct kfd_ioctl_create_event_args",
    u64("event_page_offset"),  # a dGPU passes the handle of its page once; the header says only "from KFD"
    u32("event_trigger_data"),
    u32("event_type"),
    u32("auto_reset"),
    u32("node_id"),
    u32("event_id"),
    u32("event_slot_index"),
)

DESTROY_EVENT = Struct("struct kfd_ioctl_destroy_event_args", u32("event_id"), u32("pad"))
SET_EVENT = Struct("struct kfd_ioctl_set_event_args", u32("event_id"), u32("pad"))
RESET_EVENT = Struct("struct kfd_ioctl_reset_event_args", u32("event_id"), u32("pad"))

EVENT_DATA = Struct(  # a union of three, by the event's type
    "struct kfd_event_data",
    u32("not_present", c="memory_exception_data.failure.NotPresent"),
    u32("read_only", c="memory_exception_data.failure.ReadOnly"),
    u32("no_execute", c="memory_exception_data.failure.NoExecute"),
    u32("imprecise", c="memory_exception_data.failure.imprecise"),
    u64("va", c="memory_exception_data.va"),
    u32("memory_gpu_id", c="memory_exception_data.gpu_id"),
    u32("memory_error_type", c="memory_exception_data.ErrorType"),
    u64("kfd_event_data_ext"),
    u32("event_id"),
    u32("pad"),
    u32("reset_type", at=0, c="hw_exception_data.reset_type"),
    u32("reset_cause", at=4, c="hw_exception_data.reset_cause"),
    u32("memory_lost", at=8, c="hw_exception_data.memory_lost"),
    u32("reset_gpu_id", at=12, c="hw_exception_data.gpu_id"),
    u64("last_event_age", at=0, c="signal_event_data.last_event_age"),  # 1.14
)

WAIT_EVENTS = Struct(
    "struct kfd_ioctl_wait_events_args",
    u64("events_ptr"),
    u32("num_events"),
    u32("wait_for_all"),
    u32("timeout"),  # milliseconds; 0xFFFFFFFF: no limit
    u32("wait_result"),
)

ACQUIRE_VM = Struct("struct kfd_ioctl_acquire_vm_args", u32("drm_fd"), u32("gpu_id"))

ALLOC_MEMORY_OF_GPU = Struct(
    "struct kfd_ioctl_alloc_memory_of_gpu_args",
    u64("va_addr"),
    u64("size"),
    u64("handle"),
    u64("mmap_offset"),  # USERPTR: the pages' address, in; else an offset to map, out
    u32("gpu_id"),
    u32("flags"),
)

FREE_MEMORY_OF_GPU = Struct("struct kfd_ioctl_free_memory_of_gpu_args", u64("handle"))

MAP_MEMORY_TO_GPU = Struct(
    "struct kfd_ioctl_map_memory_to_gpu_args",
    u64("handle"),
    u64("device_ids_array_ptr"),
    u32("n_devices"),
    u32("n_success"),  # starts at 0
)

UNMAP_MEMORY_FROM_GPU = Struct(
    "struct kfd_ioctl_unmap_memory_from_gpu_args",
    u64("handle"),
    u64("device_ids_array_ptr"),
    u32("n_devices"),
    u32("n_success"),
)


def _make_ioctl(name: str, direction: str, number: int, struct: Struct) -> Ioctl:
    return Ioctl(f"AMDKFD_IOC_{name}", direction, "K", number, struct)


IOC_GET_VERSION = _make_ioctl("GET_VERSION", "r", 0x01, GET_VERSION)
IOC_CREATE_QUEUE = _make_ioctl("CREATE_QUEUE", "rw", 0x02, CREATE_QUEUE)
IOC_DESTROY_QUEUE = _make_ioctl("DESTROY_QUEUE", "rw", 0x03, DESTROY_QUEUE)
IOC_GET_CLOCK_COUNTERS = _make_ioctl("GET_CLOCK_COUNTERS", "rw", 0x05, GET_CLOCK_COUNTERS)
IOC_UPDATE_QUEUE = _make_ioctl("UPDATE_QUEUE", "w", 0x07, UPDATE_QUEUE)
IOC_CREATE_EVENT = _make_ioctl("CREATE_EVENT", "rw", 0x08, CREATE_EVENT)
IOC_DESTROY_EVENT = _make_ioctl("DESTROY_EVENT", "w", 0x09, DESTROY_EVENT)
IOC_SET_EVENT = _make_ioctl("SET_EVENT", "w", 0x0A, SET_EVENT)
IOC_RESET_EVENT = _make_ioctl("RESET_EVENT", "w", 0x0B, RESET_EVENT)
IOC_WAIT_EVENTS = _make_ioctl("WAIT_EVENTS", "rw", 0x0C, WAIT_EVENTS)
IOC_GET_PROCESS_APERTURES_NEW = _make_ioctl("GET_PROCESS_APERTURES_NEW", "rw", 0x14, GET_PROCESS_APERTURES_NEW)
IOC_ACQUIRE_VM = _make_ioctl("ACQUIRE_VM", "w", 0x15, ACQUIRE_VM)
IOC_ALLOC_MEMORY_OF_GPU = _make_ioctl("ALLOC_MEMORY_OF_GPU", "rw", 0x16, ALLOC_MEMORY_OF_GPU)
IOC_FREE_MEMORY_OF_GPU = _make_ioctl("FREE_MEMORY_OF_GPU", "w", 0x17, FREE_MEMORY_OF_GPU)
IOC_MAP_MEMORY_TO_GPU = _make_ioctl("MAP_MEMORY_TO_GPU", "rw", 0x18, MAP_MEMORY_TO_GPU)
IOC_UNMAP_MEMORY_FROM_GPU = _make_ioctl("UNMAP_MEMORY_FROM_GPU", "rw", 0x19, UNMAP_MEMORY_FROM_GPU)
IOC_SET_CU_MASK = _make_ioctl("SET_CU_MASK", "w", 0x1A, SET_CU_MASK)
IOC_AVAILABLE_MEMORY = _make_ioctl("AVAILABLE_MEMORY", "rw", 0x23, GET_AVAILABLE_MEMORY)

IOCTLS = index_by_key(globals())
