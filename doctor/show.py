"""Print a diagnosis: the machine in a few lines, each finding, unknown values, the verdict."""

from __future__ import annotations

import textwrap

from zinc_rt.cli.output import printable
from zinc_rt.doctor.diagnose import NOTHING, Diagnosis
from zinc_rt.doctor.finding import DoctorFinding
from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine

_WIDTH = 118
_EVIDENCE = 160
_INDENT = " " * 10
_NOTHING_SHOWN = (
    "run it again while the program stands; if the GPU advanced between the samples, look at the program "
    "(sudo cat /proc/PID/stack). If the whole machine stands: netconsole or a serial console for the last lines, "
    "and the reset reason in the log of the next boot. Until the cause is known --hazard 0"
)


def format_diagnosis(diagnosis: Diagnosis, *, verbose: bool) -> str:
    lines = [*format_summary(diagnosis.machine), ""]
    hidden = 0
    folded = diagnosis.consequences
    for finding in diagnosis.findings:
        consequence = finding.id in folded
        quiet = (
            finding.severity == "note"
            and finding.id != "gpu.none"
            and (diagnosis.exit_code() == 1 or not finding.next)
        )
        if quiet and not verbose:
            hidden += 1
            continue
        lines += [*_format_finding(finding, short=consequence and not verbose, verbose=verbose), ""]
    lines += _format_unknown(diagnosis, verbose=verbose)
    if hidden:
        lines.append(f"notes     {hidden} more with -v")
    lines.append(format_verdict(diagnosis))
    return "\n".join(lines)


def format_summary(machine: InspectedMachine) -> list[str]:
    kernel, module, host = machine.linux, machine.module, machine.host
    lines = [
        f"kernel    {printable(kernel.release or 'unknown', 100)}"
        + (f" ({printable(host.pretty, 60)})" if host.pretty else "")
    ]
    if module.loaded:
        kind = {
            True: f"DKMS {module.version or ''}".strip(),
            False: "the kernel's own",
            None: "of unknown origin",
        }[module.dkms]
        lines.append(f"amdgpu    {printable(kind, 60)}")
    none = "none found" if machine.gpus_known else "unknown: neither sysfs nor lspci was captured"
    lines += [f"gpu       {_format_gpu(gpu)}" for gpu in machine.gpus] or [f"gpu       {none}"]
    where = [f"container {host.container}"] * bool(host.container) + [f"virtual machine {host.hypervisor}"] * bool(
        host.hypervisor
    )
    lines += [f"inside    {printable(', '.join(where), 100)}"] if where else []
    return lines


def _format_gpu(gpu: InspectedGpu) -> str:
    parts = [gpu.title]
    if gpu.driver is not None:
        parts.append(gpu.driver or "no driver")
    if gpu.vram_bytes:
        parts.append(f"{gpu.vram_bytes >> 20} MiB")
    if gpu.firmware:
        parts.append(
            "firmware " + " ".join(f"{n} {v}" for n, v in gpu.firmware.items() if n in ("ME", "PFP", "MEC", "MES"))
        )
    return printable(", ".join(parts), 200)


def _format_finding(finding: DoctorFinding, *, short: bool, verbose: bool) -> list[str]:
    tiers = f"  ({', '.join(finding.tiers)})" if finding.tiers else ""
    head = f"{finding.severity.upper() if finding.severity == 'broken' else finding.severity:<10}"
    if short:
        return _wrap_lines("  follows ", f"{finding.title}  [{finding.id}]")
    lines = _wrap_lines(head, f"{finding.title}  [{finding.id}]{tiers}")
    lines += _wrap_lines("  why     ", finding.why) if finding.why else []
    lines += _wrap_lines("  do      ", finding.next) if finding.next else []
    known = [item.partition(": ")[2] for item in finding.evidence if item.startswith("combinations.yaml: ")]
    seen = [item for item in finding.evidence if not item.startswith("combinations.yaml: ")]
    shown = seen if verbose else seen[:2]
    for item in known:
        lines += _wrap_lines("  known   ", item)
    lines += [f"  seen    {printable(item, 400 if verbose else _EVIDENCE)}" for item in shown]
    lines += _wrap_lines("  causes  ", ", ".join(finding.cause_of)) if finding.cause_of else []
    return lines


def _wrap_lines(head: str, body: str) -> list[str]:
    return textwrap.wrap(
        head + printable(body), _WIDTH, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )


def _format_unknown(diagnosis: Diagnosis, *, verbose: bool) -> list[str]:
    rows = diagnosis.unknown
    if not rows:
        return []
    if not diagnosis.machine.gpus and not verbose:
        return []
    if diagnosis.first is not None and not verbose:
        return [f"unknown   {len(rows)} values; -v lists them, with the rules that wait for them", ""]
    lines = []
    for row in rows:
        if not (row.matters or verbose):
            continue
        output = f"{row.what}: {row.why}" + (f"; {row.next}" if row.next else "")
        lines += _wrap_lines("UNKNOWN   " if row.matters else "unknown   ", output)
        if row.waits:
            lines += _wrap_lines("  waits   ", f"these rules cannot decide without it: {', '.join(row.waits)}")
    hidden = len(rows) - sum(line.lower().startswith("unknown") for line in lines)
    lines += [f"unknown   {hidden} more with -v"] * bool(hidden)
    return [*lines, ""]


def format_verdict(diagnosis: Diagnosis) -> str:
    count = {kind: sum(f.severity == kind for f in diagnosis.findings) for kind in ("broken", "warning", "note")}
    numbers = f"{count['broken']} broken, {count['warning']} warnings, {count['note']} notes"
    code = diagnosis.exit_code()
    none = diagnosis.machine.gpus_known and any(finding.id == NOTHING for finding in diagnosis.findings)
    if none and code == 77:
        return f"NO GPU    nothing to diagnose: {numbers}"
    if code == 77:
        missing = next((unknown for unknown in diagnosis.unknown if unknown.matters), None)
        if missing is None:
            text = "the machine is said to hang, and nothing that was read shows why"
            do = _wrap_lines("  do      ", _NOTHING_SHOWN)
            return "\n".join([*_wrap_lines("UNKNOWN   ", text), *do, _INDENT + numbers])
        text = f"nothing found{' about a GPU' * bool(diagnosis.first)}, but this is unknown: {missing.what}"
        return "\n".join(
            [*_wrap_lines("UNKNOWN   ", text), *_wrap_lines("  do      ", missing.next), _INDENT + numbers]
        )
    if diagnosis.first is not None:
        head = "BROKEN" if count["broken"] else "FOUND"
        hazard = f"\n{_INDENT}until it is mended, no probe above --hazard {diagnosis.hazard}"
        more = "" if diagnosis.hazard is None else hazard
        return f"{head:<10}first cause: {printable(diagnosis.first.title, 150)}\n{_INDENT}{numbers}{more}"
    unknown = f", {len(diagnosis.unknown)} unknown" if diagnosis.unknown else ""
    return f"OK        no problem found: {numbers}{unknown}"
