"""P03, P05, P06, P07, P08: information from the kernel driver about itself and the GPU."""

from __future__ import annotations

import errno
import os
import time
from itertools import pairwise
from typing import Any

from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.open_kfd import NEEDED
from zinc_rt.kmd.render_node import FIRMWARE, parse_ip_version
from zinc_rt.kmd.syscalls import send_ioctl
from zinc_rt.kmd.topology import format_arch_name
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.userq_availability import MINIMA, check_userq_availability
from zinc_rt.pm4.generation import ARCHITECTURES
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.outcome import (
    T1,
    T2,
    Outcome,
    ProbeFailed,
    check,
    is_device_lost,
    make_skip,
    match_failed_call,
    passed,
    symptom,
)
from zinc_rt.probes.probe import fails, probe, proves

AMDGPU_NEEDED = (3, 64)  # user queues' INFO queries, Linux 6.16
_CLOCKS_APART_SECONDS = 0.05

_BUSY = "this process, or a library in it (ROCr, HIP, PyTorch), already uses KFD on that GPU through another fd"


@probe("P03", "KFD version", (T1,), hazard=0, needs=("P02",))
@proves(
    "/dev/kfd is KFD, with a supported interface version",
    passes_when=f"major 1, minor {NEEDED[1]} or more",
)
@fails(
    symptom("old-kfd"),
    "the kernel is older than event ages and RUNTIME_ENABLE (KFD 1.14)",
    "use Linux 6.6 or newer",
)
@fails(
    match_failed_call("GET_VERSION", errno.ENOTTY),
    "the node does not belong to KFD",
    "find out which driver created /dev/kfd",
)
def probe_kfd_version(c: ProbeContext) -> Outcome:
    fd = c.driver.open("/dev/kfd", os.O_RDWR)
    try:
        version = send_ioctl(c.driver, fd, kfd.IOC_GET_VERSION, kfd.GET_VERSION.new())
    finally:
        c.driver.close(fd)
    reported = version["major_version"], version["minor_version"]
    check(
        reported[0] == NEEDED[0] and reported >= NEEDED,
        "old-kfd",
        f"KFD interface {reported[0]}.{reported[1]}: expected {NEEDED[0]}.{NEEDED[1]} or later",
    )
    return passed(version=f"{reported[0]}.{reported[1]}")


@probe("P05", "DRM identity", (T2,), hazard=0, needs=("P01",))
@proves(
    "the render node belongs to amdgpu and to the same GPU as KFD's node",
    passes_when="amdgpu 3.64 or later; family, CUs and firmware answer, and agree with KFD's node",
)
@fails(
    symptom("other-gpu", "wrong-driver"),
    "the render node of another GPU (an integrated one is present)",
    "select the right one: --device /dev/dri/renderDN",
)
@fails(symptom("unknown-target"), "this version has no packets for this chip", "--tiers t1 may support it")
def probe_drm_identity(c: ProbeContext) -> Outcome:
    node = c.render
    check(node.driver_name == "amdgpu", "wrong-driver", f"{node.path} is driven by {node.driver_name}")
    if node.version[:2] < AMDGPU_NEEDED:
        reported, required = (".".join(map(str, item[:2])) for item in (node.version, AMDGPU_NEEDED))
        return skip_tier(
            c,
            f"amdgpu {reported}: expected {required} or later",
            "use Linux 6.17 or newer; --tiers t1 does not need it",
        )
    device, compute = node.device(), node.query_compute_ip()
    generation = parse_ip_version(compute)
    check(
        format_arch_name(generation) in ARCHITECTURES,
        "unknown-target",
        f"{format_arch_name(generation)} is not supported",
    )
    low, high = device["virtual_address_offset"], device["virtual_address_max"]
    check(low < high and low % 4096 == 0, "inconsistent", f"GPU addresses {low:#x} to {high:#x}")
    known = c.chosen[0]
    if known is not None:
        same = known.generation == generation
        check(
            same, "other-gpu", f"DRM says {format_arch_name(generation)}, KFD's node of {node.path} {known.arch}"
        )
        check(
            known.compute_units == device["cu_active_number"],
            "other-gpu",
            f"DRM says {device['cu_active_number']} CUs, KFD's node of {node.path} {known.compute_units}",
        )
    firmware = node.query_firmware()
    missing = [name for name in FIRMWARE if name not in firmware]
    check(len(missing) < len(FIRMWARE), "no-firmware", "the kernel reports no firmware version")
    notes = [f"no version of {', '.join(missing)}"] if missing else []
    return passed(
        *notes,
        amdgpu=".".join(map(str, node.version)),
        arch=format_arch_name(generation),
        cus=device["cu_active_number"],
        firmware=" ".join(f"{name} {version}" for name, version in firmware.items()),
    )


@probe("P06", "user-queue availability", (T2,), hazard=0, needs=("P05",))
@proves(
    "the kernel offers compute user queues",
    passes_when="DEV_INFO.userq_ip_mask has bit 1; else tier t2 is unavailable, with the reason",
)
def probe_user_queue_availability(c: ProbeContext) -> Outcome:
    availability = check_userq_availability(c.driver, c.render)
    facts = availability.facts
    measure: dict[str, Any] = {"parameter": facts.parameter, "slots": facts.slots, "ip_mask": facts.ip_mask}
    if availability.usable:
        return passed(**measure, why=availability.why)
    if facts.too_old:
        measure["minima"] = str(MINIMA.get(facts.generation, {}))
    return skip_tier(c, availability.why, availability.next, **measure)


def skip_tier(c: ProbeContext, cause: str, advice: str, **measure: Any) -> Outcome:
    """Skip the tier, unless it was selected by name."""
    reason = f"tier t2 is unavailable: {cause}"
    if c.options.forced:
        raise ProbeFailed("unavailable", reason, cause=cause, advice=advice, measure=measure)
    return make_skip(reason, cause=cause, advice=advice, **measure)


@probe("P07", "VM acquisition", (T1,), hazard=0, needs=("P03", "P04"))
@proves(
    "the GPU's address space binds to this process, once",
    passes_when="same fd again succeeds, a second fd EBUSY, an unknown GPU EINVAL",
)
@fails(is_device_lost, "the GPU is gone: it does not respond to its driver", "see P08; otherwise reboot")
@fails(match_failed_call("ACQUIRE_VM", errno.EBUSY), _BUSY, "do not load ROCm into the process that runs this")
@fails(
    match_failed_call("ACQUIRE_VM", errno.EINVAL),
    "the render node belongs to another GPU",
    "compare drm_render_minor of the topology node with /dev/dri",
)
@fails(
    symptom("wrong-errno"),
    "the kernel differs from those this version was written for",
    "record kernel and errnos; queues may work nevertheless (-k P15)",
)
def probe_vm_acquisition(c: ProbeContext) -> Outcome:
    """Check the transport's first call, then the same fd, a second fd and an invalid GPU."""
    gpu = c.gpu

    def acquire(fd: int, gpu_id: int) -> int:
        try:
            c.process.file.ioctl(kfd.IOC_ACQUIRE_VM, kfd.ACQUIRE_VM.new(drm_fd=fd, gpu_id=gpu_id))
        except DriverError as error:
            return error.errno
        return 0

    other = c.driver.open(gpu.node.render_path, os.O_RDWR)
    try:
        rows = (
            ("the same fd again", acquire(gpu.render_fd, gpu.node.gpu_id), 0),
            ("a second fd of the node", acquire(other, gpu.node.gpu_id), errno.EBUSY),
            ("an unknown GPU", acquire(gpu.render_fd, 0xFFFF), errno.EINVAL),
        )
    finally:
        c.driver.close(other)
    wrong = [f"{what}: {_errno_name(got)}, not {_errno_name(want)}" for what, got, want in rows if got != want]
    check(not wrong, "wrong-errno", "; ".join(wrong))
    return passed(checked=len(rows))


def _errno_name(number: int) -> str:
    return errno.errorcode.get(number, str(number)) if number else "success"


@probe("P08", "apertures, clocks, memory", (T1,), hazard=0, needs=("P03", "P04"))
@proves(
    "the GPU responds: its clock runs, it has memory",
    passes_when="windows do not overlap, clocks rise, the counter runs near 100 MHz, memory is available",
)
@fails(
    is_device_lost,
    "the GPU is gone: it disappeared from the bus, or was lost in a reset",
    "`dmesg | grep -i amdgpu`; reseat or power-cycle it; /sys/bus/pci/rescan finds it again",
)
@fails(
    symptom("counter-stuck"),
    "the GPU is suspended (runtime power management) or dead",
    "boot with amdgpu.runpm=0 and check `dmesg | grep -i amdgpu`",
)
@fails(symptom("no-memory"), "all VRAM is in use", "close other programs that use this GPU")
@fails(symptom("wrong-rate"), "not the 100 MHz reference counter", "P21 measures it again by packets")
def probe_apertures(c: ProbeContext) -> Outcome:
    gpu = c.gpu
    windows = gpu.apertures
    spans = sorted([windows.lds, windows.scratch, windows.gpuvm])
    overlap = [f"{a[1]:#x} >= {b[0]:#x}" for a, b in pairwise(spans) if a[1] >= b[0]]
    check(not overlap, "overlap", f"the windows overlap: {overlap}")
    first = gpu.read_clocks()
    start = time.monotonic()
    time.sleep(_CLOCKS_APART_SECONDS)
    second = gpu.read_clocks()
    seconds = time.monotonic() - start
    check(second.gpu != (1 << 64) - 1, "gpu-gone", "the GPU counter reads all ones")
    check(second.gpu > first.gpu, "counter-stuck", f"the GPU counter does not advance from {second.gpu}")
    check(second.cpu > first.cpu and second.system > first.system, "counter-stuck", "the CPU's clocks stand")
    mhz = (second.gpu - first.gpu) / seconds / 1e6
    check(50 < mhz < 200, "wrong-rate", f"the GPU counter runs at {mhz:.1f} MHz", limit={"mhz": "50 to 200"})
    memory = gpu.query_available_memory()
    check(memory > 0, "no-memory", "no VRAM is available")
    return passed(gpu_mhz=round(mhz, 2), system_hz=second.system_hz, available_mib=memory >> 20)
