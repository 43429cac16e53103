"""Keep only those lines of a kernel log or journal that concern GPUs and the hardware around them.

A kernel log names every disk, volume, network interface and container of a machine, and no list of
secrets is complete. A line is therefore kept because it belongs to a subsystem in the list below, or because
a rule of the doctor reads it; all other lines are replaced by their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zinc_rt.doctor.logs import PROGRAM_LINE, strip_prefix
from zinc_rt.doctor.messages.table import KNOWN_TEXT, WORTH_A_LOOK

# Subsystems by the beginning of a message, as printed by Linux 6.8 to 7.2.
_SUBSYSTEMS = re.compile(
    r"(?:pci|pci_bus|pcieport|pciehp|pcie|shpchp|ACPI: PCI|ACPI: \\_SB_?\.PCI\S*|ACPI: thermal|ACPI: Thermal|"
    r"BERT|GHES|ERST|HEST|AER|EDAC|RAS|mce|MCE|x86/mce|"
    r"AMD-Vi|DMAR|DMAR-IR|iommu|arm-smmu|swiotlb|PM|ACPI: PM|thermal|k10temp|amd_pstate|cpufreq|microcode|"
    r"vga_switcheroo|vgaarb|efifb|fb\d+|fbcon|simple-framebuffer|Console: switching|vfio|vfio-pci|"
    r"misc dxg|hv_vmbus: registering driver dxgkrnl|snd_hda_intel 0000)\b.{0,40}?[ :]",
)
# Other messages about the GPU or its driver, wherever these words stand.
_GPU = re.compile(r"amdgpu|amdkfd|\bkfd\b|\[drm\b|\bdrm:|\[TTM\]|\bttm\b|\bradeon\b", re.IGNORECASE)
# The beginning of a boot: what the machine is.
_BOOT_HEADER = re.compile(
    r"Linux version \d|(?:Kernel )?[Cc]ommand line:|DMI: |Hypervisor detected|(?:secureboot: )?Secure ?[Bb]oot|"
    r"Kernel is locked down|Lockdown: |BIOS-e820:|Memory: \d|smpboot: CPU0|-- (?:Boot \w+|Reboot) --|"
    r"Unknown kernel command line parameters|efi: EFI v|AMD (?:Secure )?Memory Encryption"
)
# A call trace: its first line, and the lines that follow.
_TRACE_START = re.compile(r"-{8,}\[ cut here|WARNING: |\bBUG: |INFO: task |watchdog: ")
_TRACE = re.compile(
    r"(?:\? )?[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+|</?(?:TASK|IRQ|NMI)>|Call Trace:|"
    r"(?:[RE][A-Z0-9]{2}|FS|CS|CR2|PKRU): ?|Code: |CPU: \d|Hardware name: |Workqueue: |Modules linked in:|"
    r"---\[ |Tainted: |Oops: "
)
_HARDWARE_ERROR = "[Hardware Error]:"  # before each line of a record of the firmware
_CUT = re.compile(r"\[\d+ (?:older|more) bytes are cut\]")  # of bounds.fit
# Lines of a system log, by the prefixes that Linux, dmesg, syslog and journalctl put before a message.
_PREFIXED = re.compile(
    r"\[ *\d+\.\d{6}\]|\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\]|<\d+>\s*\[|\d+,\d+,\d+,[^;]*;|"
    r"\w{3,5}\.? +\d+ [\d:]{8}(?:\.\d+)? \S+ [\w./@()-]+(?:\[\d+\])?: |"
    r"\d{4}-\d\d-\d\d[T ][\d:.,]+\S* \S+ [\w./@()-]+(?:\[\d+\])?: |\w+ *:\w+ *: \["
)
_REMOVED = "(lines of other subsystems that were removed: {})"
_COUNT = re.compile(r"\(lines of other subsystems that were removed: (\d+)\)")


def select_relevant_lines(text: str, *, whole: bool) -> str:
    """Return `text` with every run of irrelevant lines replaced by their number.

    `whole`: every line belongs to the log. Otherwise only lines with the prefix of a system log are judged,
    because the output of other programs may be interspersed."""
    lines = text.splitlines(keepends=True)
    judged = [whole or bool(_PREFIXED.match(line)) for line in lines]
    if not any(judged):
        return text
    kept = [not is_judged or is_relevant(line) for line, is_judged in zip(lines, judged, strict=True)]
    for start, end in _find_traces(lines):
        kept[start:end] = [any(kept[start:end])] * (end - start)
    result: list[str] = []
    removed = 0
    for line, keep in [*zip(lines, kept, strict=True), ("", True)]:
        if not keep:
            count = _COUNT.search(line)
            removed += int(count[1]) if count else 1
            continue
        if removed:
            result.append(_REMOVED.format(removed) + "\n")
            removed = 0
        result.append(line)
    return "".join(result)


def is_relevant(line: str) -> bool:
    """Return whether a line concerns a GPU or the hardware around it, or is read by a rule of the doctor."""
    if PROGRAM_LINE.match(line):
        return False
    if _CUT.match(line) or _HARDWARE_ERROR in line:
        return True
    message = strip_prefix(line)
    return bool(
        _GPU.search(message)
        or _SUBSYSTEMS.match(message)
        or _BOOT_HEADER.match(message)
        or (WORTH_A_LOOK.search(message) and KNOWN_TEXT.search(message))
    )


def _find_traces(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield each call trace as a range of lines. If it has no first line, the line before it is used."""
    start = None
    for index, line in enumerate([*lines, ""]):
        message = strip_prefix(line)
        begins = _TRACE_START.match(message) is not None
        if start is not None and not _TRACE.match(message) and not (begins and index == start + 1):
            yield start, index
            start = None
        if start is None and begins:
            start = index
        elif start is None and _TRACE.match(message):
            start = max(0, index - 1)
