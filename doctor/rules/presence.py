"""Rules about the presence of a GPU, its driver binding, and its response on the bus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine
from zinc_rt.doctor.read_gpus import IMPOSSIBLE_CELSIUS
from zinc_rt.doctor.rule import (
    BOTH,
    T1,
    DoctorRule,
    Observation,
    check_each_gpu,
    is_about_our_gpu,
    make_event_rule,
)

SIMULATED = "zinc-rt pm4-test --device sim: the simulated device runs every probe, but says nothing about hardware"


def _check_no_gpu(machine: InspectedMachine) -> Iterator[Observation]:
    if machine.gpus or machine.linux.wsl or machine.drives_unlisted_gpu:
        return
    if machine.host.container and not machine.gpus_known:
        yield Observation(
            f"no GPU is visible in this container ({machine.host.container})",
            why="whether the machine has one cannot be determined from inside the container",
            next="start the container with --device /dev/kfd --device /dev/dri --group-add render, or run doctor "
            f"on the host; without a GPU, {SIMULATED}",
        )
        return
    if not machine.gpus_known:
        yield Observation(
            "whether this machine has an AMD GPU is unknown",
            ("there is no sys/class/drm and no lspci.txt",),
            why="neither sysfs nor lspci was captured, so a GPU would not have been seen",
            next="lspci -nnvvv > lspci.txt, or sysfs.txt",
        )
        return
    yield Observation(evidence=("neither sysfs nor lspci lists one",))


def _check_vfio(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    if gpu.driver not in ("vfio-pci", "pci-stub", "xen-pciback", "pciback"):
        return None
    return Observation(
        f"{gpu.title} is assigned to a virtual machine: it is bound to {gpu.driver}", about=gpu.address
    )


def _check_gone(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    if not gpu.gone:
        return None
    hottest = max((now for _, now, _ in gpu.temperatures), default=0.0)
    if hottest >= IMPOSSIBLE_CELSIUS:
        return Observation(
            f"{gpu.title} no longer answers on the bus: its registers read as all ones",
            (f"hwmon: {hottest:.0f} degrees Celsius",),
            gpu.address,
        )
    return Observation(
        f"{gpu.title} no longer answers on the bus: its configuration space reads as all ones",
        ("lspci.txt: rev ff, unknown header type 7f",),
        gpu.address,
    )


def _check_no_driver(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    if gpu.driver or gpu.driver is None or gpu.node or gpu.gone or machine.host.container:
        return None
    return Observation(f"no driver is bound to {gpu.title}", about=gpu.address)


def _check_other_driver(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    if gpu.driver in (None, "", "amdgpu", "vfio-pci", "pci-stub", "xen-pciback", "pciback"):
        return None
    return Observation(f"{gpu.title} is bound to {gpu.driver}, not to amdgpu", about=gpu.address)


def _check_not_in_kfd(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    if gpu.node or gpu.driver != "amdgpu" or not machine.kfd or gpu.integrated:
        return None
    return Observation(
        f"amdgpu drives {gpu.title}, but KFD does not list it",
        ("sys/class/kfd/kfd/topology/nodes has no node for this GPU",),
        gpu.address,
    )


def _check_refused_by_kfd(machine: InspectedMachine) -> Iterator[Observation]:
    for seen in make_event_rule("kfd")(machine):
        ours = any(is_about_our_gpu(line, machine) for line in seen.evidence)
        yield seen if ours else replace(seen, severity="note")


def _check_missing_kfd(machine: InspectedMachine) -> Iterator[Observation]:
    """Report a GPU that amdgpu started without KFD: there is no node and no topology, or the log lists the GPU's
    rings but not KFD's adjacent lines.
    """
    if machine.kfd is not None or machine.host.container:
        return
    started = any(gpu.driver == "amdgpu" or machine.start_logged(gpu) for gpu in machine.is_relevant)
    if not started and not machine.drives_unlisted_gpu:
        return
    nodes = {node.path for node in machine.nodes or ()}
    log = machine.log
    silent = log is not None and log.search("uses VM inv eng") and not log.search("kfd|CRAT table|Topology: Add")
    silent = silent and all(machine.start_logged(gpu) for gpu in machine.is_relevant)
    if machine.nodes is not None and "/dev/kfd" not in nodes:
        evidence = ["dev.txt: no /dev/kfd", "sys/class/kfd: not there"]
    elif silent and machine.nodes is None:
        evidence = ["kernel.log: amdgpu initialised the GPU, and no line is of KFD"]
    else:
        return
    built = (machine.linux.config or {}).get("CONFIG_HSA_AMD")
    if built == "y":
        evidence.append("boot/config: CONFIG_HSA_AMD=y")
        next_step = "`sudo dmesg | grep -iE 'kfd|hsa|crat'` shows why it did not start; check amdgpu.sched_policy"
    else:
        next_step = "use a kernel with CONFIG_HSA_AMD=y (`grep HSA_AMD /boot/config-$(uname -r)`)"
    yield Observation(evidence=tuple(evidence), next=next_step)


def _check_unsupported(machine: InspectedMachine) -> Iterator[Observation]:
    alone = not any(gpu.is_relevant for gpu in machine.gpus)
    for gpu in machine.gpus:
        if not gpu.is_relevant:
            yield Observation(
                f"{gpu.title}: this version generates packets for gfx11 and gfx12 only",
                about=gpu.address,
                severity="broken" if alone else "note",
                next="use --tier t_cpu here" if alone else "nothing: use the other GPU",
            )


RULES = (
    DoctorRule(
        "gpu.none",
        "note",
        "no AMD GPU in this machine",
        "t1 and t2 need one; the CPU runs every model, on t_cpu_native",
        f"another GPU can run them through its Vulkan driver: zinc-rt vulkan-test; {SIMULATED}",
        BOTH,
        _check_no_gpu,
    ),
    DoctorRule(
        "gpu.gone",
        "broken",
        "the GPU no longer answers on the bus",
        "it cannot be used before a reset, which usually requires a power cycle",
        (
            "power-cycle the machine (a reboot is not enough); then check power cables, riser, slot, and "
            "amdgpu.runpm=0"
        ),
        BOTH,
        check_each_gpu(_check_gone),
    ),
    DoctorRule(
        "gpu.vfio",
        "broken",
        "the GPU is assigned to a virtual machine",
        "amdgpu cannot use a device that is bound to another driver",
        "run inside that virtual machine, or remove its ids from vfio-pci.ids and reboot",
        BOTH,
        check_each_gpu(_check_vfio),
    ),
    DoctorRule(
        "gpu.no-driver",
        "broken",
        "no driver is bound to the GPU",
        "t1 and t2 both require amdgpu",
        "sudo modprobe amdgpu, then `sudo dmesg | grep -i amdgpu` shows why it fails",
        BOTH,
        check_each_gpu(_check_no_driver),
    ),
    DoctorRule(
        "gpu.other-driver",
        "broken",
        "the GPU is bound to another driver",
        "t1 and t2 both require amdgpu",
        "unbind it, and check /etc/modprobe.d for a blacklist of amdgpu",
        BOTH,
        check_each_gpu(_check_other_driver),
    ),
    DoctorRule(
        "gpu.not-in-kfd",
        "broken",
        "KFD does not list the GPU",
        "t1 submits through /dev/kfd and cannot use the GPU there; t2 does not need KFD",
        (
            "`sudo dmesg | grep -i kfd` shows the reason: PCIe atomics, errors during initialisation, a "
            "device cgroup"
        ),
        (T1,),
        check_each_gpu(_check_not_in_kfd),
    ),
    DoctorRule(
        "kfd.absent",
        "broken",
        "this machine has no KFD",
        "t1 submits through /dev/kfd; t2 does not need it",
        "use a kernel with CONFIG_HSA_AMD=y",
        (T1,),
        _check_missing_kfd,
    ),
    DoctorRule(
        "kfd.parameter",
        "broken",
        "KFD rejected a module parameter and did not start",
        "amdgpu works without KFD, but there is no /dev/kfd: t1 cannot be used",
        "remove amdgpu.sched_policy and amdgpu.max_num_of_queues_per_device from the command line and "
        "/etc/modprobe.d, and reboot",
        (T1,),
        make_event_rule("kfd-parameter"),
    ),
    DoctorRule(
        "kfd.cwsr-size",
        "broken",
        "KFD refuses queues: the program's area to save waves has another size than the kernel expects",
        "kernels since 6.12 check the size that the runtime computes; creating a queue ends with EINVAL",
        "use a runtime (ROCr, tinygrad) of the age of this kernel, or a kernel of the age of the runtime; not "
        "amdgpu.cwsr_enable=0, which does not change the size",
        (T1,),
        make_event_rule("cwsr-size"),
    ),
    DoctorRule(
        "kfd.refused",
        "broken",
        "KFD rejected the GPU",
        "t1 submits through /dev/kfd and cannot use a GPU that KFD skipped",
        "see the reason in the log line; a newer kernel or another slot may help",
        (T1,),
        _check_refused_by_kfd,
    ),
    DoctorRule(
        "gpu.unsupported",
        "note",
        "a GPU of another generation",
        "this version cannot generate packets for it",
        "use --tier t_cpu here",
        BOTH,
        _check_unsupported,
    ),
)
