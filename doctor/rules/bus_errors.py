"""Rules about errors on the PCIe path: the link, lost packets, and accesses blocked by the IOMMU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.doctor import lspci
from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine
from zinc_rt.doctor.rule import BOTH, DoctorRule, Observation, check_each_gpu, make_event_rule, observe_events

CORRECTED_MANY = 12  # lines of corrected errors: one now and then is what correction is for


def _check_corrected_errors(machine: InspectedMachine) -> Iterator[Observation]:
    events = machine.log.named("aer-corrected") if machine.log else ()
    if sum(event.count for event in events) >= CORRECTED_MANY:
        yield observe_events(machine, list(events), events[0].address)


def _check_error_counts(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """Report errors that the kernel counts in sysfs, for the GPU and for the bridges above it."""
    folders = [f"sys/class/drm/{gpu.card}/device", *(_find_folder(machine, link.address) for link in gpu.links)]
    result = []
    for folder in folders:
        for name in ("aer_dev_fatal", "aer_dev_nonfatal") if folder else ():
            total = re.search(r"TOTAL_ERR_\w+ (\d+)", machine.capture.text(f"{folder}/{name}") or "")
            if total and int(total[1]):
                result.append(f"{folder}/{name}: {total[1]}")
    return Observation(evidence=tuple(result), about=gpu.address) if result else None


def _find_folder(machine: InspectedMachine, address: str) -> str:
    ends = f"/{address}/aer_dev_fatal"
    name = next((name for name in machine.capture.files if address and name.endswith(ends)), "")
    return name.rpartition("/")[0]


def _check_latched_errors(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """Report AER status bits, which stay set until they are cleared: `UESta: ... CmpltTO+`."""
    functions = lspci.parse_lspci(machine.capture.text("lspci.txt") or "")
    own = functions.get(gpu.address)
    for function in [*([own] if own else []), *(lspci.find_bridge_chain(functions, gpu.address) if own else [])]:
        status = re.search(r"UESta:(.*)", function.text)
        bits = re.findall(r"\b(DLP|SDES|CmpltTO|MalfTLP|TLP|FCP)\+", status[1]) if status else []
        if bits and not function.gone:
            return Observation(
                f"the PCIe link to {gpu.title} had errors: {', '.join(bits)} at {function.address}",
                (f"lspci.txt: {function.address} UESta:{status[1][:100] if status else ''}",),
                gpu.address,
            )
    return None


ALL_ONES = re.compile(r"\b0xf{8}\b", re.IGNORECASE)


def _check_lost_device(machine: InspectedMachine) -> Iterator[Observation]:
    """Report a lost function if the kernel reports it, or if two reads return all ones."""
    seen = tuple(make_event_rule("link-lost")(machine))
    yield from seen
    replies = machine.log.named("smu", "psp", "ring-test", "mes") if machine.log and not seen else ()
    ones = [event for event in replies if ALL_ONES.search(event.text)]
    if len(ones) >= 2:
        result = observe_events(machine, ones, ones[0].address)
        yield replace(result, title="the card does not answer on the bus any more: its registers read as all ones")


_SEAT = (
    "reseat the card and its power cables, try without a riser, another slot, a fixed PCIe speed in "
    "the BIOS, pcie_aspm=off"
)
RULES = (
    DoctorRule(
        "pci.lost",
        "broken",
        "the card disappeared from the bus while the machine was running",
        "later errors are consequences: rings, SMU and resets fail because the card does not respond",
        f"power-cycle the machine, then: {_SEAT}; amdgpu.runpm=0",
        BOTH,
        _check_lost_device,
    ),
    DoctorRule(
        "pci.errors",
        "broken",
        "uncorrected errors on the PCIe link to the card",
        "packets were lost: later hangs are consequences",
        _SEAT,
        BOTH,
        make_event_rule("aer-fatal"),
    ),
    DoctorRule(
        "pci.error-count",
        "warning",
        "the kernel counted uncorrected errors on the PCIe link to the card",
        "packets were lost since the boot: hangs since then may be consequences",
        _SEAT,
        BOTH,
        check_each_gpu(_check_error_counts),
    ),
    DoctorRule(
        "pci.error-status",
        "warning",
        "the PCIe link to the card had errors",
        "the bits remain set until they are cleared: hangs since the boot may be consequences",
        _SEAT,
        BOTH,
        check_each_gpu(_check_latched_errors),
    ),
    DoctorRule(
        "pci.corrected-errors",
        "warning",
        "many corrected errors on the PCIe link to the card",
        "the link is marginal: it is slower than reported, and may fail under load",
        _SEAT,
        BOTH,
        _check_corrected_errors,
    ),
    DoctorRule(
        "pci.iommu-fault",
        "broken",
        "the IOMMU blocked an access of the GPU",
        "the GPU accessed memory that is not mapped for it: the tables of the driver and the IOMMU differ",
        "boot with iommu=pt (amd_iommu=off to compare); report the log lines; a BIOS update may help",
        BOTH,
        make_event_rule("iommu-fault"),
    ),
)
