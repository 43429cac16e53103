"""The ioctls of /dev/kfd: one row per ioctl."""

from __future__ import annotations

from zinc_rt.sim.driver import kfd_events, kfd_memory, kfd_process, kfd_queues
from zinc_rt.sim.driver.ioctl_call import IoctlHandler, make_table
from zinc_rt.sim.tables import kfd

HANDLERS = make_table(
    IoctlHandler(kfd.IOC_GET_VERSION, kfd_process.get_version),
    IoctlHandler(kfd.IOC_CREATE_QUEUE, kfd_queues.create),
    IoctlHandler(kfd.IOC_DESTROY_QUEUE, kfd_queues.destroy),
    IoctlHandler(kfd.IOC_SET_MEMORY_POLICY, kfd_memory.set_memory_policy),
    IoctlHandler(kfd.IOC_GET_CLOCK_COUNTERS, kfd_process.clock_counters),
    IoctlHandler(kfd.IOC_GET_PROCESS_APERTURES, kfd_process.apertures),
    IoctlHandler(kfd.IOC_UPDATE_QUEUE, kfd_queues.update),
    IoctlHandler(kfd.IOC_CREATE_EVENT, kfd_events.create),
    IoctlHandler(kfd.IOC_DESTROY_EVENT, kfd_events.destroy),
    IoctlHandler(kfd.IOC_SET_EVENT, kfd_events.set_event),
    IoctlHandler(kfd.IOC_RESET_EVENT, kfd_events.reset),
    IoctlHandler(kfd.IOC_WAIT_EVENTS, kfd_events.wait, unlocked=True),
    IoctlHandler(kfd.IOC_DBG_REGISTER, kfd_process.reject_deprecated),
    IoctlHandler(kfd.IOC_DBG_UNREGISTER, kfd_process.reject_deprecated),
    IoctlHandler(kfd.IOC_DBG_ADDRESS_WATCH, kfd_process.reject_deprecated),
    IoctlHandler(kfd.IOC_DBG_WAVE_CONTROL, kfd_process.reject_deprecated),
    IoctlHandler(kfd.IOC_SET_SCRATCH_BACKING_VA, kfd_memory.set_scratch_backing),
    IoctlHandler(kfd.IOC_GET_TILE_CONFIG, kfd_process.get_tile_config),
    IoctlHandler(kfd.IOC_SET_TRAP_HANDLER, kfd_process.set_trap_handler),
    IoctlHandler(kfd.IOC_GET_PROCESS_APERTURES_NEW, kfd_process.apertures_new),
    IoctlHandler(kfd.IOC_ACQUIRE_VM, kfd_memory.acquire_vm),
    IoctlHandler(kfd.IOC_ALLOC_MEMORY_OF_GPU, kfd_memory.alloc),
    IoctlHandler(kfd.IOC_FREE_MEMORY_OF_GPU, kfd_memory.free),
    IoctlHandler(kfd.IOC_MAP_MEMORY_TO_GPU, kfd_memory.map_to_gpu),
    IoctlHandler(kfd.IOC_UNMAP_MEMORY_FROM_GPU, kfd_memory.unmap_from_gpu),
    IoctlHandler(kfd.IOC_SET_CU_MASK, kfd_queues.set_cu_mask),
    IoctlHandler(kfd.IOC_GET_QUEUE_WAVE_STATE, kfd_queues.get_wave_state),
    IoctlHandler(kfd.IOC_GET_DMABUF_INFO, kfd_memory.dmabuf_info),
    IoctlHandler(kfd.IOC_IMPORT_DMABUF, kfd_memory.import_dmabuf),
    IoctlHandler(kfd.IOC_ALLOC_QUEUE_GWS, kfd_process.alloc_gws),
    IoctlHandler(kfd.IOC_SMI_EVENTS, kfd_process.smi_events),
    IoctlHandler(kfd.IOC_SVM, kfd_process.svm),
    IoctlHandler(kfd.IOC_SET_XNACK_MODE, kfd_process.set_xnack),
    IoctlHandler(kfd.IOC_CRIU_OP, kfd_process.reject_deprecated),  # EPERM without CAP_CHECKPOINT_RESTORE
    IoctlHandler(kfd.IOC_AVAILABLE_MEMORY, kfd_memory.available_memory),
    IoctlHandler(kfd.IOC_EXPORT_DMABUF, kfd_memory.export_dmabuf),
    IoctlHandler(kfd.IOC_RUNTIME_ENABLE, kfd_process.runtime_enable),
    IoctlHandler(kfd.IOC_DBG_TRAP, kfd_process.reject_deprecated),  # EPERM: no debugger attached
    IoctlHandler(kfd.IOC_CREATE_PROCESS, kfd_process.create_process),
    IoctlHandler(kfd.IOC_PROFILER, kfd_process.reject_deprecated),  # EPERM without CAP_PERFMON
)

SINCE_MINOR = {kfd.IOC_CREATE_PROCESS.number: 19, kfd.IOC_PROFILER.number: 23}  # ENOTTY before
