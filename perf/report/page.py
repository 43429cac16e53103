"""Write one self-contained page about a folder of reports: gates, speeds, trends, probes, validation, logs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from zinc_rt.backends import registry
from zinc_rt.perf.gate.milestones import load_milestones
from zinc_rt.perf.gate.report_files import ReportFile
from zinc_rt.perf.history.chain import History
from zinc_rt.perf.history.charts import draw_svg
from zinc_rt.perf.history.trends import group_series
from zinc_rt.perf.report.glossary import TERMS, describe_source, expand_terms
from zinc_rt.perf.report.links import PageLinks

TEMPLATE = Path(__file__).resolve().parent / "report.html.jinja"
ARTIFACTS = (".log", ".html", ".xml", ".zlog", ".txt", ".json")
SHOWN = 40  # files of a folder
UNITS = {
    "decode": "tok/s",
    "aggregate": "tok/s",
    "prefill": "tok/s",
    "ttft": "s",
    "ttft_warm": "s",
    "idle_to_stream": "s",
    "endurance": "tokens",
    "power": "W",
}


@dataclass(frozen=True, slots=True)
class PageSources:
    """The inputs of the page. `links`: how the page links to files in `folder`."""

    folder: Path
    reports: Sequence[ReportFile]
    history: History | None = None
    summary: Mapping[str, Any] | None = None
    links: PageLinks | None = None

    def link(self, path: Path) -> str:
        """Return the page's link to a file."""
        return (self.links or PageLinks(self.folder / "index.html")).to(path, self.folder)

    def of(self, command: str) -> list[ReportFile]:
        """Return the reports of a command without duplicates, because a bundle contains a copy of its report."""
        files: dict[tuple[object, ...], ReportFile] = {}
        for report in self.reports:
            ids = tuple(result["id"] for result in report.results)
            if report.command == command:
                files.setdefault((report.started, report.model_digests, report.device.get("tier"), ids), report)
        return list(files.values())


def to_html(sources: PageSources) -> str:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    gates = _format_gates(sources)
    return template.render(
        head=_make_head(sources, gates),
        stages=(sources.summary or {}).get("stages", []),
        gates=gates,
        speeds=_format_speeds(sources),
        predictions=_format_predictions(sources),
        trends=_format_trends(sources),
        probes=_format_probes(sources),
        validations=_format_validations(sources),
        replays=_format_replays(sources),
        links=_list_links(sources),
        glossary=[*TERMS.items(), *_list_sources(gates)],
    )


def _make_head(sources: PageSources, gates: list[dict[str, Any]]) -> dict[str, Any]:
    summary = sources.summary or {}
    devices = {
        f"{device.get('name')} ({device.get('arch')})": bool(device.get("simulated"))
        for report in sources.reports
        if (device := report.device).get("name") and device.get("tier") != registry.ORACLE
    }
    codes = {str(report.details["code"])[:12] for report in sources.reports if report.details.get("code")}
    statuses = {gate["verdict"] for gate in gates}
    fallback = (
        "FAIL" if "FAIL" in statuses else "BLOCKED" if "BLOCKED" in statuses else "PASS" if gates else "REPORT"
    )
    return {
        "verdict": summary.get("verdict", fallback),
        "title": f"nightly: {count_stages_run(summary)}" if summary else "report",
        "period": _format_period(
            summary.get("started") or min((report.started for report in sources.reports), default=""),
            summary.get("ended", ""),
        ),
        "devices": list(devices),
        "simulated": any(devices.values()),
        "codes": sorted(codes),
        "expectations": summary.get("expectations", ""),
        "reports": len(sources.reports),
        "head": sources.history.head if sources.history else "",
        "problem": sources.history.problem if sources.history else "",
    }


def _format_period(started: str, ended: str) -> str:
    """Format a period from two times in ISO 8601 and UTC: "2026-11-27 17:45 to 18:20 UTC"."""
    first, last = (item[:16].replace("T", " ") for item in (started, ended))
    if last[:10] == first[:10]:
        last = last[11:]
    return " to ".join(filter(None, (first, last))) + " UTC" if first else "unknown"


def _format_gates(sources: PageSources) -> list[dict[str, Any]]:
    """Format the gates by milestone, each from the latest report that decided all of it."""
    whole = [item for item in sources.of("perf gate") if not item.details.get("only")]
    by_milestone: dict[str, dict[str, Any]] = {}
    titles = {milestone.id: milestone for milestone in load_milestones()}
    for evidence in sorted(whole, key=lambda item: item.started):
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for result in evidence.results:
            groups.setdefault(result["id"].partition("/")[0], []).append(result)
        for name, results in groups.items():
            counts = Counter(result["status"] for result in results)
            verdict = "FAIL" if counts["fail"] else "PASS" if counts["pass"] == len(results) else "BLOCKED"
            milestone = titles[name]
            by_milestone[name] = {
                "id": name,
                "title": milestone.title,
                "scope": milestone.scope,
                "notes": [expand_terms(note) for note in milestone.notes],
                "verdict": verdict,
                "counts": ", ".join(f"{count} {status}" for status, count in sorted(counts.items())),
                "rows": [_format_criterion(result) for result in results],
            }
    return [by_milestone[name] for name in sorted(by_milestone)]


def _list_sources(gates: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the sources of the criteria on the page, each once, in order."""
    named = {item for gate in gates for row in gate["rows"] for item in row["source"]}

    def place(source: tuple[str, str]) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"[ .]", source[0])]

    return sorted(named, key=place)


def _format_criterion(result: Mapping[str, Any]) -> dict[str, Any]:
    value = result["measure"].get("value")
    refused = result["measure"].get("refused", [])
    reason = result["reason"].partition("; ")[0] if refused else result["reason"]
    return {
        "name": result["id"].partition("/")[2],
        "what": result["measure"].get("what", ""),
        "kind": result["kind"],
        "status": result["status"],
        "value": "" if value is None else f"{value:g}",
        "limit": f"{result['limit']['compare']} {result['limit']['unit']}",
        "source": [describe_source(item) for item in result["limit"]["source"]],
        "seconds": f"{seconds:.1f}" if (seconds := result["measure"].get("seconds")) is not None else "",
        "reason": reason,
        "refused": ". ".join(refused),
        "forecast": result["measure"].get("forecast", {}).get("text", ""),
        "repro": result["repro"],
    }


def _format_speeds(sources: PageSources) -> list[dict[str, Any]]:
    """Format measured figures, each with the prediction for the same model if there is one."""
    predicted = {
        item.model_digests[0]: result["measure"]
        for item in sources.of("perf predict")
        if (result := item.result("predict/R9700")) is not None
    }
    rows = []
    for item in sorted(sources.of("perf bench"), key=lambda item: str(item.device.get("tier"))):
        prediction = predicted.get(item.model_digests[0], {})
        for result in item.results:
            measure = result["measure"]
            name = next((n for n in ("tokens_per_second", "seconds", "watts", "ratio") if n in measure), "")
            rows.append(
                {
                    "model": Path(str(item.report["model"].get("path", ""))).stem,
                    "tier": result["tier"],
                    "device": item.device.get("name"),
                    "simulated": item.device.get("simulated"),
                    "figure": result["id"],
                    "value": f"{measure[name]:.4g} {UNITS.get(result['id'], '')}" if name else "",
                    "spread": f"{measure['spread']:.0%}" if "spread" in measure else "",
                    "p99": f"{1e3 * measure['p99_seconds']:.1f} ms" if "p99_seconds" in measure else "",
                    "predicted": f"{prediction['tokens_per_second']:.0f} tok/s on an R9700"
                    if result["id"] == "decode" and prediction and result["tier"] != registry.ORACLE
                    else "",
                }
            )
    return rows


def _format_predictions(sources: PageSources) -> list[dict[str, Any]]:
    rows = []
    for item in sources.of("perf predict"):
        for result in item.results:
            measure = result["measure"]
            if "tokens_per_second" not in measure:
                continue
            seconds = measure["seconds"]
            total = sum(seconds.values())
            rows.append(
                {
                    "model": Path(str(item.report["model"].get("path", ""))).stem,
                    "device": result["id"].partition("/")[2],
                    "speed": f"{measure['tokens_per_second']:.0f}",
                    "range": " to ".join(f"{value:.0f}" for value in measure["range"]),
                    "ceiling": f"{measure['ceiling']:.0f}",
                    "bound": max(seconds, key=seconds.__getitem__),
                    "parts": [(name, 100 * value / total) for name, value in seconds.items() if value > 0],
                    "read": f"{item.details['work']['read_bytes']:,}",
                    "dispatches": item.details["work"]["dispatches"],
                    "barriers": item.details["work"]["barriers"],
                }
            )
    return rows


def _format_trends(sources: PageSources) -> list[dict[str, Any]]:
    if sources.history is None:
        return []
    return [
        {
            "title": series.title,
            "runs": len(series.values),
            "last": f"{series.values[-1]:.4g}",
            "worse": series.find_regression() is not None,
            "svg": Markup(draw_svg(series)) if len(series.values) > 1 else "",  # charts.py escapes its texts
        }
        for series in group_series(sources.history.entries)
    ]


def _format_probes(sources: PageSources) -> list[dict[str, Any]]:
    """Format one block per report: probes in rows, tiers in columns."""
    blocks = []
    for item in sources.of("pm4-test"):
        tiers = list(dict.fromkeys(result["tier"] for result in item.results))
        rows: dict[str, dict[str, Any]] = {}
        for result in item.results:
            name = result["id"].partition("/")[0]
            row = rows.setdefault(name, {"title": result["measure"].get("title", ""), "cells": {}, "bad": []})
            row["cells"][result["tier"]] = result["status"]
            if result["status"] != "pass":
                row["bad"].append(result.get("cause") or result.get("reason", ""))
        counts = Counter(result["status"] for result in item.results)
        rows = dict(sorted(rows.items()))
        blocks.append({"tiers": tiers, "rows": rows, "counts": dict(counts), "device": item.device.get("name")})
    return blocks


def _format_validations(sources: PageSources) -> list[dict[str, Any]]:
    rows = []
    for item in sources.of("validate"):
        path = item.path.with_suffix(".html")
        groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for result in item.results:
            groups.setdefault((result["tier"], result["reference"]), []).append(result)
        for (tier, reference), results in groups.items():
            counts = Counter(result["status"] for result in results)
            exact = bool(results) and all(
                r["measure"].get("equal_bits", False) for r in results if r["kind"] != "sanitizer"
            )
            rows.append(
                {
                    "model": Path(str(item.report["model"].get("path", ""))).stem,
                    "tier": tier,
                    "reference": "itself" if tier == reference else reference,
                    "counts": dict(counts),
                    "bits": "equal" if exact and results[0]["kind"] != "sanitizer" else "",
                    "link": sources.link(path) if path.exists() else "",
                }
            )
    return rows


def _format_replays(sources: PageSources) -> list[dict[str, Any]]:
    return [
        {"log": item.path.stem, "status": result["status"], "reason": result["reason"], "tier": result["id"]}
        for item in sources.of("replay")
        for result in item.results
    ]


def _list_links(sources: PageSources) -> list[dict[str, Any]]:
    """List other files by folder, hang bundles first because they are needed most."""
    folders: dict[str, list[Path]] = {}
    for path in sorted(sources.folder.rglob("*")):
        if path.is_file() and path.suffix in ARTIFACTS and path.parent != sources.folder:
            folders.setdefault(path.parent.relative_to(sources.folder).as_posix(), []).append(path)
    ordered = sorted(folders.items(), key=lambda item: ("hang" not in item[0], item[0]))
    return [
        {
            "folder": folder,
            "files": [(path.name, sources.link(path)) for path in paths[:SHOWN]],
            "more": max(0, len(paths) - SHOWN),
        }
        for folder, paths in ordered
    ]


def read_summary(folder: Path) -> Mapping[str, Any] | None:
    """Read a nightly's summary.json; None if there is none."""
    try:
        content = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("schema") == "zinc-rt-nightly/1" else None


def count_stages_run(summary: Mapping[str, Any]) -> str:
    """Return "n of 10 stages": the number of stages of a nightly summary that ran, out of all stages."""
    rows = summary.get("stages", [])
    ran = sum(row["status"] != "SKIP" for row in rows)
    return f"{ran} of {summary.get('stages_total', len(rows))} stages"
