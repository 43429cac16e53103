"""The way to the card: link, BARs, atomics, errors of the bus, IOMMU, ACS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zinc_rt.doctor import lspci
from zinc_rt.doctor.machine import Gpu, Link, Machine
from zinc_rt.doctor.rule import BOTH, T1, Rule, Seen, each_gpu, from_events, logged

NARROW = 4  # lanes: below half of what boards give when two slots share them
SLOW = 8.0  # GT/s (PCIe 3)
CORRECTED_MANY = 20  # lines of corrected errors: one now and then is what correction is for


def _narrow(gpu: Gpu, machine: Machine) -> Seen | None:
    """The link with the fewest lanes on the way up, against what the GPU could use. An APU has no link."""
    if gpu.integrated or machine.host.hypervisor:  # a virtual bridge tells of no lanes
        return None
    links = [link for link in gpu.links if link.width]
    limited = _limited_by(gpu, machine)
    if limited:
        links.append(limited)
    most = max((link.width_most or link.width or 0 for link in links), default=0)
    least = min(links, key=lambda link: link.width or 0, default=None)
    if least is None or least.width is None or least.width >= 16 or least.width >= most:
        return None
    severity = "warning" if least.width <= NARROW else "note"
    return Seen(
        f"the PCIe link to {gpu.title} has {least.width} lanes of {most} (at {least.address})",
        (f"{least.address}: x{least.width} of x{least.width_most or most}, {least.speed or 0:g} GT/s",),
        gpu.address,
        severity="warning" if severity == "warning" else "note",
    )


def _limited_by(gpu: Gpu, machine: Machine) -> Link | None:
    """The kernel's own finding, as it printed it when the GPU was found."""
    said = machine.log.search(
        rf"{re.escape(gpu.address)}: .*limited by (\d+(?:\.\d+)?) GT/s PCIe x(\d+) link at (\S+) "
        r"\(capable of .*? with (\d+(?:\.\d+)?) GT/s PCIe x(\d+)"
    ) if machine.log and gpu.address else None  # fmt: skip
    if not said:
        return None
    return Link(said[3], float(said[1]), int(said[2]), float(said[4]), int(said[5]))


def _slow(gpu: Gpu, machine: Machine) -> Seen | None:
    """What the slot can do at most: an idle GPU lowers its speed and raises it again."""
    if gpu.integrated or machine.host.hypervisor:
        return None
    most = [link.speed_most for link in gpu.links if link.speed_most]
    limited = _limited_by(gpu, machine)
    slowest = min([*most, *([limited.speed] if limited and limited.speed else [])], default=None)
    if slowest is None or slowest >= SLOW:
        return None
    return Seen(f"the PCIe link to {gpu.title} runs at {slowest:g} GT/s at most", about=gpu.address)


def _slow_now(gpu: Gpu, machine: Machine) -> Seen | None:
    """Well below what the link could do, just now: what an idle GPU does, and a bad slot too."""
    own = next((link for link in gpu.links if link.speed and link.speed_most), None)
    if own is None or gpu.integrated or machine.host.hypervisor or (own.speed or 0) > (own.speed_most or 0) / 4:
        return None
    return Seen(
        f"the PCIe link to {gpu.title} runs at {own.speed:g} of {own.speed_most:g} GT/s now", about=gpu.address
    )


def _small_bar(gpu: Gpu, machine: Machine) -> Seen | None:
    """By what amdgpu says in sysfs, else the card's resizable BAR, else the line amdgpu prints at its start."""
    if gpu.integrated:
        return None
    visible = gpu.visible_bytes if gpu.visible_bytes is not None else gpu.bar_bytes
    most, evidence = gpu.vram_bytes, ("mem_info_vis_vram_total", "mem_info_vram_total")
    own = _functions(machine).get(gpu.address)
    if not most and own and 0 in own.bar_sizes:
        (visible, most), evidence = own.bar_sizes[0], ("lspci.txt: BAR 0 now", "lspci.txt: BAR 0 at most")
    said = machine.log.search(r"Detected VRAM RAM=(\d+)M, BAR=(\d+)M") if machine.log else None
    if not most and said and len(machine.gpus) == 1:
        visible, most = int(said[2]) << 20, int(said[1]) << 20
        evidence = ("kernel.log: BAR", "kernel.log: VRAM")
    if not visible or not most or visible >= most * 0.9:
        return None
    return Seen(
        f"the CPU reaches {visible >> 20} MiB of the {most >> 20} MiB of VRAM of {gpu.title}: "
        "resizable BAR is off",
        (f"{evidence[0]}: {visible}", f"{evidence[1]}: {most}"),
        gpu.address,
    )


def _unassigned(machine: Machine) -> Iterator[Seen]:
    """BARs that the kernel found no room for, and did not find any later."""
    if machine.log is None:
        return
    lost = []
    for event in machine.log.named("bar-unassigned"):
        bar = re.search(r"BAR (\d)", event.text)
        later = (
            rf"{re.escape(event.address)}: BAR {bar[1]}(?: \[[^\]]*\])?: (?:assigned|releasing)" if bar else None
        )
        if not later or not any(re.search(later, line) for line in machine.log.lines[event.at + 1 :]):
            lost.append(event)
    started = {gpu.address for gpu in machine.gpus if gpu.node}
    lost = [event for event in lost if event.address not in started]
    if lost:
        yield from_events(machine, lost, lost[0].address)


def _zero_bar(gpu: Gpu, machine: Machine) -> Seen | None:
    if gpu.bar_bytes != 0 or gpu.node or gpu.gone or gpu.integrated or gpu.driver == "amdgpu":
        return None
    return Seen(f"BAR 0 of {gpu.title} has no address", ("lspci.txt: Region 0 is unassigned",), gpu.address)


def _corrected(machine: Machine) -> Iterator[Seen]:
    events = machine.log.named("aer-corrected") if machine.log else ()
    if len(events) >= CORRECTED_MANY:
        yield from_events(machine, list(events), events[0].address)


def _atomics(machine: Machine) -> Iterator[Seen]:
    """Healthy machines say "not supported" as well, where firmware does without; "rejects" is a refusal."""
    for event in machine.log.named("atomics") if machine.log else ():
        refused = "rejects" in event.text.lower()
        if machine.kfd and all(gpu.node for gpu in machine.wanted):
            return  # of another GPU: all of ours are listed
        old = re.search(r"rejects atomics (\d+)<(\d+)", event.text)
        if not refused:
            continue
        yield Seen(
            "KFD refuses the GPU: this slot carries no PCIe atomics"
            + (f", and its MEC firmware {old[1]} is older than {old[2]}, which does without" if old else ""),
            (f"kernel.log: {event.text}",),
            at=event.at,
            next=(
                "update linux-firmware, rebuild the initramfs and boot again; or use a slot of the processor's own"
            )
            if old
            else "use a slot of the processor's own, not of the chipset or behind a riser or Thunderbolt",
        )
        return


def _counted(gpu: Gpu, machine: Machine) -> Seen | None:
    """Errors the kernel counts in sysfs, of the GPU and of the bridges above it."""
    folders = [f"sys/class/drm/{gpu.card}/device", *(_folder(machine, link.address) for link in gpu.links)]
    found = []
    for folder in folders:
        for name in ("aer_dev_fatal", "aer_dev_nonfatal") if folder else ():
            total = re.search(r"TOTAL_ERR_\w+ (\d+)", machine.capture.text(f"{folder}/{name}") or "")
            if total and int(total[1]):
                found.append(f"{folder}/{name}: {total[1]}")
    return Seen(evidence=tuple(found), about=gpu.address) if found else None


def _folder(machine: Machine, address: str) -> str:
    ends = f"/{address}/aer_dev_fatal"
    name = next((name for name in machine.capture.files if address and name.endswith(ends)), "")
    return name.rpartition("/")[0]


def _latched(gpu: Gpu, machine: Machine) -> Seen | None:
    """Bits of the AER status that stay set until somebody clears them: `UESta: ... CmpltTO+`."""
    functions = _functions(machine)
    own = functions.get(gpu.address)
    for function in [*([own] if own else []), *(lspci.chain(functions, gpu.address) if own else [])]:
        status = re.search(r"UESta:(.*)", function.text)
        bits = re.findall(r"\b(DLP|SDES|CmpltTO|MalfTLP|TLP|FCP)\+", status[1]) if status else []
        if bits and not function.gone:
            return Seen(
                f"the PCIe link to {gpu.title} had errors: {', '.join(bits)} at {function.address}",
                (f"lspci.txt: {function.address} UESta:{status[1][:100] if status else ''}",),
                gpu.address,
            )
    return None


def _peers(machine: Machine) -> list[Gpu]:
    return [gpu for gpu in machine.wanted if not gpu.integrated]


def _acs(machine: Machine) -> Iterator[Seen]:
    """Only where GPUs may talk to each other."""
    gpus = _peers(machine)
    if len(gpus) < 2:
        return
    functions = _functions(machine)
    redirecting = {
        bridge.address
        for gpu in gpus
        for bridge in (lspci.chain(functions, gpu.address) if gpu.address else [])
        if re.search(r"ACSCtl:.*ReqRedir\+", bridge.text)
    }
    if redirecting:
        yield Seen(
            f"ACS sends traffic between the {len(gpus)} GPUs through the root complex "
            f"({', '.join(sorted(redirecting)[:3])})",
            ("lspci.txt: ACSCtl: ReqRedir+",),
        )


def _iommu_peers(machine: Machine) -> Iterator[Seen]:
    if len(_peers(machine)) >= 2 and machine.host.iommu == "translated":
        yield Seen(
            "the IOMMU translates what the GPUs send each other",
            next="boot with iommu=pt for transfers between GPUs",
        )


def _functions(machine: Machine) -> dict[str, lspci.Function]:
    return lspci.parse(machine.capture.text("lspci.txt") or "")


_SEAT = (
    "reseat the card and its power cables, try without a riser, another slot, PCIe speed set by hand in the BIOS, "
    "pcie_aspm=off"
)
RULES = (
    Rule(
        "pci.bar-unassigned",
        "broken",
        "the firmware of the board gave the GPU's memory no address",
        "without its BARs the driver cannot reach the card at all",
        "BIOS: enable Above 4G Decoding (and Resizable BAR); then pci=realloc on the command line; a BIOS update",
        BOTH,
        _unassigned,
    ),
    Rule(
        "pci.bar-zero",
        "broken",
        "BAR 0 has no address",
        "without its BARs the driver cannot reach the card at all",
        "BIOS: enable Above 4G Decoding (and Resizable BAR); then pci=realloc on the command line; a BIOS update",
        BOTH,
        each_gpu(_zero_bar),
    ),
    Rule(
        "pci.lost",
        "broken",
        "the card dropped off the bus while the machine ran",
        "everything after that is silence: rings, SMU and resets fail because nobody answers",
        f"power the machine off and on, then: {_SEAT}; amdgpu.runpm=0",
        BOTH,
        logged("link-lost"),
    ),
    Rule(
        "pci.errors",
        "broken",
        "uncorrected errors on the PCIe link to the card",
        "packets were lost: what hangs after that hangs because of it",
        _SEAT,
        BOTH,
        logged("aer-fatal"),
    ),
    Rule(
        "pci.error-count",
        "warning",
        "the kernel counts uncorrected errors on the PCIe link to the card",
        "packets were lost since the boot: a hang since then may be theirs",
        _SEAT,
        BOTH,
        each_gpu(_counted),
    ),
    Rule(
        "pci.error-status",
        "warning",
        "the PCIe link to the card had errors",
        "the bits stay until they are cleared: a hang since the boot may be theirs",
        _SEAT,
        BOTH,
        each_gpu(_latched),
    ),
    Rule(
        "pci.corrected-errors",
        "warning",
        "many corrected errors on the PCIe link to the card",
        "the link is marginal: it is slower than it says, and may fail under load",
        _SEAT,
        BOTH,
        _corrected,
    ),
    Rule(
        "pci.iommu-fault",
        "broken",
        "the IOMMU blocked what the GPU wrote or read",
        "a transfer went to memory that the GPU was not given: the driver's tables and the IOMMU's part ways",
        "boot with iommu=pt (amd_iommu=off to compare); report it with the lines, a BIOS update may help",
        BOTH,
        logged("iommu-fault"),
    ),
    Rule(
        "pci.atomics",
        "broken",
        "KFD refuses the GPU: no PCIe atomics",
        "t1 submits through KFD, which skips such a GPU; t2 does not ask for them",
        "use a slot of the processor's own, not of the chipset or behind a riser or Thunderbolt",
        (T1,),
        _atomics,
    ),
    Rule(
        "pci.link-width",
        "warning",
        "the PCIe link has few lanes",
        "uploads of weights and copies take as many times longer; dispatches do not",
        "use a slot with 16 lanes; reseat the card; check that no M.2 slot shares its lanes",
        BOTH,
        each_gpu(_narrow),
    ),
    Rule(
        "pci.link-speed",
        "warning",
        "the PCIe link is slow",
        "uploads of weights and copies take as many times longer; dispatches do not",
        "check the slot and its speed in the BIOS, the riser, amdgpu.pcie_gen_cap",
        BOTH,
        each_gpu(_slow),
    ),
    Rule(
        "pci.link-speed-now",
        "note",
        "the PCIe link is slow at the moment",
        "an idle GPU lowers its link and raises it under load",
        "look again while something runs on it; if it stays so: the slot, its speed in the BIOS, the riser",
        BOTH,
        each_gpu(_slow_now),
    ),
    Rule(
        "pci.small-bar",
        "warning",
        "resizable BAR is off",
        "the CPU writes weights through a small window: slower uploads, and less host-visible VRAM "
        "for rings and buffers",
        "BIOS: enable Above 4G Decoding and Resizable BAR (Smart Access Memory), CSM off",
        BOTH,
        each_gpu(_small_bar),
    ),
    Rule(
        "pci.bar-resize",
        "note",
        "the driver could not make the BAR larger",
        "the CPU reaches part of VRAM only",
        "BIOS: enable Above 4G Decoding and Resizable BAR",
        BOTH,
        logged("bar-resize"),
    ),
    Rule(
        "pci.acs",
        "note",
        "ACS is on above several GPUs",
        "transfers between GPUs take the long way; one GPU alone is not touched",
        "BIOS: disable ACS, where transfers between GPUs matter and no virtual machine needs the separation",
        BOTH,
        _acs,
    ),
    Rule(
        "pci.iommu-peers",
        "note",
        "the IOMMU is between several GPUs",
        "RCCL warns of hangs there (its `Missing iommu=pt`); one GPU alone is not touched",
        "boot with iommu=pt",
        BOTH,
        _iommu_peers,
    ),
)
