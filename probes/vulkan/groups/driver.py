"""V01 to V05: loader, drivers and devices, before any test of execution."""

from __future__ import annotations

import ctypes
from ctypes import byref

from zinc_rt.backends.vulkan import api, icd, layers, loader
from zinc_rt.backends.vulkan.physical_device import FEATURES, FLOAT_CONTROLS, format_version, split_version
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.probes.outcome import HOST, VULKAN, Outcome, check, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves
from zinc_rt.probes.vulkan.context import VulkanProbeContext

READS_BACK = api.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT


@probe("V01", "loader and drivers", (HOST,), hazard=0)
@proves(
    "the Vulkan loader is installed, and lists its drivers",
    passes_when="every driver in VK_DRIVER_FILES opens; others that do not are reported",
)
@fails(
    symptom("driver"),
    "a manifest (ICD file) names a missing library or one of another architecture, or is damaged",
    "reinstall that driver, or remove the file; VK_DRIVER_FILES=FILE selects a single driver",
)
@fails(
    symptom("layer"),
    "VK_INSTANCE_LAYERS or VK_LOADER_LAYERS_ENABLE names a layer that is not installed and is ignored",
    "unset it, or install the layer: apt install vulkan-validationlayers",
)
def probe_loader(c: VulkanProbeContext) -> Outcome:
    vulkan = loader.load_vulkan()
    version = ctypes.c_uint32()
    vulkan.vkEnumerateInstanceVersion(byref(version))
    drivers = icd.list_installed_drivers()
    troubles = [f"{driver.manifest}: {driver.trouble}" for driver in drivers if driver.trouble]
    check(
        not (troubles and icd.find_manifest_override()),
        "driver",
        f"{icd.find_manifest_override()}: {'; '.join(troubles)}",
    )
    gone = layers.list_missing_layers()
    check(not gone, "layer", f"not installed: {', '.join(gone)}")
    named = [icd.find_manifest_override()] if icd.find_manifest_override() else []
    active = [f"layers {', '.join(layers.list_active_layers())}"] if layers.list_active_layers() else []
    return passed(
        *named,
        *troubles,
        *active,
        library=vulkan.source,
        version=format_version(split_version(version.value)),
        drivers=len(drivers),
        manifests=[driver.manifest for driver in drivers],
    )


@probe("V02", "devices", (HOST,), hazard=0)
@proves("an instance can be created, and drivers report devices", passes_when="the selected device is among them")
@fails(
    symptom("no-device"),
    (
        "drivers are installed, but none reports a device: no GPU, no access to its render node, or a "
        "driver of another vendor"
    ),
    "`ls -l /dev/dri` and add yourself to the group render; if there is no GPU:" + loader.INSTALL,
)
def probe_devices(c: VulkanProbeContext) -> Outcome:
    check(bool(c.devices), "no-device", "no driver reports a device")
    return passed(
        *(f"{device.option} {device.name} ({device.kind})" for device in c.devices), devices=len(c.devices)
    )


@probe("V03", "features and limits", (VULKAN,), hazard=0)
@proves(
    "the device has the features that kernels and arguments require",
    passes_when="every row of docs/vulkan.md's table holds",
)
@fails(
    symptom("missing"),
    "an old driver, or a device without this feature",
    "update the driver (a newer Mesa, or the vendor's); a Vulkan 1.0 or 1.1 device cannot be used",
)
def probe_features(c: VulkanProbeContext) -> Outcome:
    device = c.physical
    check(not device.missing, "missing", device.missing)
    limits = device.limits
    return passed(
        driver=device.driver,
        vulkan=format_version(device.api_version),
        software=device.is_cpu,
        invocations=limits.invocations,
        shared_bytes=limits.shared_bytes,
        grid=list(limits.grid),
        allocation_bytes=limits.allocation_bytes,
        buffer_bytes=limits.buffer_bytes,
        subgroup=limits.subgroup,
        features=sorted(device.features),
        needed=[*FEATURES, *FLOAT_CONTROLS],
    )


@probe("V04", "memory types", (VULKAN,), hazard=0)
@proves("device-local and host-visible memory types exist", passes_when="every heap of a plan has a type")
@fails(
    symptom("no-type"),
    "the driver has no memory of this kind, or does not expose it",
    "update the driver; `vulkaninfo` lists its memory types",
)
def probe_memory_types(c: VulkanProbeContext) -> Outcome:
    device = c.physical
    flags = [memory_type.flags for memory_type in device.memory_types]
    check(device.memory > 0, "no-type", "no heap is device-local")
    check(any(flag & READS_BACK for flag in flags), "no-type", "the host cannot map any memory")
    mapped = [
        memory_type.heap
        for memory_type in device.memory_types
        if memory_type.flags & READS_BACK and memory_type.flags & api.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
    ]
    reached = max((device.heaps[heap].size_bytes for heap in mapped), default=0)
    staged = (
        () if reached >= device.memory else (f"the host maps {reached >> 20:,} MiB of it: weights are staged",)
    )
    return passed(
        *staged,
        device_local_mib=device.memory >> 20,
        heaps=[heap.size_bytes for heap in device.heaps],
        types=flags,
    )


@probe("V05", "open (alive)", (VULKAN,), hazard=0, needs=("V03", "V04"))
@proves(
    "the device opens, allocates memory and runs a kernel", passes_when="a word stored by a kernel is read back"
)
@fails(
    symptom("VK_ERROR_INITIALIZATION_FAILED"),
    "the driver reports the device but cannot open it: no access to its node, an old kernel, or a lost GPU",
    "`dmesg | grep -iE 'amdgpu|i915|xe|nvidia|nouveau'`; add yourself to the groups video and render",
)
@fails(
    symptom("wrong-data"),
    "the kernel did not run, or the mapped memory is not that of the device",
    "update the driver; report this with --json",
)
def probe_open(c: VulkanProbeContext) -> Outcome:
    bench = c.bench
    words = bench.words(1)
    seconds = bench.run(bench.dispatch("probe_mark", (words, 1, 1), (1, 1, 1)))
    check(words.words[0] == 1, "wrong-data", f"the kernel's word is {words.words[0]}, not 1")
    other = bench.memory.block(4096, BufferHeap.DEVICE_LOCAL, "device memory")
    how = "mapped" if other.host is not None else "staged"
    return passed(queues=len(c.device.queues), device_memory=how, first_run_ms=1000 * seconds)
