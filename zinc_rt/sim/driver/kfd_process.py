"""KFD ioctls on the process and its GPUs: version, clocks, apertures, settings. Errnos: kfd_chardev.c."""

from __future__ import annotations

import errno
import time

from zinc_rt.sim.driver.files import SmiFile
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.memory.vm import VA_FIRST
from zinc_rt.sim.tables import kfd
from zinc_rt.sim.tables.structs import Fields

# kfd_flat_memory.c, gfx9 and later: fixed windows of 4 GiB
LDS_BASE = 1 << 48
SCRATCH_BASE = 2 << 48
WINDOW = (1 << 32) - 1
GPUVM_LIMIT = (1 << 47) - 1
APERTURES_MAX = 7  # of the old call
OLD_KFD_MINOR = 8


def get_version(call: IoctlCall) -> None:
    minor = call.machine.linux.kfd_minor
    if call.machine.injector.is_due("old-kfd"):
        minor = OLD_KFD_MINOR
    call.arg["major_version"], call.arg["minor_version"] = 1, minor


def clock_counters(call: IoctlCall) -> None:
    gpu = call.kfd.gpu(call.arg["gpu_id"])
    gpu.check_alive()
    call.arg["gpu_clock_counter"] = gpu.gpu_counter()
    call.arg["cpu_clock_counter"] = time.monotonic_ns()
    call.arg["system_clock_counter"] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    call.arg["system_clock_freq"] = 1_000_000_000


def _make_apertures(gpu: SimGpu) -> Fields:
    return kfd.PROCESS_DEVICE_APERTURES.new(
        lds_base=LDS_BASE,
        lds_limit=LDS_BASE | WINDOW,
        scratch_base=SCRATCH_BASE,
        scratch_limit=SCRATCH_BASE | WINDOW,
        gpuvm_base=VA_FIRST,
        gpuvm_limit=GPUVM_LIMIT,
        gpu_id=gpu.gpu_id,
    )


def apertures(call: IoctlCall) -> None:
    gpus = call.machine.gpus[:APERTURES_MAX]
    raw = b"".join(bytes(_make_apertures(gpu).raw) for gpu in gpus)
    call.arg.raw[: len(raw)] = raw
    call.arg["num_of_nodes"] = len(gpus)


def apertures_new(call: IoctlCall) -> None:
    gpus = call.machine.gpus
    room = call.arg["num_of_nodes"]
    if room:
        shown = b"".join(bytes(_make_apertures(gpu).raw) for gpu in gpus[:room])
        call.put(call.arg["kfd_process_device_apertures_ptr"], shown)
    call.arg["num_of_nodes"] = min(room, len(gpus)) if room else len(gpus)


def set_trap_handler(call: IoctlCall) -> None:
    process = call.kfd
    process.bound(process.gpu(call.arg["gpu_id"]), errno.ESRCH)


def get_tile_config(call: IoctlCall) -> None:
    gpu = call.kfd.gpu(call.arg["gpu_id"])
    gpu.check_alive()
    call.arg["num_tile_configs"] = 0  # gfx9 and later have no such tables
    call.arg["num_macro_tile_configs"] = 0
    call.arg["gb_addr_config"] = gpu.chip.gb_addr_config


def reject_deprecated(call: IoctlCall) -> None:
    raise OSError(errno.EPERM, "the old debugger calls were removed")


def alloc_gws(call: IoctlCall) -> None:
    if call.arg["queue_id"] not in call.kfd.queues:
        raise OSError(errno.EINVAL, "no such queue")
    raise OSError(errno.ENODEV, "no global wave sync on this chip")


def smi_events(call: IoctlCall) -> None:
    process = call.kfd
    process.gpu(call.arg["gpuid"])
    file = SmiFile()
    process.smi.append(file)
    call.arg["anon_fd"] = call.process.add_file(file)


def svm(call: IoctlCall) -> None:
    # no retry faults on these chips: SVM exists, but only through XNACK-off prefetch, which is not used here
    if not call.arg["start_addr"] or not call.arg["size"]:
        raise OSError(errno.EINVAL, "empty range")
    raise OSError(errno.EPERM, "SVM is disabled on this device")


def set_xnack(call: IoctlCall) -> None:
    process = call.kfd
    wanted = call.arg["xnack_enabled"]
    if wanted < 0:
        call.arg["xnack_enabled"] = int(process.xnack)
    elif wanted:
        raise OSError(errno.EPERM, "these chips do not retry faults")
    elif process.queues:
        raise OSError(errno.EBUSY, "queues exist")


def runtime_enable(call: IoctlCall) -> None:
    process = call.kfd
    if call.arg["mode_mask"] & kfd.KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK:
        if process.runtime_enabled:
            raise OSError(errno.EBUSY, "enabled before")
        process.runtime_enabled = True
    else:
        process.runtime_enabled = False
    call.arg["capabilities_mask"] = 0


def create_process(call: IoctlCall) -> None:
    if not call.machine.linux.kfd_open_process:
        raise OSError(errno.ENOTTY, "KFD 1.19 and later")
    raise OSError(errno.EINVAL, "this device supports one context per process")
