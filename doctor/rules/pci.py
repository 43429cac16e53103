"""Rules about the PCIe path to the card: link, BARs, atomics, ACS. For its errors see bus_errors.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.doctor import lspci
from zinc_rt.doctor.logs import LogEvent
from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine, Link
from zinc_rt.doctor.rule import (
    BOTH,
    T1,
    DoctorRule,
    Observation,
    check_each_gpu,
    is_about_our_gpu,
    make_event_rule,
    observe_events,
)
from zinc_rt.doctor.rules.parameters import read_parameter as parameter

NARROW = 4  # lanes: below half of what boards give when two slots share them
SLOW = 8.0  # GT/s (PCIe 3)
BUSY = 50  # percent: an idle GPU lowers its link speed, a busy one does not
GIVEN_UP_LINES = 5  # from a failed resize to the end of the start that it causes
SMALLEST_VRAM = 8 << 30  # of the cards of gfx11 and gfx12


def _check_narrow_link(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """Compare the narrowest link on the path to the host with the lanes that the GPU supports. An APU has no
    link.
    """
    if gpu.integrated or machine.host.hypervisor:  # a virtual bridge tells of no lanes
        return None
    links = [link for link in gpu.links if link.width]
    limited = _find_limiting_link(gpu, machine)
    if limited:
        links.append(limited)
    widest = max((link.width_most or link.width or 0 for link in links), default=0)
    narrowest = min(links, key=lambda link: link.width or 0, default=None)
    if narrowest is None or narrowest.width is None or narrowest.width >= 16 or narrowest.width >= widest:
        return None
    ends = _find_link_ends(gpu, narrowest)
    able = min((end.width_most or 0 for end in ends), default=0) if len(ends) == 2 else 0
    # two cards may share the lanes of one slot, whatever its port states
    trained = able > narrowest.width and (narrowest.width < 8 or len(_find_peers(machine)) < 2)
    return Observation(
        f"the PCIe link to {gpu.title} has {narrowest.width} lanes of {widest} (at {narrowest.address})",
        (
            f"{narrowest.address}: x{narrowest.width} of x{narrowest.width_most or widest}, "
            f"{narrowest.speed or 0:g} GT/s",
            *([f"both ends of this link can use x{able}: it was trained with fewer"] if trained else []),
        ),
        gpu.address,
        severity="warning" if trained or narrowest.width <= NARROW else "note",
        next="both ends support more: reseat the card and its riser, clean the contacts, check for bent pins, and "
        "the slot's lanes in the BIOS (bifurcation)"
        if trained
        else "",
    )


def _find_link_ends(gpu: InspectedGpu, link: Link) -> tuple[Link, ...]:
    """The two ends of a link on the path: a function and the port above it. Every other pair is one card."""
    offset = next(
        (index for index, item in enumerate(gpu.links) if item.address == link.address and item.address), None
    )
    if offset is None:
        return ()
    lower = (
        offset if offset % 2 == (len(gpu.links) - 2) % 2 else offset - 1
    )  # the root port is the upper end of the last link
    pair = gpu.links[lower : lower + 2] if lower >= 0 else ()
    return pair if len(pair) == 2 and all(item.width == link.width for item in pair) else ()


def _find_limiting_link(gpu: InspectedGpu, machine: InspectedMachine) -> Link | None:
    """Report the kernel's own message from when the GPU was detected."""
    search = machine.log.search(
        rf"{re.escape(gpu.address)}: .*limited by (\d+(?:\.\d+)?) GT/s PCIe x(\d+) link at (\S+) "
        r"\(capable of .*? with (\d+(?:\.\d+)?) GT/s PCIe x(\d+)"
    ) if machine.log and gpu.address else None  # fmt: skip
    if not search:
        return None
    return Link(search[3], float(search[1]), int(search[2]), float(search[4]), int(search[5]))


def _check_slow_link(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """Report a slow link by its maximum speed, because an idle GPU temporarily lowers the current one."""
    if gpu.integrated or machine.host.hypervisor:
        return None
    functions = _read_functions(machine)
    tunnels = {address for address, item in functions.items() if re.search("Thunderbolt|USB4", item.title)}
    if any(link.address in tunnels for link in gpu.links):
        return None  # a tunnel states 2.5 GT/s whatever it carries
    max_speeds = [link.speed_most for link in gpu.links if link.speed_most]
    limited = _find_limiting_link(gpu, machine)
    targets = [speed for link in gpu.links[1:] if (speed := _read_target_speed(functions.get(link.address)))]
    slowest = min([*max_speeds, *targets, *([limited.speed] if limited and limited.speed else [])], default=None)
    if slowest is not None and slowest < SLOW:
        return Observation(f"the PCIe link to {gpu.title} runs at {slowest:g} GT/s at most", about=gpu.address)
    own = _check_current_speed(gpu, machine)
    if own is None or (gpu.busy_percent or 0) < BUSY:
        return None
    return Observation(
        f"{own.title}, while the GPU is {gpu.busy_percent} % busy",
        (f"gpu_busy_percent: {gpu.busy_percent}",),
        gpu.address,
    )


def _read_target_speed(port: lspci.PciFunction | None) -> float | None:
    """Report a speed limit that the BIOS or an administrator set on this port."""
    match = re.search(r"LnkCtl2: Target Link Speed: (\d+(?:\.\d+)?)GT/s", port.text) if port else None
    return float(match[1]) if match else None


def _check_current_speed(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """Report a current speed far below the link's maximum, which an idle GPU causes, but also a bad slot."""
    own = next((link for link in gpu.links if link.speed and link.speed_most), None)
    if own is None or gpu.integrated or machine.host.hypervisor or (own.speed or 0) > (own.speed_most or 0) / 4:
        return None
    return Observation(
        f"the PCIe link to {gpu.title} runs at {own.speed:g} of {own.speed_most:g} GT/s now", about=gpu.address
    )


def _check_small_bar(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """Report a small BAR, according to amdgpu's sysfs, else the card's resizable BAR, else amdgpu's message at
    start.
    """
    if gpu.integrated:
        return None
    visible = gpu.visible_bytes if gpu.visible_bytes is not None else gpu.bar_bytes
    maximum, evidence = gpu.vram_bytes, ("mem_info_vis_vram_total", "mem_info_vram_total")
    own = _read_functions(machine).get(gpu.address)
    if not maximum and own and 0 in own.bar_sizes:
        (visible, maximum), evidence = own.bar_sizes[0], ("lspci.txt: BAR 0 now", "lspci.txt: BAR 0 at most")
    search = machine.log.search(r"Detected VRAM RAM=(\d+)M, BAR=(\d+)M") if machine.log else None
    if not maximum and search and len(machine.gpus) == 1:
        visible, maximum = int(search[2]) << 20, int(search[1]) << 20
        evidence = ("kernel.log: BAR", "kernel.log: VRAM")
    if not maximum and visible and gpu.is_relevant and gpu.chip:
        maximum, evidence = SMALLEST_VRAM, ("lspci.txt: Region 0", f"the smallest VRAM of {gpu.chip.name}")
    if not visible or not maximum or visible >= maximum * 0.9:
        return None
    if gpu.bar_bytes and gpu.bar_bytes >= maximum * 0.9 and parameter(machine, "vis_vramlimit"):
        return None  # the BAR is large, and the limit was asked for
    return Observation(
        (
            f"the CPU can access {visible >> 20} MiB of the {maximum >> 20} MiB of VRAM of {gpu.title}: "
            "resizable BAR is off"
        ),
        (f"{evidence[0]}: {visible}", f"{evidence[1]}: {maximum}"),
        gpu.address,
    )


def _lost_and_kept(machine: InspectedMachine) -> tuple[list[LogEvent], list[LogEvent]]:
    """Return the refused BARs without an address, and those that have one nevertheless: only a resize failed."""
    if machine.log is None:
        return [], []
    lost, kept = [], []
    failed = machine.log.named("init-failed")
    for event in machine.log.named("bar-unassigned"):
        bar = re.search(r"BAR (\d)", event.text)
        later = (
            rf"{re.escape(event.address)}: BAR {bar[1]}(?: \[[^\]]*\])?: (?:assigned|releasing)" if bar else None
        )
        # a resize takes both BARs away and assigns them again; the driver ends if one stays without an address
        resized = rf"{re.escape(event.address)}: BAR 0(?: \[[^\]]*\])?: assigned"
        if (
            event.address
            and not failed
            and any(re.search(resized, line) for line in machine.log.lines[event.at + 1 :])
        ):
            kept.append(event)
        elif not later or not any(re.search(later, line) for line in machine.log.lines[event.at + 1 :]):
            lost.append(event)
        else:
            kept.append(event)
    return lost, kept


def _resize_failed(machine: InspectedMachine) -> Iterator[Observation]:
    yield from make_event_rule("bar-resize")(machine)
    _, kept = _lost_and_kept(machine)
    if kept and machine.log and not machine.log.named("bar-resize"):
        yield observe_events(machine, kept, kept[0].address)


def _check_unassigned_bars(machine: InspectedMachine) -> Iterator[Observation]:
    """BARs that the kernel found no room for, and did not find any later."""
    if machine.log is None:
        return
    lost, _ = _lost_and_kept(machine)
    started = {gpu.address for gpu in machine.gpus if gpu.started and not machine.log.named("init-failed")}
    lost = [event for event in lost if event.address not in started]
    if lost:
        yield observe_events(machine, lost, lost[0].address)
        return
    for resize in machine.log.named("bar-resize"):
        # amdgpu_device_resize_fb_bar: -ENODEV where BAR 0 or the doorbells have no address after the resize
        ended = [
            event
            for event in machine.log.named("init-failed")
            if "failed -19" in event.text and 0 < event.at - resize.at <= GIVEN_UP_LINES
        ]
        if ended:
            seen = observe_events(machine, [resize, *ended], ended[0].address)
            yield replace(seen, title="the BARs of the GPU have no address after the driver tried to resize them")
            return
    refused = [event for event in machine.log.named("init-failed") if "failed with error -12" in event.text]
    elsewhere = machine.log.search(r"BAR \d+.*(?:mem size.*(?:can't assign|failed to assign)|no space for \[mem)")
    if refused and elsewhere and not any(gpu.started for gpu in machine.gpus):
        seen = observe_events(machine, refused, refused[0].address)
        yield replace(
            seen,
            title="the host has no address space left: the GPU's probe ends with -12 (ENOMEM)",
            evidence=(*seen.evidence, f"kernel.log: {elsewhere.string}"),
        )


def _check_zero_bar(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    if gpu.bar_bytes != 0 or gpu.node or gpu.gone or gpu.integrated or gpu.driver == "amdgpu":
        return None
    return Observation(f"BAR 0 of {gpu.title} has no address", ("lspci.txt: Region 0 is unassigned",), gpu.address)


def _check_atomics(machine: InspectedMachine) -> Iterator[Observation]:
    """Healthy machines also log "not supported" if the firmware lacks the feature; "rejects" is an actual
    rejection.
    """
    for event in machine.log.named("atomics") if machine.log else ():
        refused = "rejects" in event.text.lower() and is_about_our_gpu(event.text, machine)
        old = re.search(r"rejects atomics (\d+)<(\d+)", event.text)
        if not refused:
            continue
        yield Observation(
            "KFD rejects the GPU: this slot does not support PCIe atomics"
            + (f", and its MEC firmware {old[1]} is older than {old[2]}, which does not need them" if old else ""),
            (f"kernel.log: {event.text}",),
            at=event.at,
            next="update linux-firmware, rebuild the initramfs and reboot; or use a slot connected to the CPU"
            if old
            else "use a slot connected to the CPU, not to the chipset, and no riser or Thunderbolt",
        )
        return


def _find_peers(machine: InspectedMachine) -> list[InspectedGpu]:
    return [gpu for gpu in machine.is_relevant if not gpu.integrated]


def _check_acs(machine: InspectedMachine) -> Iterator[Observation]:
    """Only where GPUs may talk to each other."""
    gpus = _find_peers(machine)
    if len(gpus) < 2:
        return
    functions = _read_functions(machine)
    redirecting = {
        bridge.address
        for gpu in gpus
        for bridge in (lspci.find_bridge_chain(functions, gpu.address) if gpu.address else [])
        if re.search(r"ACSCtl:.*ReqRedir\+", bridge.text)
    }
    if redirecting:
        yield Observation(
            f"ACS sends traffic between the {len(gpus)} GPUs through the root complex "
            f"({', '.join(sorted(redirecting)[:3])})",
            ("lspci.txt: ACSCtl: ReqRedir+",),
        )


def _check_iommu_peers(machine: InspectedMachine) -> Iterator[Observation]:
    if len(_find_peers(machine)) >= 2 and machine.host.iommu == "translated":
        yield Observation(
            "the IOMMU translates transfers between the GPUs",
            next="boot with iommu=pt for transfers between GPUs",
        )


def _read_functions(machine: InspectedMachine) -> dict[str, lspci.PciFunction]:
    return lspci.parse_lspci(machine.capture.text("lspci.txt") or "")


RULES = (
    DoctorRule(
        "pci.bar-unassigned",
        "broken",
        "the board firmware assigned no address to the GPU's memory",
        "the driver cannot access the card without its BARs",
        (
            "BIOS: enable Above 4G Decoding (and Resizable BAR); then pci=realloc on the command line; "
            "update the BIOS"
        ),
        BOTH,
        _check_unassigned_bars,
    ),
    DoctorRule(
        "pci.bar-zero",
        "broken",
        "BAR 0 has no address",
        "the driver cannot access the card without its BARs",
        (
            "BIOS: enable Above 4G Decoding (and Resizable BAR); then pci=realloc on the command line; "
            "update the BIOS"
        ),
        BOTH,
        check_each_gpu(_check_zero_bar),
    ),
    DoctorRule(
        "pci.atomics",
        "broken",
        "KFD rejects the GPU: no PCIe atomics",
        "t1 submits through KFD, which skips such a GPU; t2 does not require them",
        "use a slot connected to the CPU, not to the chipset, and no riser or Thunderbolt",
        (T1,),
        _check_atomics,
    ),
    DoctorRule(
        "pci.link-width",
        "warning",
        "the PCIe link has few lanes",
        "uploads of weights and copies are slower by that factor; dispatches are not",
        "use a slot with 16 lanes; reseat the card; check that no M.2 slot shares its lanes",
        BOTH,
        check_each_gpu(_check_narrow_link),
    ),
    DoctorRule(
        "pci.link-speed",
        "warning",
        "the PCIe link is slow",
        "uploads of weights and copies are slower by that factor; dispatches are not",
        "check the slot and its speed in the BIOS, the riser, amdgpu.pcie_gen_cap",
        BOTH,
        check_each_gpu(_check_slow_link),
    ),
    DoctorRule(
        "pci.link-speed-now",
        "note",
        "the PCIe link is slow at the moment",
        "an idle GPU lowers its link speed and raises it under load",
        "check again under load; if it remains slow: the slot, its speed in the BIOS, the riser",
        BOTH,
        check_each_gpu(_check_current_speed),
    ),
    DoctorRule(
        "pci.small-bar",
        "warning",
        "resizable BAR is off",
        "the CPU writes weights through a small window: slower uploads, and less host-visible VRAM "
        "for rings and buffers",
        "BIOS: enable Above 4G Decoding and Resizable BAR (Smart Access Memory), CSM off",
        BOTH,
        check_each_gpu(_check_small_bar),
    ),
    DoctorRule(
        "pci.bar-resize",
        "note",
        "the driver could not resize the BAR",
        "the CPU can access only part of VRAM",
        "BIOS: enable Above 4G Decoding and Resizable BAR",
        BOTH,
        _resize_failed,
    ),
    DoctorRule(
        "pci.acs",
        "note",
        "ACS is on above several GPUs",
        "transfers between GPUs take a detour; a single GPU is not affected",
        "BIOS: disable ACS if transfers between GPUs matter and no virtual machine needs the isolation",
        BOTH,
        _check_acs,
    ),
    DoctorRule(
        "pci.iommu-peers",
        "note",
        "the IOMMU is active between several GPUs",
        "RCCL warns of hangs in this case (its `Missing iommu=pt`); a single GPU is not affected",
        "boot with iommu=pt",
        BOTH,
        _check_iommu_peers,
    ),
)
