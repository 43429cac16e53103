"""Rules about firmware: installed, accepted, recent enough."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine
from zinc_rt.doctor.rule import BOTH, T2, DoctorRule, Observation, make_event_rule, observe_events
from zinc_rt.isa.target import parse_major_version
from zinc_rt.kmd.userq_availability import EXCLUDED, MINIMA, UserqFacts

# Files the driver asks for and does without (amdgpu_psp.c, amdgpu_isp.c, amdgpu_vcn.c).
OPTIONAL = (
    "_cap.bin",
    "_ta.bin",
    "isp_",
    "_kicker",
    "vpe_",
    "umsch_",
    "/aldebaran_sjt",
    "ip_discovery.bin",
    "dmcu",
)

PACKAGES = (
    "amd-gpu-firmware",
    "linux-firmware-amdgpu",
    "kernel-firmware-amdgpu",
    "firmware-amd-graphics",
    "linux-firmware",
)
# Files without a substitute, unlike those of MES and TOC (gfx_v12_0.c, amdgpu_psp.c, amdgpu_smu.c, sdma_v7_0.c).
REQUIRED = re.compile(r"gc_\d+_\d+_\d+_(?:pfp|me|mec|rlc|imu)\.bin|psp_\d+_\d+_\d+_sos\.bin|sdma_\d|smu_\d")
REBUILD = "update {package}, rebuild the initramfs (update-initramfs -u, dracut -f, mkinitcpio -P), reboot"
GFX12_SINCE = 2024_12_01  # the cards came out in March 2025: no package of an earlier winter has their firmware


def _check_missing_files(machine: InspectedMachine) -> Iterator[Observation]:
    """Report a missing firmware file; it is an obstacle if the file is required or the start failed, otherwise the
    driver used another one.
    """
    log = machine.log
    if log is None:
        return
    events = [item for item in log.named("firmware-missing") if not any(word in item.file for word in OPTIONAL)]
    for address in dict.fromkeys(event.address for event in events):
        own = [event for event in events if event.address == address]
        files = list(dict.fromkeys(event.file for event in own if event.file))
        came_up = rf"Initialized amdgpu .* for {re.escape(address)}" if address else "Initialized amdgpu"
        later = any(re.search(came_up, line) for line in log.lines[own[0].at :])
        alive = any(gpu.started and gpu.address in (address, "") for gpu in machine.gpus)
        needed = any(REQUIRED.search(file) for file in files)
        done_without = later or (alive and not needed and not log.named("init-failed"))
        seen = observe_events(machine, own, address)
        package = next((name for name in PACKAGES if name in (machine.packages or {})), "linux-firmware")
        named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        yield Observation(
            f"firmware is missing: {named or 'the kernel found none'}",
            seen.evidence,
            seen.about,
            seen.at,
            severity="note" if done_without else seen.severity,
            next="nothing: the driver initialised without it" if done_without else REBUILD.format(package=package),
        )


def _check_old_package(machine: InspectedMachine) -> Iterator[Observation]:
    """Only if the driver did not start and the log does not show why, because distributions add files to old
    packages.
    """
    if machine.log is not None and machine.log.events:
        return
    for gpu in machine.is_relevant:
        for name in PACKAGES:
            date = re.match(r"(?:\d+:)?(20\d{6})", (machine.packages or {}).get(name, ""))
            if (
                date
                and parse_major_version(gpu.arch) == 12
                and gpu.node is None
                and gpu.driver == ""
                and int(date[1]) < GFX12_SINCE
            ):
                yield Observation(
                    f"{name} {date[1]} is older than {gpu.title}",
                    (f"packages.txt: {name} {date[1]}",),
                    gpu.address,
                )
                return


def _check_unreadable_files(machine: InspectedMachine) -> Iterator[Observation]:
    yield from make_event_rule("firmware-unreadable")(machine)


def _check_old_firmware(machine: InspectedMachine) -> Iterator[Observation]:
    """Report firmware below the minimum of user queues; it is an obstacle only if they were requested."""
    asked = machine.module.parameters.get("user_queue") in ("1", "2")
    for gpu in machine.is_relevant:
        generation = _read_generation(gpu)
        if generation is None or generation in EXCLUDED or generation not in MINIMA:
            continue
        old = UserqFacts(generation, 0, 0, None, gpu.firmware).too_old
        if old:
            yield Observation(
                f"firmware of {gpu.title} is too old for user queues: {', '.join(old)}",
                tuple(
                    f"firmware.txt: {name} {value}"
                    for name, value in gpu.firmware.items()
                    if name in MINIMA[generation]
                ),
                gpu.address,
                severity="warning" if asked else "note",
            )


def _check_missing_mes(machine: InspectedMachine) -> Iterator[Observation]:
    """Report a GPU without MES firmware: firmware.txt has a MES line of zeros for the only GPU, but its other
    firmware is loaded.
    """
    line = re.search(
        r"^MES feature version: \d+, firmware version: 0x0+$", machine.capture.text("firmware.txt") or "", re.M
    )
    if line is None or len(machine.gpus) != 1:
        return
    for gpu in machine.is_relevant:
        if gpu.arch and "MEC" in gpu.firmware and "MES" not in gpu.firmware:
            yield Observation(evidence=(f"firmware.txt: {line[0]}",), about=gpu.address)


def _check_excluded_versions(machine: InspectedMachine) -> Iterator[Observation]:
    for gpu in machine.is_relevant:
        if _read_generation(gpu) in EXCLUDED:
            yield Observation(
                f"{gpu.title}: the kernel does not support user queues on it, regardless of amdgpu.user_queue",
                about=gpu.address,
            )


def _read_generation(gpu: InspectedGpu) -> tuple[int, int, int] | None:
    digits = gpu.arch.removeprefix("gfx")
    if len(digits) != 4:
        return None
    return int(digits[:2]), int(digits[2], 16), int(digits[3], 16)


RULES = (
    DoctorRule(
        "firmware.missing",
        "broken",
        "firmware is missing",
        "the driver stops at the missing firmware: the GPU does not initialise without it",
        "update linux-firmware, rebuild the initramfs, reboot",
        BOTH,
        _check_missing_files,
    ),
    DoctorRule(
        "firmware.package-old",
        "warning",
        "the firmware package is older than the GPU",
        "the driver did not initialise, and the log gives no reason: firmware is the most likely cause",
        "update it, rebuild the initramfs, reboot; `sudo dmesg | grep -i firmware`",
        BOTH,
        _check_old_package,
    ),
    DoctorRule(
        "firmware.unreadable",
        "broken",
        "a firmware file is damaged or cannot be read",
        "the driver stops there: the GPU does not initialise without it",
        "reinstall linux-firmware; check that this kernel can unpack .zst and .xz "
        "(CONFIG_FW_LOADER_COMPRESS_*); rebuild the initramfs",
        BOTH,
        _check_unreadable_files,
    ),
    DoctorRule(
        "firmware.no-mes",
        "broken",
        "no MES firmware is loaded",
        "MES schedules every compute queue on gfx11 and gfx12: no queue can be created without it",
        "update linux-firmware (gc_*_mes*.bin, gc_*_uni_mes.bin) and reboot",
        BOTH,
        _check_missing_mes,
    ),
    DoctorRule(
        "firmware.old-for-t2",
        "note",
        "firmware is too old for user queues",
        "the kernel does not offer them below these versions; t1 does not need them",
        "update linux-firmware and reboot",
        (T2,),
        _check_old_firmware,
    ),
    DoctorRule(
        "firmware.no-user-queues",
        "note",
        "the kernel does not support user queues on this chip",
        "t2 is unavailable; t1 is available",
        "use --tier t1",
        (T2,),
        _check_excluded_versions,
    ),
)
