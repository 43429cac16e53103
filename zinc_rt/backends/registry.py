"""The registry of tiers, one row each; the only list of tiers.

A tier is named TIER or TIER:KERNELSET. Devices are chosen by --device, never in a tier's name.
"""

from __future__ import annotations

from zinc_rt.backends.spec import BackendSpec, DeviceKind
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.isa.target import CHIPS, DEFAULT_ARCH

ORACLE = "t_cpu"  # judges all others
AMD_SETS = (*dict.fromkeys([DEFAULT_ARCH, *(chip.kernels for chip in CHIPS if chip.kernels)]), "radv")
AMD_ORDERINGS = ("canonical-1", "canonical-1-q8")
AMD_OPTIONS = ("kernels",)  # a kernel set in place of the chip's own

SPECS: tuple[BackendSpec, ...] = (
    BackendSpec(
        "t2",
        "AMD user queues",
        "zinc_rt.backends.amd.t2",
        40,
        AMD_SETS,
        AMD_OPTIONS,
        AMD_ORDERINGS,
        simulable=True,
        submission_seconds=1.0,  # amdgpu waits 2.1 s for a user queue to stop (kmd.userq.SUSPEND_SECONDS)
    ),
    BackendSpec(
        "t1",
        "AMD through /dev/kfd",
        "zinc_rt.backends.amd.t1",
        30,
        AMD_SETS,
        AMD_OPTIONS,
        AMD_ORDERINGS,
        simulable=True,
    ),
    BackendSpec(
        "t_cpu_native",
        "this machine's CPU, in machine code",
        "zinc_rt.backends.cpu.native",
        20,
        ("native",),
        ("threads", "affinity"),
        ("canonical-1", "canonical-1-q8"),
        kind=DeviceKind.HOST,
    ),
    BackendSpec(
        ORACLE,
        "T-CPU oracle",
        "zinc_rt.backends.cpu.oracle",
        10,
        ("numpy-reference",),
        ("threads",),
        kind=DeviceKind.HOST,
    ),
    BackendSpec(
        "vulkan",
        "any GPU through Vulkan",
        "zinc_rt.backends.vulkan.tier",
        kernel_sets=("spirv",),
        orderings=("canonical-1", "canonical-1-q8"),
        kind=DeviceKind.API_GPU,
        lists_devices=True,
    ),
    BackendSpec("t_cuda", "NVIDIA through CUDA"),
    BackendSpec("t_metal", "Apple through Metal"),
    BackendSpec("t_intel", "Intel Xe"),
)


def names() -> tuple[str, ...]:
    return tuple(row.tier for row in SPECS)


def built() -> tuple[BackendSpec, ...]:
    return tuple(row for row in SPECS if row.built)


def preferred() -> tuple[BackendSpec, ...]:
    """Return the tiers that auto tries, in order."""
    return tuple(sorted((row for row in built() if row.preference), key=lambda row: -row.preference))


def spec(name: str) -> BackendSpec:
    """Return a tier. Raise UsageError for an unknown name."""
    for row in SPECS:
        if row.tier == name:
            return row
    raise UsageError(f"unknown tier {name!r}; expected one of {', '.join(names())}")


def parse(text: str) -> tuple[BackendSpec, str]:
    """Return the tier and the kernel set, "" for none. Raise UsageError for unknown names, UnsupportedError
    for a tier that is not built in this version."""
    name, _, kernel_set = text.partition(":")
    row = spec(name)
    if not row.built:
        raise UnsupportedError(f"tier {name} is not built in this version", next=use_built())
    if kernel_set and kernel_set not in row.kernel_sets:
        device = f"; a device: --device {text}" if row.lists_devices else ""
        raise UsageError(
            f"{text}: {name} has no kernel set {kernel_set!r}",
            next=f"kernel sets: {', '.join(row.kernel_sets)}{device}",
        )
    return row, kernel_set


def use_built() -> str:
    return "use " + ", ".join(row.tier for row in built())
