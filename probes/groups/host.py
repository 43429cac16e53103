"""P01, P02, P04, P14: host and driver, before any GPU is accessed."""

from __future__ import annotations

import errno
import os
import platform
from pathlib import Path

from zinc_rt.kmd.cwsr import list_cwsr_sizes
from zinc_rt.kmd.driver import list_folder
from zinc_rt.kmd.errors import find_advice
from zinc_rt.kmd.syscalls import KFD_PATH
from zinc_rt.kmd.topology import read_topology
from zinc_rt.pm4.generation import ARCHITECTURES
from zinc_rt.probes.device import AMD, PCI, find_amd_gpus, read_file
from zinc_rt.probes.kit.context import ProbeContext, find_render_nodes
from zinc_rt.probes.outcome import HOST, T1, Outcome, ProbeFailed, check, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves

MODULE = "/sys/module/amdgpu"

_RENDER_FIRST = "T2 needs only the render node"


@probe("P01", "platform", (HOST,), hazard=0)
@proves("Linux on x86-64 with an AMD GPU bound to amdgpu", passes_when="an AMD display device is bound to amdgpu")
@fails(
    symptom("no-module"),
    "amdgpu is not loaded: blacklisted, nomodeset, or a container without /sys",
    "`sudo modprobe amdgpu`, then `dmesg | grep amdgpu`; missing firmware: update linux-firmware",
)
@fails(
    symptom("not-bound"),
    "the GPU is bound to another driver (vfio-pci), or amdgpu rejected it",
    "`dmesg | grep amdgpu`: `failed to load ... .bin` indicates that a newer linux-firmware is needed",
)
@fails(symptom("no-gpu"), "no AMD GPU, or /sys is not visible", "--device sim needs none")
def probe_platform(c: ProbeContext) -> Outcome:
    driver = c.driver
    release = read_file(driver, "/proc/sys/kernel/osrelease") or ""
    check(read_file(driver, "/proc/sys/kernel/ostype") == "Linux", "no-linux", "this is not Linux")
    check(platform.machine() in ("x86_64", "AMD64"), "no-x86", f"a {platform.machine()} machine: expected x86-64")
    gpus = find_amd_gpus(driver)
    check(bool(gpus), "no-gpu", f"no PCI display device of vendor {AMD}")
    check(bool(list_folder(driver, MODULE)), "no-module", f"{MODULE} does not exist: amdgpu is not loaded")
    bound = {gpu: _find_driver(read_file(driver, f"{PCI}/{gpu}/uevent") or "") for gpu in gpus}
    check("amdgpu" in bound.values(), "not-bound", f"no AMD GPU is bound to amdgpu: {bound}")
    ids = {gpu: read_file(driver, f"{PCI}/{gpu}/device") or "" for gpu in gpus}
    return passed(kernel=release, gpus=", ".join(f"{gpu} 1002:{ids[gpu][2:]} {bound[gpu]}" for gpu in gpus))


def _find_driver(uevent: str) -> str:
    return next((line[7:] for line in uevent.splitlines() if line.startswith("DRIVER=")), "none")


@probe("P02", "node access", (HOST,), hazard=0, needs=("P01",))
@proves(
    "this user may open /dev/kfd and the render nodes",
    passes_when="every node opens; no capability and no root is needed",
)
@fails(
    lambda o: o.symptom == "errno" and not o.call,
    "amdgpu created no render node, or the container has none",
    f"load amdgpu; in a container add --device=/dev/dri ({_RENDER_FIRST})",
)
def probe_nodes(c: ProbeContext) -> Outcome:
    paths = [KFD_PATH] if T1 in c.options.tiers else []
    paths += [c.spec.render_path] if c.spec.render_path else find_render_nodes(c.driver)
    check(len(paths) > (T1 in c.options.tiers), "errno", "/dev/dri has no render node", errno=errno.ENOENT)
    for path in paths:
        try:
            c.driver.close(c.driver.open(path, os.O_RDWR))
        except OSError as error:
            call = f"open {path}" if path == KFD_PATH else "open render node"
            number = error.errno or 0
            known = find_advice(call, number)
            raise ProbeFailed(
                "errno",
                f"{path} cannot be opened: {os.strerror(number)}",
                call=call,
                errno=number,
                cause=known.why,
                advice=known.next,
            ) from error
    return passed(opened=", ".join(paths))


@probe("P04", "topology and allow-list", (T1,), hazard=0, needs=("P02",))
@proves(
    "KFD lists a GPU this version supports, and DRM reports the same one",
    passes_when="a node with a known gfx_target_version whose render node and PCI address agree with DRM",
)
@fails(
    symptom("hidden"),
    "the device cgroup of a container hides the GPU's topology node",
    "run it outside the container, or pass --device=/dev/kfd --device=/dev/dri to it",
)
@fails(
    symptom("cpu-only"),
    "KFD skipped the GPU: support for the chip is disabled, or PCIe atomics are missing",
    "`dmesg | grep 'kfd'` shows why it skipped the device",
)
@fails(
    symptom("unknown-target"),
    "this version has no packets for this chip",
    "--device /dev/dri/renderDN selects it regardless, at your own risk",
)
@fails(
    symptom("inconsistent", "no-node"),
    "KFD and DRM refer to different GPUs (more than one, or an integrated one)",
    "select one: --device /dev/dri/renderDN",
)
def probe_topology(c: ProbeContext) -> Outcome:
    kfd_topology = read_topology(c.driver)
    if not kfd_topology.gpus:
        hidden = "; ".join(kfd_topology.hidden)
        check(not hidden, "hidden", f"no GPU node can be read: {hidden}")
        raise ProbeFailed("cpu-only", "KFD lists only CPU nodes")
    unknown = [node.arch for node in kfd_topology.gpus if node.arch not in ARCHITECTURES]
    check(len(unknown) < len(kfd_topology.gpus), "unknown-target", f"KFD lists only {', '.join(unknown)}")
    node, render_path = c.chosen
    check(node is not None, "no-node", f"KFD has no node for {render_path}")
    assert node is not None
    check(node.compute_units > 0, "inconsistent", f"{node.arch} with {node['simd_count']} SIMDs")
    known = find_render_nodes(c.driver)
    check(render_path in known, "inconsistent", f"the node says {render_path}, /dev/dri has {', '.join(known)}")
    location = node.properties.get("location_id", 0)
    expected = (
        f"{node.properties.get('domain', 0):04x}:{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}"
    )
    uevent = read_file(c.driver, f"/sys/class/drm/{Path(render_path).name}/device/uevent") or ""
    index = next((line[14:] for line in uevent.splitlines() if line.startswith("PCI_SLOT_NAME=")), expected)
    check(index.lower() == expected, "inconsistent", f"KFD says PCI {expected}, {render_path} is {index}")
    notes = [f"also {', '.join(unknown)}, which this version does not support"] if unknown else []
    return passed(
        *notes, *kfd_topology.hidden, arch=node.arch, gpu_id=f"{node.gpu_id:#x}", cus=node.compute_units, pci=index
    )


@probe("P14", "context save area arithmetic", (T1,), hazard=0, needs=("P04",))
@proves(
    "the computed sizes of the context save area are the kernel's",
    passes_when="the computed sizes equal cwsr_size and ctl_stack_size of the topology node, where it has them",
)
@fails(
    symptom("cwsr-mismatch"),
    "the kernel counts VGPRs of this chip differently (gfx1151 differs between kernels)",
    "queues use the node's sizes, so they work; please report chip, kernel and both sizes",
)
def probe_save_area(c: ProbeContext) -> Outcome:
    node = c.node
    shown = [node.properties.get(name, 0) for name in ("ctl_stack_size", "cwsr_size")]
    bare = {name: value for name, value in node.properties.items() if name not in ("ctl_stack_size", "cwsr_size")}
    computed = list_cwsr_sizes(type(node)(node.index, node.gpu_id, node.name, bare, node.heaps))
    if not all(shown):
        sizes = computed[0]
        return passed("this kernel does not report its sizes (Linux 6.19 does)", buffer_bytes=sizes.buffer_bytes)
    match = [item for item in computed if [item.control_stack_bytes, item.save_bytes] == shown]
    check(
        bool(match),
        "cwsr-mismatch",
        f"the node says control stack {shown[0]:#x}, save area {shown[1]:#x}; computed "
        + " or ".join(f"{item.control_stack_bytes:#x}, {item.save_bytes:#x}" for item in computed),
    )
    return passed(control_stack=hex(shown[0]), save_area=hex(shown[1]), buffer_bytes=match[0].buffer_bytes)
