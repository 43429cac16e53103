"""Parse the kernel log to events, from the output of dmesg (-T, -x), journalctl, /dev/kmsg, or a truncated
file."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from zinc_rt.doctor.messages.table import HARMLESS, NEEDS_GPU, TABLE, WORTH_A_LOOK

LINES = 100_000  # of a log; of a longer one the middle is cut
_LINE_CHARS = 2_000
_PREFIXES = (
    re.compile(r"^\d+,\d+,\d+,[^;]*;"),  # /dev/kmsg
    re.compile(r"^.{0,80}?\bkernel: ?"),  # journalctl and syslog, months in any language
    re.compile(r"^<\d+>"),  # dmesg -r
    re.compile(r"^\w+ *:\w+ *: "),  # dmesg -x
    re.compile(r"^\[[^\]]{1,40}\](?:\[ *[CT]\d+\])? ?"),  # seconds, or a date; CONFIG_PRINTK_CALLER
    re.compile(r"^\d{4}-\d\d-\d\dT\S+ "),  # dmesg --time-format iso
)
# A line of a journal that a program wrote, not the kernel.
PROGRAM_LINE = re.compile(
    r"^(?:\w{3,5}\.? +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT\S+) \S+ (?!kernel\b)[\w./@()-]+(?:\[\d+\])?: "
)
_BOOT = re.compile(r"^Linux version \d|^-- (?:Boot \w+|Reboot) --")
ADDRESS = re.compile(r"\b[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
_SHORT = re.compile(r"(?<![:\w])[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
_OURS = re.compile(r"amdgpu|amdkfd|\bkfd\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LogEvent:
    name: str
    at: int  # line of the log, from 0: what came first
    text: str  # without its prefix
    address: str = ""
    file: str = ""  # the firmware file it names


@dataclass(frozen=True, slots=True)
class LinuxLog:
    """The last boot in the log; earlier boots are irrelevant."""

    lines: tuple[str, ...]  # without prefixes
    events: tuple[LogEvent, ...]
    whole: bool  # begins with the boot

    def named(self, *names: str) -> tuple[LogEvent, ...]:
        return tuple(event for event in self.events if event.name in names)

    def search(self, pattern: str) -> re.Match[str] | None:
        """Return the first matching line."""
        compiled = re.compile(pattern, re.IGNORECASE)
        return next((found for line in self.lines if (found := compiled.search(line))), None)


def without_prefix(line: str) -> str:
    """Return a message without the prefix added by a program."""
    text = line[:_LINE_CHARS].strip()
    for prefix in _PREFIXES:
        text = prefix.sub("", text, count=1)
    return text.strip()


def parse(text: str, near: Collection[str] = ()) -> LinuxLog:
    """Parse a log to events. `near`: PCI addresses of AMD's GPUs and their upstream bridges; bus errors
    elsewhere are ignored."""
    raw = text.splitlines()
    if len(raw) > LINES:
        raw = raw[: LINES // 2] + raw[-LINES // 2 :]
    raw = [line for line in raw if not PROGRAM_LINE.match(line)]
    lines = [without_prefix(line) for line in raw]
    boots = [at for at, line in enumerate(lines) if _BOOT.match(line)]
    if boots:
        lines = lines[boots[-1] :]
    functions = {address.rpartition(".")[0].lower() for address in near}
    short = {each.partition(":")[2] for each in functions}
    events = []
    for at, line in enumerate(lines):
        if WORTH_A_LOOK.search(line) and (event := _event(line, at, functions, short)):
            events.append(event)
    return LinuxLog(tuple(lines), tuple(events), bool(boots))


def _event(line: str, at: int, functions: set[str], short: set[str]) -> LogEvent | None:
    if any(row.pattern.search(line) for row in HARMLESS):
        return None
    for row in TABLE:
        found = row.pattern.search(line)
        if not found:
            continue
        if row.event in NEEDS_GPU and not _about_a_gpu(line, functions, short):
            return None
        address = ADDRESS.search(line)
        file = found.groupdict().get("file") or ""
        return LogEvent(row.event, at, line, address[0].lower() if address else "", file.strip("\"'"))
    return None


def _about_a_gpu(line: str, functions: set[str], short: set[str]) -> bool:
    if _OURS.search(line):
        return True
    named = {each.rpartition(".")[0].lower() for each in ADDRESS.findall(line)}
    briefly = {each.rpartition(".")[0].lower() for each in _SHORT.findall(line)}
    return bool(named & functions or briefly & short)
