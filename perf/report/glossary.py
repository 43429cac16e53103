"""Definitions of the terms on a report's page: sections of the original design, entries of the errata, terms."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What a section of the original ZINC_RT design is about, by number or by its first part.
SECTIONS: Mapping[str, str] = {
    "1": "targets and where it stands",
    "1.A": "requirements for a valid figure",
    "2": "the time of a token",
    "3.1": "speed of one stream",
    "3.2": "speed of many slots together",
    "3.3": "speed of a prompt",
    "3.4": "time to the first token",
    "3.5": "power",
    "6": "architecture",
    "8": "tiers",
    "9": "the intermediate representation",
    "10": "memory",
    "11": "what a kernel gets and how it is made",
    "12": "submissions a token",
    "14": "user queues",
    "15": "the CPU tier",
    "16": "the Metal tier",
    "17": "matrix instructions",
    "18": "many tenants in one batch",
    "19": "the paged cache",
    "20": "speculative decoding",
    "21": "the persistent kernel",
    "22": "other makers' devices",
    "23": "validation",
    "25": "milestones",
    "25.3": "robustness requirements of a milestone's speed",
}
# Where the original is wrong about hardware, kernel or arithmetic: the errata win.
ERRATA: Mapping[str, str] = {
    "20": "a doorbell alone orders nothing: buffers are used again only behind a fence",
    "33": "T1 saves no scheduler hop over T2",
    "34": "writing packets costs the same on T1 and T2",
    "37": "user queues are off by default on every kernel: T2 has to be enabled",
    "41": "T2's packets differ from T1's in four details",
    "42": "on user queues a kernel that never ends cannot be preempted; on KFD it can",
    "56": "the host sees memory in the BAR only behind flushes on both sides",
    "60": "a page of the cache holds keys and values: it is larger than the original says",
    "61": "gfx1151 is RDNA3.5",
    "62": "the card's nominal power is 300 W, not 200 W",
    "63": "bits agree across tiers only in a fixed order of sums with fixed rounding",
}
TERMS: Mapping[str, str] = {
    "PASS, FAIL, BLOCKED": "every criterion shown; one shown not to hold; one that could not be shown here. What "
    "was not shown is never taken for granted.",
    "structural": "a count taken by running something, on any device, a simulated one included",
    "measured": "a speed: only a report of zinc-rt perf bench on the hardware named may show it",
    "timed": "a speed of this machine's CPU, from zinc-rt perf native",
    "manual": "a person's statement, with name and date",
    "refused": "a report that may not speak, with the rule that says so and why",
    "not built": "this version has no such thing; the change that builds it turns its criterion on",
    "t1, t2": "AMD GPUs through /dev/kfd, and through amdgpu's user queues",
    "t_cpu, t_cpu_native": "the NumPy oracle that judges all others, and this machine's CPU in machine code",
    "simulated": "a device of this program's own: it shows what the runtime does and nothing about hardware",
    "bits equal": "every value compared has the same bits as the oracle's, not merely a near one",
    "head": "the hash of a history's last entry: noted elsewhere, it shows that no entry was changed or left out",
    "BAR": "the card's memory as the host maps it",
    "slots": "sequences that advance together in one submission",
    "expected": "what a chip need not pass, each with its reason, stands in its expectations file",
    "flake": "a check that fails now and then, at a rate that its expectations file names",
    "tok/s": "tokens a second", "ttft": "time to the first token", "p99": "99 of 100 tokens are at least as fast",
}  # fmt: skip
SECTION = re.compile(r"§([0-9]+(?:\.[0-9A-Z]+)*)")
ENTRY = re.compile(r"\bE ([0-9]+)\b(:?)")


def about(section: str) -> str:
    """Return the title of a section, else of its parent section; "" for an unknown one."""
    while section:
        if section in SECTIONS:
            return SECTIONS[section]
        section = section.rpartition(".")[0]
    return ""


def in_words(text: str) -> str:
    """Expand references: "§25 M1" -> "design section 25 (milestones) M1", "E 37" -> "errata 37 (user queues are
    ...)"."""

    def section(found: re.Match[str]) -> str:
        told = about(found[1])
        return f"design section {found[1]}" + (f" ({told})" if told else "")

    def entry(found: re.Match[str]) -> str:
        told = "" if found[2] else ERRATA.get(found[1], "")  # behind a colon it is said already
        return f"errata {found[1]}" + (f" ({told})" if told else "") + found[2]

    return ENTRY.sub(entry, SECTION.sub(section, text))


def source_in_words(text: str) -> tuple[str, str]:
    """Return a criterion's source in short form and its kind: a section, an entry, a document of the original, or
    a requirement of this project."""
    if text == "issue":
        return "this project", "asked for by this project, not by the original design"
    if text == "batched_prefill":
        return "batched prefill", "the original's note on batched prefill"
    if found := SECTION.match(text):
        return f"design {found[1]}", f"the original design, section {found[1]}: {about(found[1])}"
    if found := ENTRY.match(text):
        return f"errata {found[1]}", ERRATA.get(found[1], "")
    return text, "the original design's appendix" if text.startswith("Appendix") else ""
