"""Texts of finding records: instruction, kernel, wave, lanes and address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.isa import Target, decode
from zinc_rt.isa.control_flow import find_reading
from zinc_rt.sim.interfaces import CodePlace, OtherAccess
from zinc_rt.sim.shader.checks.race_entry import decode_racing_access
from zinc_rt.sim.shader.layout import IN_LDS, SITE_BARRIER, Site, WaveAccess

RACES = ("race", "lds-race", "lds-same-store")
MAX_OF_SITE = 4  # sentences of one instruction and rule in one launch; the rest is counted

ACCESSES = {
    WaveAccess.READ: "load",
    WaveAccess.WRITE: "store",
    WaveAccess.ATOMIC: "atomic",
    WaveAccess.SCALAR_READ: "scalar load",
}


@dataclass(frozen=True, slots=True)
class WaveFinding:
    rule: str
    sentence: str
    place: CodePlace

    @property
    def pc(self) -> int:
        return self.place.pc

    @property
    def lanes(self) -> int:
        return self.place.lanes

    @property
    def address(self) -> int | None:
        return self.place.address


@dataclass(frozen=True, slots=True)
class FindingText:
    """A formatter of findings for one kernel. Sites have byte offsets in `code`; reported offsets are relative to
    the kernel's `entry`, so a function before the entry has negative offsets.
    """

    name: str
    code: bytes
    target: Target
    sites: tuple[Site, ...]
    groups: tuple[int, int, int]
    start: tuple[int, int, int]
    describe: Callable[[int], str]
    explain_stale: Callable[[int, bool], str] | None = None  # (VA, whether by a scalar load): why it may be
    entry: int = 0

    @property
    def wave(self) -> int:
        return self.target.wave

    def format_records(self, records: np.ndarray, total: int) -> Iterator[WaveFinding]:
        """Format FINDING records, sorted by site. `total` includes records that did not fit."""
        message: dict[int, int] = {}
        for record in records:
            site = int(record["site"])
            message[site] = message.get(site, 0) + 1
            if message[site] <= MAX_OF_SITE:
                yield self._format_record(record, site)
        more = {site: count - MAX_OF_SITE for site, count in message.items() if count > MAX_OF_SITE}
        for site, count in more.items():
            location = self._find_site(site)
            text = disassemble_at(self.code, location.pc, self.target, self.entry)
            yield WaveFinding(
                location.rule,
                f"{self.name}: {location.rule} {count} more times at {self.instruction(location.pc)}",
                CodePlace(self.name, location.pc - self.entry, text, count=count),
            )
        lost = total - len(records)
        if lost > 0:
            yield WaveFinding(
                "findings-lost", f"{self.name}: {lost} further findings were not recorded", CodePlace(self.name, 0)
            )

    def _find_site(self, number: int) -> Site:
        return Site(0, "barrier-mismatch") if number == SITE_BARRIER else self.sites[number]

    def _format_record(self, record: np.void, number: int) -> WaveFinding:
        site = self._find_site(number)
        if number == SITE_BARRIER:
            return self._describe_barrier(record)
        lanes, address = int(record["lanes"]), int(record["address"])
        is_address = address or site.text == IN_LDS
        other = self._find_other_access(record, site) if site.rule in RACES else None
        location = address if is_address else None
        return self.at(site, int(record["wave"]), int(record["group"]), lanes, location, other)

    def _find_other_access(self, record: np.void, site: Site) -> OtherAccess:
        """Return the access that races with that of a record."""
        in_lds = site.text == IN_LDS
        result = decode_racing_access(int(record["other_entry"]), int(record["other_site"]), lds=in_lds)
        group = int(record["group"]) if in_lds else result.group
        pc = self.sites[result.site].pc
        return OtherAccess(
            f"{'atomic ' if result.atomic else ''}{'load' if result.reads else 'store'}",
            pc - self.entry,
            disassemble_at(self.code, pc, self.target, self.entry),
            None if group is None else self._group_text(group),
            result.wave,
        )

    def _describe_barrier(self, record: np.void) -> WaveFinding:
        """Describe the wave that signalled, and the waves that ended without a signal, with their positions."""
        ended, end_pc = int(record["lanes"]), int(record["end_pc"])
        waves = format_numbers([wave for wave in range(64) if ended >> wave & 1])
        text = (
            f"{'waves' if ended.bit_count() > 1 else 'wave'} {waves} of the workgroup ended, "
            f"{'the first ' if ended.bit_count() > 1 else ''}at {self.instruction(end_pc)}, "
            "without reaching this barrier, where other waves waited"
        )
        site = Site(int(record["address"]), "barrier-mismatch", text)
        return self.at(site, int(record["wave"]), int(record["group"]))

    def format_fault(self, state: np.void, context: np.void, reason: str) -> tuple[WaveFinding, str]:
        """Format the access that ended a wave with Status.FAULT, with a description of its kind."""
        kind = ACCESSES[WaveAccess(int(context["fault_access"]))]
        site = Site(int(state["pc"]), "page-fault", f"{kind}, {reason}")
        lanes, address = int(context["fault_lanes"]), int(context["fault_va"])
        return self.at(site, int(state["wave_in_group"]), int(state["group"]), lanes, address), kind

    def format_wave(self, header: np.void, site: Site) -> WaveFinding:
        """Describe the position of the wave with that state header."""
        return self.at(site, int(header["wave_in_group"]), int(header["group"]))

    def at(
        self,
        site: Site,
        wave: int,
        group: int,
        lanes: int = 0,
        address: int | None = None,
        other: OtherAccess | None = None,
    ) -> WaveFinding:
        """Format a position in one wave; `group` is the linear number. `other`: the other access of a race."""
        location = CodePlace(
            self.name,
            site.pc - self.entry,
            disassemble_at(self.code, site.pc, self.target, self.entry),
            self._group_text(group),
            wave,
            lanes,
            address,
            self._format_detail(site, address),
            other=other,
        )
        return WaveFinding(site.rule, self._format_sentence(site, wave, group, lanes, address, other), location)

    def _format_detail(self, site: Site, address: int | None) -> str:
        if address is not None and site.rule == "stale-line" and self.explain_stale is not None:
            scalar = disassemble_at(self.code, site.pc, self.target, self.entry).startswith("s_")
            return self.explain_stale(address, scalar)
        return "; ".join(item for item in (RULES[site.rule].default_text, site.text) if item)

    def _format_sentence(
        self, site: Site, wave: int, group: int, lanes: int, address: int | None, other: OtherAccess | None
    ) -> str:
        parts = [f"{self.name}: {site.rule} at {self.instruction(site.pc)}"]
        text = self._format_detail(site, address)
        parts.append(f"wave {wave} of workgroup {self._group_text(group)}")
        if lanes:
            parts.append(format_lanes(lanes, self.wave))
        if address is not None:
            known = "" if site.text == IN_LDS else f" ({self.describe(address)})"
            parts.append(f"address 0x{address:x}{known}")
        if other is not None:
            code = f"pc {other.pc:#x} `{other.instruction}`"
            parts.append(f"with the {other.kind} at {code}, {format_waves(other.wave, other.group)}")
        return ", ".join(parts) + (f": {text}" if text else "") + self._format_context(site.pc)

    def _group_text(self, number: int) -> tuple[int, int, int]:
        return group_id(number, self.groups, self.start)

    def instruction(self, pc: int) -> str:
        """Describe an instruction with its offset from the entry."""
        return f"pc {pc - self.entry:#x} `{disassemble_at(self.code, pc, self.target, self.entry)}`"

    def _format_context(self, pc: int) -> str:
        before, after = find_neighbours(self.code, pc, self.target, self.entry)
        parts = [f"before it `{before}`"] if before else []
        parts += [f"after it `{after}`"] if after else []
        return f" [{', '.join(parts)}]" if parts else ""


def group_id(number: int, groups: tuple[int, int, int], start: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return (x, y, z) of a workgroup from its linear number in the launch."""
    x, y, _ = groups
    return number % x + start[0], number // x % y + start[1], number // (x * y) + start[2]


def format_waves(wave: int | None, group: tuple[int, int, int] | None) -> str:
    """Describe the wave of an access that several waves may have made, e.g. wave 1 of workgroup (0, 0, 0)."""
    if group is None:
        return "several workgroups"
    return f"{'several waves' if wave is None else f'wave {wave}'} of workgroup {group}"


def format_lanes(lanes: int, wave: int) -> str:
    """Format a lane mask, e.g. lane 3, lanes 0-7 and 9, all lanes."""
    if lanes == (1 << wave) - 1:
        return "all lanes"
    return ("lane " if lanes.bit_count() == 1 else "lanes ") + format_numbers(
        [lane for lane in range(wave) if lanes >> lane & 1]
    )


def format_numbers(numbers: Sequence[int]) -> str:
    """Format numbers, e.g. 3, 0-7, 0-3, 5: runs of ascending numbers, truncated."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs]
    if len(texts) > 6:
        texts = [*texts[:5], f"{len(numbers)} in all"]
    return ", ".join(texts)


def disassemble_at(code: bytes, pc: int, target: Target, entry: int = 0) -> str:
    """Return the disassembled instruction at the pc of the kernel that begins at `entry`."""
    instruction = decode(code, pc, find_reading(code, target, entry)) if 0 <= pc < len(code) else None
    return instruction.text if instruction is not None else "no instruction"


def find_neighbours(code: bytes, pc: int, target: Target, entry: int = 0) -> tuple[str, str]:
    """Return the previous and next instruction, or "" if there is none. Assumes straight-line code from
    `entry`, or from the start if `pc` is before the entry.
    """
    target = find_reading(code, target, entry)
    index, before = entry if pc >= entry else 0, ""
    while index < pc:
        instruction = decode(code, index, target)
        if instruction is None:
            before, index = "", index + 4
            continue
        before, index = instruction.text, index + instruction.size_bytes
    if index != pc:
        before = ""
    text = decode(code, pc, target) if pc >= 0 else None
    after = decode(code, pc + text.size_bytes, target) if text is not None else None
    return before, after.text if after is not None else ""
