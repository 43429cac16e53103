"""Print a bundle as text: the machine, the findings, the failures, the contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.doctor.bundle.format import Bundle

FAILURES_SHOWN = 20


def format_readme(bundle: Bundle) -> str:
    return "\n".join([*format_lines(bundle), "", *_CLOSING]) + "\n"


_CLOSING = (
    "Names of people, machines, networks and disks, addresses, serial numbers and keys were replaced. The same",
    "placeholder, such as <host-1>, means the same item in every file. Review the bundle before you share it.",
    "zinc-rt bundle show FILE prints this; zinc-rt bundle diff A B compares two machines.",
)


def format_lines(bundle: Bundle) -> Iterator[str]:
    """Return the lines for a terminal or README.txt."""
    manifest, configuration = bundle.manifest, bundle.combination
    if manifest["simulated"]:
        yield "SIMULATED device: says nothing about hardware"
    yield f"bundle    of {manifest['created']}, zinc-rt {manifest['tool'].get('version', 'unknown')}"
    chip = " ".join(filter(None, (configuration.chip, configuration.pci_id))) or "unknown"
    yield f"card      {chip}{_format_card(configuration.card)}"
    yield f"kernel    {configuration.kernel or 'unknown'}{', ' + configuration.os if configuration.os else ''}"
    yield f"amdgpu    {configuration.module or 'module version unknown'}"
    for name, values in (
        ("firmware", configuration.firmware),
        ("set", configuration.parameters),
        ("packages", configuration.packages),
    ):
        if name == "set":
            values = {key: value for key, value in values.items() if key.startswith("boot: ")}
        if values:
            yield f"{name:<9} {', '.join(f'{key} {value}' for key, value in values.items())}"
    for note in manifest["notes"]:
        yield f"note      {note}"
    yield from _format_findings(bundle)
    for name, report in sorted(bundle.reports.items()):
        yield from _format_report(name, report)
    hangs = sorted(
        {name.split("/")[1] for name in bundle.files if name.startswith("hangs/") and name.count("/") > 1}
    )
    if hangs:
        yield f"hangs     {', '.join(hangs)}"
    for cut in manifest["cut"]:
        size = f" {cut['kept_bytes']} of {cut['had_bytes']} bytes" if cut.get("had_bytes") else ""
        yield f"cut       {cut.get('path', '')}{size}: {cut.get('why', '')}"
    hidden = ", ".join(f"{count} {kind}" for kind, count in manifest["hidden"].items())
    yield f"hidden    {hidden or 'nothing'}"


def _format_card(card: str) -> str:
    return f" (card {card[:8]})" if card else ""


def _format_findings(bundle: Bundle) -> Iterator[str]:
    for finding in bundle.findings:
        yield f"{finding.get('severity', 'finding')!s:<9} {finding.get('id', '')}: {finding.get('title', '')}"
        if finding.get("next"):
            yield f"          next: {finding['next']}"


def _format_report(name: str, report: Mapping[str, Any]) -> Iterator[str]:
    results = [result for result in report.get("results", []) if isinstance(result, dict)]
    counts = Counter(str(result.get("status", "")) for result in results)
    verdict = report.get("verdict")
    word = verdict.get("status", "") if isinstance(verdict, dict) else ""
    shown = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    yield f"report    {name.removeprefix('reports/')}: {report.get('command', '')} {word}, {shown or 'no results'}"
    failed = [result for result in results if result.get("status") == "fail"]
    for item in failed[:FAILURES_SHOWN]:
        yield f"  FAIL    {item.get('id', '')}: {_take_first_line(item.get('reason', ''))}"
        if item.get("cause"):
            yield f"          cause: {_take_first_line(item['cause'])}"
    if len(failed) > FAILURES_SHOWN:
        yield f"          and {len(failed) - FAILURES_SHOWN} more"


def _take_first_line(value: object) -> str:
    return str(value).partition("\n")[0]
