"""Print a diagnosis: the machine in a few lines, each finding, unknown values, the verdict."""

from __future__ import annotations

import textwrap

from zinc_rt.cli.output import printable
from zinc_rt.doctor.diagnose import Diagnosis
from zinc_rt.doctor.finding import DoctorFinding
from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine

_WIDTH = 118
_EVIDENCE = 160
_INDENT = " " * 10


def text(diagnosis: Diagnosis, *, verbose: bool) -> str:
    lines = [*summary(diagnosis.machine), ""]
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
        lines += [*_finding(finding, short=consequence and not verbose, verbose=verbose), ""]
    lines += _unknown(diagnosis, verbose=verbose)
    if hidden:
        lines.append(f"notes     {hidden} more with -v")
    lines.append(verdict(diagnosis))
    return "\n".join(lines)


def summary(machine: InspectedMachine) -> list[str]:
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
    lines += [f"gpu       {_gpu(gpu)}" for gpu in machine.gpus] or ["gpu       none found"]
    where = [f"container {host.container}"] * bool(host.container) + [f"virtual machine {host.hypervisor}"] * bool(
        host.hypervisor
    )
    lines += [f"inside    {printable(', '.join(where), 100)}"] if where else []
    return lines


def _gpu(gpu: InspectedGpu) -> str:
    said = [gpu.title]
    if gpu.driver is not None:
        said.append(gpu.driver or "no driver")
    if gpu.vram_bytes:
        said.append(f"{gpu.vram_bytes >> 20} MiB")
    if gpu.firmware:
        said.append(
            "firmware " + " ".join(f"{n} {v}" for n, v in gpu.firmware.items() if n in ("ME", "PFP", "MEC", "MES"))
        )
    return printable(", ".join(said), 200)


def _finding(finding: DoctorFinding, *, short: bool, verbose: bool) -> list[str]:
    tiers = f"  ({', '.join(finding.tiers)})" if finding.tiers else ""
    head = f"{finding.severity.upper() if finding.severity == 'broken' else finding.severity:<10}"
    if short:
        return _wrapped("  follows ", f"{finding.title}  [{finding.id}]")
    lines = _wrapped(head, f"{finding.title}  [{finding.id}]{tiers}")
    lines += _wrapped("  why     ", finding.why) if finding.why else []
    lines += _wrapped("  do      ", finding.next) if finding.next else []
    known = [each.partition(": ")[2] for each in finding.evidence if each.startswith("combinations.yaml: ")]
    seen = [each for each in finding.evidence if not each.startswith("combinations.yaml: ")]
    shown = seen if verbose else seen[:2]
    for each in known:
        lines += _wrapped("  known   ", each)
    lines += [f"  seen    {printable(each, 400 if verbose else _EVIDENCE)}" for each in shown]
    lines += _wrapped("  causes  ", ", ".join(finding.cause_of)) if finding.cause_of else []
    return lines


def _wrapped(head: str, body: str) -> list[str]:
    return textwrap.wrap(
        head + printable(body), _WIDTH, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )


def _unknown(diagnosis: Diagnosis, *, verbose: bool) -> list[str]:
    rows = diagnosis.unknown
    if not rows:
        return []
    if not diagnosis.machine.gpus and not verbose:
        return []
    lines = []
    for row in rows:
        said = f"{row.what}: {row.why}" + (f"; {row.next}" if row.next else "")
        lines += _wrapped("unknown   ", said)
    return [*lines, ""]


def verdict(diagnosis: Diagnosis) -> str:
    count = {kind: sum(f.severity == kind for f in diagnosis.findings) for kind in ("broken", "warning", "note")}
    numbers = f"{count['broken']} broken, {count['warning']} warnings, {count['note']} notes"
    code = diagnosis.exit_code()
    if code == 77:
        return f"NO GPU    nothing to diagnose: {numbers}"
    if code == 1:
        broken = next(
            (f for f in diagnosis.findings if f.severity == "broken" or _leads_to_broken(f, diagnosis)), None
        )
        assert broken is not None
        return f"BROKEN    first cause: {printable(broken.title, 150)}\n{_INDENT}{numbers}"
    unknown = f", {len(diagnosis.unknown)} unknown" if diagnosis.unknown else ""
    return f"OK        no problem found: {numbers}{unknown}"


def _leads_to_broken(finding: DoctorFinding, diagnosis: Diagnosis) -> bool:
    broken = {each.id for each in diagnosis.findings if each.severity == "broken"}
    return bool(broken & set(finding.cause_of))
