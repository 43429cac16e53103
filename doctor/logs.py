"""Parse the kernel log to events, from the output of dmesg (-T, -x), journalctl, /dev/kmsg, or a truncated
file."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, pairwise

from zinc_rt.doctor.messages.families import FAMILIES
from zinc_rt.doctor.messages.message import KnownMessage
from zinc_rt.doctor.messages.table import DRIVER_ERROR, HARMLESS, NEEDS_GPU, OF_OTHERS, TABLE, WORTH_A_LOOK

NEWEST_FIRST = 2  # steps back in time, from which on a log may be printed newest line first
LINES = 100_000  # of a log; of a longer one the middle is cut
_LINE_CHARS = 2_000
_PREFIXES = (
    re.compile(r"^\d+,\d+,\d+,[^;]*;"),  # /dev/kmsg
    re.compile(r"^.{0,80}?\bkernel: ?"),  # journalctl and syslog, months in any language
    re.compile(r"^<\d+>"),  # dmesg -r
    re.compile(r"^\w+ *:\w+ *: "),  # dmesg -x
    # seconds, or a date; CONFIG_PRINTK_CALLER; not [drm]
    re.compile(r"^\[(?!drm|gfxhub|mmhub)(?=[^\[\]]*\d)[^\[\]]{1,40}\](?:\[ *[CT]\d+\])? ?"),
    re.compile(r"^\d{4}-\d\d-\d\dT\S+ "),  # dmesg --time-format iso
)
# A line of a journal that a program wrote, not the kernel. The audit daemon repeats the kernel's.
PROGRAM_LINE = re.compile(
    r"^(?:\w{3,5}\.? +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT\S+) \S+ (?!kernel\b|audit\b)[\w./@()-]+(?:\[\d+\])?: "
)
# The time at the beginning of a line: seconds since the boot, or a time of day.
_SECONDS = re.compile(r"^.{0,80}?\[ *(\d+\.\d+)\]")
_CLOCK = re.compile(r"^\D{0,20}(?:\d{4}-\d\d-)?(\d{1,2})[T ](\d\d):(\d\d):(\d\d)")
_BOOT = re.compile(r"^Linux version \d|^-- (?:Boot \w+|Reboot) --")
ADDRESS = re.compile(r"\b[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
_SHORT = re.compile(r"(?<![:\w])[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
_OURS = re.compile(r"amdgpu|amdkfd|\bkfd\b", re.IGNORECASE)
# A line of another driver about its device: `i915 0000:00:02.0: `.
_OTHER_DRIVER = re.compile(
    r"(?!amdgpu|radeon|kfd|drmn\d|pci|thermal|iommu|AMD-Vi)[a-z][\w-]* "
    r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: ",
    re.IGNORECASE,
)
_BRIDGE = re.compile(r"pci (\S+): PCI bridge to \[bus ([0-9a-f]{2})(?:-([0-9a-f]{2}))?\]")
_SILENT_FUNCTION = re.compile(r"pci (\S+): \[1002:[0-9a-f]{4}\] type 7f ", re.IGNORECASE)
_CARD_SWITCH = re.compile(r"(?:pcieport|pci) (\S+?):? .*\[1002:147[89]\]")  # the PCIe switch on AMD's cards
# drivers/pci/pcie/err.c: a driver below a port learns of the port's error
_INFORMED = re.compile(r"AER-aware driver|error_detected callback|AER: can't recover|PCI error: detected callback")
_BUS_ERROR = re.compile(r"PCIe Bus Error|AER: |broadcast error_detected")
_REPORT_LINES = 12
_PROCESS = re.compile(r"[Pp]rocess (?:information: process )?([^\s(),]+) pid ([1-9]\d*)")
# A wait that fails once is usual where the picture changes; one that fails again and again is not.
_DISPLAY_WAIT = re.compile(r"REG_WAIT timeout .* - (\w+)")
_WAITS, _WAITS_APART, _WAITS_WITHIN = 3, 0.5, 60.0  # seconds
# A work of the display that takes a processor longer than 10 ms; Linux counts it, and prints some of the counts.
_DISPLAY_WORK = re.compile(r"workqueue: (dm_\w+) \[amdgpu\] hogged CPU for .* (\d+) times")
_WORKS, _WORKS_WITHIN = 5, 300.0
_NAMES_PROCESS = ("ring-timeout", "ring-recovered", "page-fault", "illegal-instruction")
_PROCESS_LINES = 4  # a fault names its process in one of the next lines
_RECORD = re.compile(r"(\{\d+\})?\[Hardware Error\]:(.*)")
_MACHINE_CHECK = re.compile(
    r"mce: |MC\d+_STATUS\[|System Fatal error|Uncorrected, software|error, no action required"
)
_RESET_BEGINS = re.compile(r"GPU reset begin", re.IGNORECASE)
_RESET_RESUMES = re.compile(r"GPU reset succeeded, trying to resume", re.IGNORECASE)
_RESET_ENDS = re.compile(r"GPU reset\(\d+\) succeeded", re.IGNORECASE)
# The driver also resets the chip before sleep, and at its start where a driver before it has left it in use.
_CHIP_RESET = re.compile(r"\b(?:MODE[12]|BACO) reset\b", re.IGNORECASE)
_RECOVERED = re.compile(r"GPU reset|VRAM is lost|reset failed", re.IGNORECASE)
_SLEEP_BEGINS = re.compile(r"^PM: (?:suspend|hibernation: hibernation|hibernation) entry")
_SLEEP_ENDS = re.compile(
    r"^(?:ACPI: PM: Waking up from|PM: (?:suspend|hibernation: hibernation|hibernation) exit)"
)
_HANGS = ("ring-timeout", "mes", "queue-preemption", "ras-fatal", "reset-failed")  # what a reset recovers from
_RESET_STEPS = ("ring-test", "queue-preemption", "iommu-fault")
_DRIVER_STARTS = "initializing kernel modesetting"
_CRASH = re.compile(
    r"\bBUG: |^IP: |Unable to handle kernel |\bOops: |general protection fault|kernel BUG at|"
    r"INFO: task .* blocked for|detected stall|hung_task_timeout_secs\" disables|"
    r"Kernel panic - not syncing|^Panic Report|^RIP: "
)
_TRACE_LINES = 80  # of a crash: registers, stack and modules
_OURS_IN_TRACE = re.compile(  # a function of the driver, or the driver while it is being loaded
    r"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(?:amdgpu|amdkfd|amdttm|amd_sched|amdkcl|gpu_sched)(?: [0-9a-f]+)?\]|"
    r"\bamdgpu\(\+\)|\b(?:amdgpu|amdkfd|kgd2kfd|amd_sched)_\w+\+0x"  # the driver may be built in
)
_WARNING_LINES = 15  # a warning prints its registers as a crash does
_LEADS_TO_CRASH = re.compile(r"\b(?:fail\w*|error|conflict|(?:modprobe|insmod) \S*amdgpu)\b", re.IGNORECASE)
_BEFORE_CRASH = 15  # lines in which an error of the driver leads to a crash elsewhere


@dataclass(frozen=True, slots=True)
class LogEvent:
    name: str
    at: int  # line of the log, from 0: what came first
    text: str  # without its prefix
    address: str = ""
    file: str = ""  # the firmware file it names
    process: str = ""  # the program that the log names, "python3 (pid 4711)"
    count: int = 1  # how often, where a record is numbered


@dataclass(frozen=True, slots=True)
class LinuxLog:
    """Return the last boot in the log; earlier boots are irrelevant."""

    lines: tuple[str, ...]  # without prefixes
    events: tuple[LogEvent, ...]
    whole: bool  # begins with the boot
    elsewhere: tuple[LogEvent, ...] = ()  # bus errors of bridges that may be the GPU's or not
    unrecognised: tuple[LogEvent, ...] = ()  # errors of the driver that no row of the table matches

    def named(self, *names: str) -> tuple[LogEvent, ...]:
        return tuple(event for event in self.events if event.name in names)

    def search(self, pattern: str) -> re.Match[str] | None:
        """Return the first matching line."""
        compiled = re.compile(pattern, re.IGNORECASE)
        return next((match for line in self.lines if (match := compiled.search(line))), None)


def strip_prefix(line: str) -> str:
    """Return a message without the prefix added by a program."""
    text = line[:_LINE_CHARS].strip()
    for prefix in _PREFIXES:
        text = prefix.sub("", text, count=1)
    return text.strip()


def parse_log(text: str, addresses: Collection[str] = ()) -> LinuxLog:
    """Parse a log to events. `addresses`: PCI addresses of AMD's GPUs and their upstream bridges; bus errors
    elsewhere are ignored."""
    raw = text.splitlines()
    if len(raw) > LINES:
        raw = raw[: LINES // 2] + raw[-LINES // 2 :]
    raw = _sort_by_time([line for line in raw if not PROGRAM_LINE.match(line)])
    lines = [strip_prefix(line) for line in raw]
    boots = [index for index, line in enumerate(lines) if _BOOT.match(line)]
    if boots:
        raw, lines = raw[boots[-1] :], lines[boots[-1] :]
    path = _Path(lines, addresses)
    events: list[LogEvent] = []
    elsewhere: list[LogEvent] = []
    unrecognised: list[LogEvent] = []
    consumed = _parse_records(lines, path, events, elsewhere)
    events += _find_stuck_displays(lines, raw)
    for index, line in enumerate(lines):
        if index in consumed or not WORTH_A_LOOK.search(line):
            continue
        event = _match_event(line, index, TABLE)
        if event is None and DRIVER_ERROR.search(line) and not _is_harmless(line):
            event = _match_event(line, index, FAMILIES)
            if event is None:
                unrecognised.append(LogEvent("unrecognised", index, line, _find_address(line)))
        if event is None:
            continue
        if event.name in ("oops", "task-blocked"):
            if _is_ours(lines, index, path):
                events.append(replace(event, process=_find_crashed_process(lines, index)))
        elif event.name not in NEEDS_GPU or path.concerns_gpu(line):
            events.append(
                replace(event, process=_find_process(lines, index)) if event.name in _NAMES_PROCESS else event
            )
        elif event.name.startswith("aer-") and path.is_unknown_bridge(line):
            elsewhere.append(event)
    events = _omit_planned_resets(sorted(events, key=lambda event: event.at), lines)
    events = _name_reset_steps(events, lines)
    return LinuxLog(tuple(lines), tuple(events), bool(boots), tuple(elsewhere), tuple(unrecognised))


def _find_stuck_displays(lines: Sequence[str], raw: Sequence[str]) -> list[LogEvent]:
    """Return the first of the display controller's waits that fail several times within a minute, and of its works
    that take a processor more and more often.
    """
    waits: dict[tuple[str, str], list[tuple[float, int]]] = {}
    works: dict[str, list[tuple[float, int, int]]] = {}
    for index, line in enumerate(lines):
        if "hogged CPU" in line and (work := _DISPLAY_WORK.search(line)):
            if (time := _parse_time(raw[index])) is not None:
                works.setdefault(work[1], []).append((time, int(work[2]), index))
            continue
        match = _DISPLAY_WAIT.search(line) if "REG_WAIT" in line else None
        time = _parse_time(raw[index]) if match else None
        if match and time is not None:
            apart = waits.setdefault((_find_address(line), match[1]), [])
            if not apart or time - apart[-1][0] >= _WAITS_APART:
                apart.append((time, index))
    stuck = []
    for (address, _), apart in waits.items():
        spans = zip(apart, apart[_WAITS - 1 :], strict=False)
        first = next((at for (time, at), (last, _) in spans if last - time <= _WAITS_WITHIN), None)
        if first is not None:
            stuck.append(LogEvent("display", first, lines[first], address))
    for counts in works.values():
        often = (
            at
            for (time, count, at), (last, more, _) in combinations(counts, 2)
            if more - count >= _WORKS and 0 <= last - time <= _WORKS_WITHIN
        )
        stuck += [LogEvent("display", at, lines[at]) for at in islice(often, 1)]
    return stuck


def _omit_planned_resets(events: Sequence[LogEvent], lines: Sequence[str]) -> list[LogEvent]:
    """Return the events without resets of the chip that belong to sleep or to the driver's start."""
    planned: set[int] = set()
    sleeping = False
    recovers = any(event.name in _HANGS or _RECOVERED.search(event.text) for event in events)
    for index, line in enumerate(lines):
        sleeping = (sleeping or bool(_SLEEP_BEGINS.match(line))) and not _SLEEP_ENDS.match(line)
        if _CHIP_RESET.search(line) and (sleeping or not recovers):
            planned.add(index)
    return [event for event in events if event.name != "reset" or event.at not in planned]


def _name_reset_steps(events: Sequence[LogEvent], lines: Sequence[str]) -> list[LogEvent]:
    """Return the events, with those that are only a step of a reset under way named as the reset.

    The driver tests a ring to unmap its queues before a reset, and again after it: neither is its first test.
    """
    steps: list[LogEvent] = []
    phases: dict[str, str] = {}  # of each GPU: what a step that fails now belongs to
    for event in events:
        if event.name == "reset" and _RESET_BEGINS.search(event.text):
            phases[event.address] = "reset"
        elif event.name == "reset" and _RESET_RESUMES.search(event.text):
            phases[event.address] = "reset-failed"
        elif event.name == "reset" and _RESET_ENDS.search(event.text):
            phases.pop(event.address, None)
        elif event.name in _RESET_STEPS and phases:
            phase = phases.get(event.address) or (next(iter(phases.values())) if not event.address else "")
            started = any(_DRIVER_STARTS in line for line in lines[steps[-1].at : event.at])
            if started:
                phases.clear()
            elif phase and (event.name == "ring-test" or phase == "reset"):
                event = replace(event, name=phase)
        elif "device wedged, but recovered" in event.text and any(
            step.name == "reset" and step.address == event.address for step in steps
        ):
            event = replace(event, name="reset")
        steps.append(event)
    return steps


def _sort_by_time(lines: list[str]) -> list[str]:
    """Return the lines in the order of their times: `journalctl -r` prints the newest first."""
    times = [time for line in lines if (time := _parse_time(line)) is not None]
    later = sum(b > a for a, b in pairwise(times))
    earlier = sum(b < a for a, b in pairwise(times))
    return lines[::-1] if earlier >= NEWEST_FIRST and earlier > 4 * later else lines


def _parse_time(line: str) -> float | None:
    """Return the seconds of a line since the boot or the beginning of a month; None if it has no time."""
    if match := _SECONDS.match(line[:_LINE_CHARS]):
        return float(match[1])
    if match := _CLOCK.match(line[:_LINE_CHARS]):
        day, hour, minute, second = (int(group) for group in match.groups())
        return ((day * 24 + hour) * 60 + minute) * 60.0 + second
    return None


class _Path:
    """The PCI functions of a GPU: the GPU itself and the bridges above it that the capture and the log show."""

    def __init__(self, lines: Sequence[str], near: Collection[str]) -> None:
        known = {address.lower() for address in near}
        bridges = [match for line in lines if "PCI bridge to" in line and (match := _BRIDGE.search(line))]
        switches = [
            match[1].lower() for line in lines if "[1002:147" in line and (match := _CARD_SWITCH.search(line))
        ]
        known |= {address for address in switches if ADDRESS.fullmatch(address)}
        known |= {
            match[1].lower() for line in lines if "type 7f" in line and (match := _SILENT_FUNCTION.search(line))
        }
        for address in tuple(known):
            if not ADDRESS.fullmatch(address):
                continue
            domain, bus, _ = address.split(":")
            for bridge in bridges:
                inside = int(bridge[2], 16) <= int(bus, 16) <= int(bridge[3] or bridge[2], 16)
                if inside and bridge[1].startswith(f"{domain}:"):
                    known.add(bridge[1].lower())
        known |= _find_failing_ports(lines)
        self.placed = {bridge[1].lower() for bridge in bridges}
        self.known = known
        # Functions of one slot are one card; those of a root port's slot lead to different cards.
        self.cards = {item.rpartition(".")[0] for item in known - self.placed if item.endswith(".0")}
        self._short = {item.partition(":")[2] for item in known}

    def concerns_gpu(self, line: str) -> bool:
        if _OURS.search(line):
            return True
        named = {match.lower() for match in ADDRESS.findall(line)}
        briefly = {match.lower() for match in _SHORT.findall(line)}
        return bool(
            named & self.known or {item.rpartition(".")[0] for item in named} & self.cards or briefly & self._short
        )

    def is_unknown_bridge(self, line: str) -> bool:
        """Return whether only bridges are named, and the log shows the position of none of them."""
        named = {match.lower() for match in ADDRESS.findall(line)}
        return "pcieport" in line and bool(named) and not named & self.placed


def _find_failing_ports(lines: Sequence[str]) -> set[str]:
    """Return the ports that report an error just before Linux informs amdgpu of it: they are above the GPU."""
    informed = [index for index, line in enumerate(lines) if "amdgpu" in line and _INFORMED.search(line)]
    reports = (line for at in informed for line in lines[max(0, at - _REPORT_LINES) : at] if "pcieport" in line)
    return {address.lower() for line in reports if _BUS_ERROR.search(line) for address in ADDRESS.findall(line)}


def _parse_records(
    lines: Sequence[str], path: _Path, events: list[LogEvent], elsewhere: list[LogEvent]
) -> frozenset[int]:
    """Read the firmware's error records (GHES, BERT), whose address and severity are on different lines."""
    consumed: set[int] = set()
    section: dict[str, str] = {}
    start, mark = 0, ""

    def end() -> None:
        if "pcie" not in section.get("section_type", "").lower():
            return
        severity = section.get("type", section.get("event severity", ""))
        name = "aer-corrected" if severity.startswith("corrected") else "aer-fatal"
        address = section.get("device_id", "").lower()
        text = ", ".join(f"{key}: {value}" for key, value in section.items())
        event = LogEvent(name, start, f"[Hardware Error]: {text}", address, count=int(mark.strip("{}") or 1))
        if name == "aer-fatal":
            event = replace(event, count=1)
        bus = section.get("secondary_bus", "").removeprefix("0x")
        below = {item for item in path.known if bus and ADDRESS.match(item) and item.split(":")[1] == bus.zfill(2)}
        if below or (address and path.concerns_gpu(address)):
            events.append(event)
        elif address and address not in path.placed:
            elsewhere.append(event)

    for index, line in enumerate(lines):
        match = _RECORD.search(line)
        if not match or _OURS.search(line) or _MACHINE_CHECK.search(line):
            continue
        consumed.add(index)
        key, _, value = match[2].strip().partition(": ")
        if key.startswith("Error ") or match[1] != (mark or None):
            end()
            section = {name: section[name] for name in ("event severity",) if name in section}
            start, mark = index, match[1] or ""
        for part in f"{key}: {value}".split(", "):
            name, _, output = part.partition(": ")
            if output and not (name == "device_id" and ":" not in output):
                section.setdefault(name.strip(), output.strip())
    end()
    return frozenset(consumed)


def _match_event(line: str, index: int, table: Sequence[KnownMessage]) -> LogEvent | None:
    if _is_harmless(line):
        return None
    of_another = bool(_OTHER_DRIVER.match(line)) and not _OURS.search(line)
    for row in table:
        match = row.pattern.search(line)
        if not match or (of_another and row.event not in OF_OTHERS):
            continue
        named = {name: value or "" for name, value in match.groupdict().items()}
        process = f"{named['name']} (pid {named['pid']})" if named.get("name") else ""
        file = named.get("file", "").strip("\"'")
        return LogEvent(row.event, index, line, _find_address(line), file, process)
    return None


def _is_harmless(line: str) -> bool:
    return any(row.pattern.search(line) for row in HARMLESS)


def _find_address(line: str) -> str:
    match = ADDRESS.search(line)
    return match[0].lower() if match else ""


def _is_ours(lines: Sequence[str], index: int, path: _Path) -> bool:
    """Return whether a crash was caused by amdgpu, judged by its line, its stack, or an error of the driver just
    before it.
    """
    if not lines[index].startswith("RIP: ") and path.concerns_gpu(lines[index]):
        return True
    if not _CRASH.search(lines[index]):
        return False
    if lines[index].startswith("RIP: ") and any(
        "WARNING: " in line for line in lines[max(0, index - _WARNING_LINES) : index]
    ):
        return False
    start = max(0, index - _TRACE_LINES) if "panic" in lines[index] else index  # printed after its trace
    for line in lines[start : index + _TRACE_LINES]:
        if "end trace" in line:
            break
        if _OURS_IN_TRACE.search(line):
            return True
    before = lines[max(0, index - _BEFORE_CRASH) : index]
    return any(_OURS.search(line) and _LEADS_TO_CRASH.search(line) for line in before)


def _find_crashed_process(lines: Sequence[str], index: int) -> str:
    result = next(
        (m for line in lines[index : index + 12] if (m := re.search(r"PID: (\d+) Comm: (\S+)", line))), None
    )
    return f"{result[2]} (pid {result[1]})" if result else ""


def _find_process(lines: Sequence[str], index: int) -> str:
    result = next((m for line in lines[index : index + _PROCESS_LINES] if (m := _PROCESS.search(line))), None)
    return f"{result[1]} (pid {result[2]})" if result else ""
