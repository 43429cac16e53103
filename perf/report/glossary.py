"""Definitions of the terms on a report's page: sections of the original design, entries of the errata, terms."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Topics of the sections of the original ZINC_RT design, by number or by its first part.
SECTIONS: Mapping[str, str] = {
    "1": "targets and status",
    "1.A": "requirements for a valid figure",
    "2": "the time of a token",
    "3.1": "speed of one stream",
    "3.2": "aggregate speed of many slots",
    "3.3": "speed of a prompt",
    "3.4": "time to the first token",
    "3.5": "power",
    "6": "architecture",
    "8": "tiers",
    "9": "the intermediate representation",
    "10": "memory",
    "11": "kernel arguments and code generation",
    "12": "submissions per token",
    "14": "user queues",
    "15": "the CPU tier",
    "16": "the Metal tier",
    "17": "matrix instructions",
    "18": "many tenants in one batch",
    "19": "the paged cache",
    "20": "speculative decoding",
    "21": "the persistent kernel",
    "22": "devices of other vendors",
    "23": "validation",
    "25": "milestones",
    "25.3": "robustness requirements of a milestone's speed",
}
# Corrections of the original design about hardware, kernel and arithmetic.
ERRATA: Mapping[str, str] = {
    "20": "a doorbell does not order memory accesses: buffers are reused only after a fence",
    "33": "T1 does not avoid a scheduler step compared with T2",
    "34": "writing packets costs the same on T1 and T2",
    "37": "user queues are off by default on every kernel: T2 has to be enabled",
    "41": "T2's packets differ from T1's in four details",
    "42": "on user queues a kernel that never ends cannot be preempted; on KFD it can",
    "56": "memory in the BAR is coherent with the host only after flushes on both sides",
    "60": "a page of the cache contains keys and values: it is larger than the original states",
    "61": "gfx1151 is RDNA3.5",
    "62": "the card's nominal power is 300 W, not 200 W",
    "63": "tiers are bit-exact only with a fixed summation order and fixed rounding",
}
TERMS: Mapping[str, str] = {
    "PASS, FAIL, BLOCKED": "all criteria are met; a criterion is not met; a criterion could not be checked here. "
    "A criterion that was not checked never counts as met.",
    "structural": "a count from a run on any device, including a simulated one",
    "measured": "a speed, accepted only from a report of zinc-rt perf bench on the named hardware",
    "timed": "a speed of this machine's CPU, from zinc-rt perf native",
    "manual": "a statement by a person, with name and date",
    "refused": "a report that does not count as evidence, with the rule and the reason",
    "not built": "not implemented in this version; the change that implements it enables its criterion",
    "t1, t2": "AMD GPUs through /dev/kfd, and through amdgpu's user queues",
    "t_cpu, t_cpu_native": "the NumPy reference for all other tiers, and compiled kernels on this machine's CPU",
    "simulated": "the simulated device of zinc-rt: its results show the runtime's behaviour, not the hardware's",
    "bits equal": "every compared value has the same bits as the reference",
    "head": "the hash of a history's last entry: recorded elsewhere, it proves that no entry was changed or "
    "removed",
    "BAR": "the part of the card's memory that the host can map",
    "slots": "sequences that advance together in one submission",
    "expected": "a result that the chip's expectations file allows, with a reason",
    "flake": "a check that fails intermittently, at the rate in the expectations file",
    "tok/s": "tokens per second", "ttft": "time to the first token", "p99": "99 % of tokens take at most this "
    "long",
}  # fmt: skip
SECTION = re.compile(r"§([0-9]+(?:\.[0-9A-Z]+)*)")
ENTRY = re.compile(r"\bE ([0-9]+)\b(:?)")


def section_title(section: str) -> str:
    """Return the title of a section, else of its parent section; "" for an unknown one."""
    while section:
        if section in SECTIONS:
            return SECTIONS[section]
        section = section.rpartition(".")[0]
    return ""


def expand_terms(text: str) -> str:
    """Expand references: "§25 M1" -> "design section 25 (milestones) M1", "E 37" -> "errata 37 (user queues are
    ...)"."""

    def format_section(match: re.Match[str]) -> str:
        meaning = section_title(match[1])
        return f"design section {match[1]}" + (f" ({meaning})" if meaning else "")

    def format_entry(match: re.Match[str]) -> str:
        meaning = "" if match[2] else ERRATA.get(match[1], "")  # after a colon the text is already there
        return f"errata {match[1]}" + (f" ({meaning})" if meaning else "") + match[2]

    return ENTRY.sub(format_entry, SECTION.sub(format_section, text))


def describe_source(text: str) -> tuple[str, str]:
    """Return a criterion's source in short form and its kind: a section, an entry, a document of the original, or
    a requirement of this project."""
    if text == "issue":
        return "this project", "required by this project, not by the original design"
    if text == "batched_prefill":
        return "batched prefill", "the original's note on batched prefill"
    if match := SECTION.match(text):
        return f"design {match[1]}", f"the original design, section {match[1]}: {section_title(match[1])}"
    if match := ENTRY.match(text):
        return f"errata {match[1]}", ERRATA.get(match[1], "")
    return text, "the original design's appendix" if text.startswith("Appendix") else ""
