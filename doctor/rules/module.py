"""Rules about the driver module and its kernel: installed, loaded, right version, not blocked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.read_machine import parse_version
from zinc_rt.doctor.rule import BOTH, T1, DoctorRule, Observation, make_event_rule


def _check_blacklist(machine: InspectedMachine) -> Iterator[Observation]:
    by = machine.module.blacklisted_by
    if by is None:
        return
    if machine.module.loaded and any(gpu.driver == "amdgpu" for gpu in machine.gpus):
        return  # loaded by hand since
    yield Observation(f"loading of amdgpu is prevented by {by}", (by,))


def _check_rejected_module(machine: InspectedMachine) -> Iterator[Observation]:
    yield from make_event_rule("module-rejected")(machine)
    output = machine.log is not None and machine.log.named("module-rejected")
    dkms = [name for name in machine.packages or {} if "dkms" in name and "amdgpu" in name]
    secured = machine.host.secure_boot or machine.host.lockdown in ("integrity", "confidentiality")
    unbound = machine.gpus and all(gpu.driver == "" for gpu in machine.is_relevant)
    if (
        secured
        and dkms
        and not output
        and (machine.module.loaded is False or unbound)
        and not machine.module.blacklisted_by
    ):
        yield Observation(
            (
                "amdgpu comes from DKMS, Secure Boot is on, and the module is not loaded: a missing "
                "signature is the most likely cause"
            ),
            (f"packages.txt: {dkms[0]}", "Secure Boot: on"),
        )


def _check_not_loaded(machine: InspectedMachine) -> Iterator[Observation]:
    if machine.module.loaded is False and machine.gpus and not machine.host.container:
        yield Observation(evidence=("proc/modules: no amdgpu",))


def _check_missing_kfd(machine: InspectedMachine) -> Iterator[Observation]:
    config = machine.linux.config
    if (
        config
        and "CONFIG_DRM_AMDGPU" in config
        and config.get("CONFIG_HSA_AMD") != "y"
        and not machine.module.dkms
    ):
        yield Observation(evidence=("boot/config: CONFIG_HSA_AMD is not set",))


def _check_missing_amdgpu(machine: InspectedMachine) -> Iterator[Observation]:
    config = machine.linux.config
    if (
        config
        and len(config) > 20
        and config.get("CONFIG_DRM_AMDGPU") not in ("y", "m")
        and not machine.module.loaded
    ):
        yield Observation(evidence=("boot/config: CONFIG_DRM_AMDGPU is not set",))


def _check_old_kernel(machine: InspectedMachine) -> Iterator[Observation]:
    now = machine.linux.version
    if re.search(r"\.el\d", machine.linux.release or ""):
        return  # an enterprise kernel's number says nothing of its drivers
    packages = machine.packages or {}
    if now is None or machine.module.dkms or any("dkms" in name and "amdgpu" in name for name in packages):
        return
    for gpu in machine.is_relevant:
        if gpu.chip and now[:2] < gpu.chip.linux and not gpu.started:
            text = ".".join(map(str, gpu.chip.linux))
            yield Observation(
                f"Linux {machine.linux.release} is older than the support for {gpu.title}, added in {text}",
                (f"proc/version: {machine.linux.release}",),
                gpu.address,
                next=f"use Linux {text} or newer, or AMD's amdgpu-dkms",
            )


def _check_unused_dkms(machine: InspectedMachine) -> Iterator[Observation]:
    """Report an unused module: amdgpu-dkms is installed, but the kernel's own module is loaded, because the
    package was not built for this kernel.
    """
    package = (machine.packages or {}).get("amdgpu-dkms")
    if not package or machine.module.dkms is not False or not machine.module.loaded:
        return
    yield Observation(
        f"amdgpu-dkms {package} is installed, but the kernel's own amdgpu is loaded",
        (f"packages.txt: amdgpu-dkms {package}", "sys/module/amdgpu/version: not there"),
    )


def _check_dkms_version(machine: InspectedMachine) -> Iterator[Observation]:
    package = (machine.packages or {}).get("amdgpu-dkms")
    loaded, packed = parse_version(machine.module.version), parse_version(package)
    if loaded and packed and machine.module.dkms and loaded[:3] != packed[:3]:
        yield Observation(
            f"amdgpu {machine.module.version} is loaded, but the package is {package}",
            (f"sys/module/amdgpu/version: {machine.module.version}", f"packages.txt: amdgpu-dkms {package}"),
        )


def _check_dkms(machine: InspectedMachine) -> Iterator[Observation]:
    if machine.module.dkms:
        yield Observation(f"amdgpu comes from DKMS: {machine.module.version or 'version unknown'}")


def _check_unconfigured_package(machine: InspectedMachine) -> Iterator[Observation]:
    for name in machine.unconfigured:
        if name == "amdgpu-dkms" and machine.module.dkms is False:
            continue  # module.dkms-unused knows which module runs instead
        if re.fullmatch(r"(?:amdgpu|rock)-dkms.*|dkms|linux-(?:image|modules|firmware).*|firmware-amd.*", name):
            yield Observation(f"the package {name} could not be configured", (f"packages.txt: {name}",))


RULES = (
    DoctorRule(
        "module.blacklisted",
        "broken",
        "loading of amdgpu is prevented",
        "t1 and t2 both require amdgpu",
        "remove that entry from the command line or file, rebuild the initramfs, and reboot",
        BOTH,
        _check_blacklist,
    ),
    DoctorRule(
        "module.modeset-off",
        "broken",
        "amdgpu is disabled by nomodeset",
        "with nomodeset amdgpu does not initialise, including its compute part",
        "remove nomodeset (or amdgpu.modeset=0) from the kernel command line",
        BOTH,
        make_event_rule("modeset-off"),
    ),
    DoctorRule(
        "module.rejected",
        "broken",
        "the kernel rejected the module: its signature is not trusted (Secure Boot)",
        "a DKMS module is signed with the machine's own key, which must be enrolled for Secure Boot",
        (
            "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der (or /var/lib/dkms/mok.pub), reboot, "
            "enrol the key; or disable Secure Boot"
        ),
        BOTH,
        _check_rejected_module,
    ),
    DoctorRule(
        "module.mismatch",
        "broken",
        "the module does not match the running kernel: version magic or symbols differ",
        "a module built for another kernel cannot be loaded",
        (
            "reboot after a kernel update; for DKMS: sudo dkms autoinstall, with the headers of this "
            "kernel installed"
        ),
        BOTH,
        make_event_rule("module-mismatch"),
    ),
    DoctorRule(
        "module.not-loaded",
        "broken",
        "the module amdgpu is not loaded",
        "t1 and t2 both require amdgpu",
        "sudo modprobe amdgpu; `sudo dmesg | tail` shows why it fails",
        BOTH,
        _check_not_loaded,
    ),
    DoctorRule(
        "module.no-amdgpu",
        "broken",
        "this kernel was built without amdgpu",
        "t1 and t2 both require amdgpu",
        (
            "use a kernel with CONFIG_DRM_AMDGPU=m (a distribution's generic kernel; cloud and virtual "
            "flavours omit it)"
        ),
        BOTH,
        _check_missing_amdgpu,
    ),
    DoctorRule(
        "module.no-kfd",
        "broken",
        "this kernel's amdgpu was built without KFD",
        "t1 submits through /dev/kfd; t2 does not need it",
        "use a kernel with CONFIG_HSA_AMD=y, or --tier t2",
        (T1,),
        _check_missing_kfd,
    ),
    DoctorRule(
        "module.kernel-too-old",
        "broken",
        "the kernel is older than the GPU",
        "its amdgpu does not support the chip, or only in part",
        "use a newer kernel, or AMD's amdgpu-dkms",
        BOTH,
        _check_old_kernel,
    ),
    DoctorRule(
        "module.dkms-unused",
        "warning",
        "amdgpu-dkms is installed, but the kernel's own amdgpu is loaded",
        (
            "the loaded module is not the one that was tested with DKMS: the build for this kernel is "
            "missing or failed"
        ),
        "dkms status; sudo apt install linux-headers-$(uname -r); sudo dkms autoinstall; reboot",
        BOTH,
        _check_unused_dkms,
    ),
    DoctorRule(
        "module.unconfigured",
        "warning",
        "a package of the driver could not be configured",
        "its module was not built or not installed: another one, or none, is loaded",
        "sudo dpkg --configure -a shows why: most often DKMS cannot build for this kernel",
        BOTH,
        _check_unconfigured_package,
    ),
    DoctorRule(
        "module.dkms-stale",
        "warning",
        "the loaded amdgpu is not the installed one",
        "the machine was not rebooted after a module update, or the initramfs contains the old module",
        "sudo update-initramfs -u -k all (dracut -f), then reboot",
        BOTH,
        _check_dkms_version,
    ),
    DoctorRule(
        "module.dkms",
        "note",
        "amdgpu comes from DKMS",
        "results differ between the kernel's module and AMD's: state in reports which one is loaded",
        "",
        BOTH,
        _check_dkms,
    ),
)
