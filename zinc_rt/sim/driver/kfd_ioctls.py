"""The ioctls of /dev/kfd: one row each."""

from __future__ import annotations

from zinc_rt.sim.driver import kfd_events, kfd_memory, kfd_process, kfd_queues
from zinc_rt.sim.driver.ioctl_call import Handler, table
from zinc_rt.sim.tables import kfd

HANDLERS = table(
    Handler(kfd.IOC_GET_VERSION, kfd_process.get_version),
    Handler(kfd.IOC_CREATE_QUEUE, kfd_queues.create),
    Handler(kfd.IOC_DESTROY_QUEUE, kfd_queues.destroy),
    Handler(kfd.IOC_SET_MEMORY_POLICY, kfd_memory.set_memory_policy),
    Handler(kfd.IOC_GET_CLOCK_COUNTERS, kfd_process.clock_counters),
    Handler(kfd.IOC_GET_PROCESS_APERTURES, kfd_process.apertures),
    Handler(kfd.IOC_UPDATE_QUEUE, kfd_queues.update),
    Handler(kfd.IOC_CREATE_EVENT, kfd_events.create),
    Handler(kfd.IOC_DESTROY_EVENT, kfd_events.destroy),
    Handler(kfd.IOC_SET_EVENT, kfd_events.set_event),
    Handler(kfd.IOC_RESET_EVENT, kfd_events.reset),
    Handler(kfd.IOC_WAIT_EVENTS, kfd_events.wait, unlocked=True),
    Handler(kfd.IOC_DBG_REGISTER, kfd_process.deprecated),
    Handler(kfd.IOC_DBG_UNREGISTER, kfd_process.deprecated),
    Handler(kfd.IOC_DBG_ADDRESS_WATCH, kfd_process.deprecated),
    Handler(kfd.IOC_DBG_WAVE_CONTROL, kfd_process.deprecated),
    Handler(kfd.IOC_SET_SCRATCH_BACKING_VA, kfd_memory.set_scratch_backing),
    Handler(kfd.IOC_GET_TILE_CONFIG, kfd_process.get_tile_config),
    Handler(kfd.IOC_SET_TRAP_HANDLER, kfd_process.set_trap_handler),
    Handler(kfd.IOC_GET_PROCESS_APERTURES_NEW, kfd_process.apertures_new),
    Handler(kfd.IOC_ACQUIRE_VM, kfd_memory.acquire_vm),
    Handler(kfd.IOC_ALLOC_MEMORY_OF_GPU, kfd_memory.alloc),
    Handler(kfd.IOC_FREE_MEMORY_OF_GPU, kfd_memory.free),
    Handler(kfd.IOC_MAP_MEMORY_TO_GPU, kfd_memory.map_to_gpu),
    Handler(kfd.IOC_UNMAP_MEMORY_FROM_GPU, kfd_memory.unmap_from_gpu),
    Handler(kfd.IOC_SET_CU_MASK, kfd_queues.set_cu_mask),
    Handler(kfd.IOC_GET_QUEUE_WAVE_STATE, kfd_queues.get_wave_state),
    Handler(kfd.IOC_GET_DMABUF_INFO, kfd_memory.dmabuf_info),
    Handler(kfd.IOC_IMPORT_DMABUF, kfd_memory.import_dmabuf),
    Handler(kfd.IOC_ALLOC_QUEUE_GWS, kfd_process.alloc_gws),
    Handler(kfd.IOC_SMI_EVENTS, kfd_process.smi_events),
    Handler(kfd.IOC_SVM, kfd_process.svm),
    Handler(kfd.IOC_SET_XNACK_MODE, kfd_process.set_xnack),
    Handler(kfd.IOC_CRIU_OP, kfd_process.deprecated),  # EPERM without CAP_CHECKPOINT_RESTORE
    Handler(kfd.IOC_AVAILABLE_MEMORY, kfd_memory.available_memory),
    Handler(kfd.IOC_EXPORT_DMABUF, kfd_memory.export_dmabuf),
    Handler(kfd.IOC_RUNTIME_ENABLE, kfd_process.runtime_enable),
    Handler(kfd.IOC_DBG_TRAP, kfd_process.deprecated),  # EPERM: no debugger attached
    Handler(kfd.IOC_CREATE_PROCESS, kfd_process.create_process),
    Handler(kfd.IOC_PROFILER, kfd_process.deprecated),  # EPERM without CAP_PERFMON
)

SINCE_MINOR = {kfd.IOC_CREATE_PROCESS.number: 19, kfd.IOC_PROFILER.number: 23}  # ENOTTY before
