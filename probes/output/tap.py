"""TAP version 14, the form test harnesses of kernels and drivers read."""

from __future__ import annotations

import json

from zinc_rt.cli.report import Report


def to_tap(report: Report) -> str:
    lines = ["TAP version 14", f"1..{len(report.results)}"]
    if report.device.get("simulated"):
        lines.append("# simulated device: says nothing about hardware")
    for number, result in enumerate(report.results, 1):
        good = result.status != "fail"
        text = f"{'ok' if good else 'not ok'} {number} - {result.id} {result.measure.get('title', '')}"
        if result.status in ("skip", "blocked"):
            text += f" # SKIP {_one_line(result.reason)}"
        elif result.status == "flake":
            text += f" # TODO {_one_line(result.reason)}"
        lines.append(text)
        if result.status == "fail":
            lines.append("  ---")
            for key in ("reason", "cause", "advice", "repro"):
                lines.append(f"  {key}: {json.dumps(getattr(result, key))}")
            lines.append("  ...")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("#", "no. ")
