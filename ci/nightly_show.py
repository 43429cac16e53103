"""What a night leaves to look at: a screen, JUnit, a page, and a bundle in the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from nightly_files import STATE, tail
from nightly_stages import STAGES, Night, has, zinc


def show(night: Night, rows: list[dict[str, Any]], whole: dict[str, Any]) -> None:
    """One screen, also as summary.txt."""
    where = "a SIMULATED device: says nothing about hardware" if night.device == "sim" else "this machine's GPU"
    lines = [f"nightly on {where}", f"{'stage':<10}{'verdict':<9}{'results':<34}{'seconds':>8}"]
    for row in rows:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(row["counts"].items()))
        lines.append(f"{row['stage']:<10}{row['status']:<9}{counts or row['why_not']:<34}{row['seconds']:>8.1f}")
        lines += [f"  {text[:110]}" for text in row["unexpected"][:5]]
        if len(row["unexpected"]) > 5:
            lines.append(f"  and {len(row['unexpected']) - 5} more in {row['stage']}/")
        lines += [f"  mended: {text[:100]}" for text in row["mended"][:3]]
        lines += [f"  flake: {text[:100]}" for text in row["flakes"][:3]]
        if row["verdicts"]:
            lines.append("  " + ", ".join(f"{name} {verdict}" for name, verdict in row["verdicts"].items()))
    lines.append(f"page      {night.folder / 'index.html'}")
    if whole["history_lost"]:
        head = whole["history_lost"][:16]
        lines.append(f"FAIL      {night.history.name} does not hold the head {head} of a night before")
    if whole["history_head"]:
        lines.append(f"head      {whole['history_head']}")
    mark = " on a SIMULATED device: says nothing about hardware" if whole["simulated"] else ""
    lines.append(f"{whole['verdict']}  {sum(row['seconds'] for row in rows) / 60:.1f} minutes in stages{mark}")
    print("\n".join(["", *lines]), flush=True)
    (night.folder / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_junit(night: Night, rows: list[dict[str, Any]]) -> None:
    """A suite of the stages, each a testcase with its surprises as the failure, which a CI system shows first;
    then a suite for each stage, with every probe, check and criterion and its time."""
    mark = " [SIMULATED]" if night.device == "sim" else ""
    suites = Xml.Element("testsuites", name=f"nightly{mark}")
    whole = Xml.SubElement(suites, "testsuite", name=f"nightly{mark}", tests=str(len(rows)),
                           failures=str(sum(row["status"] == "FAIL" for row in rows)))  # fmt: skip
    for row in rows:
        case = Xml.SubElement(whole, "testcase", classname="nightly", name=row["stage"], time=str(row["seconds"]))
        if row["status"] == "FAIL":
            Xml.SubElement(case, "failure", message=row["unexpected"][0]).text = "\n".join(row["unexpected"])
        elif row["status"] == "SKIP":
            Xml.SubElement(case, "skipped", message=row["why_not"])
        _suite(suites, row, mark)
    failures = sum(int(suite.get("failures", "0")) for suite in suites)
    suites.set("failures", str(failures))
    Xml.indent(suites)
    text = Xml.tostring(suites, encoding="unicode", xml_declaration=True)
    (night.folder / "junit.xml").write_text(text, encoding="utf-8")


def _suite(suites: Xml.Element, row: dict[str, Any], mark: str) -> None:
    """What is expected not to pass is skipped with its reason: only news is a failure."""
    results = row["results"]
    news = {each["id"] for each in results if any(text.startswith(f"{each['id']}:") for text in row["unexpected"])}
    suite = Xml.SubElement(suites, "testsuite", name=f"nightly.{row['stage']}{mark}", tests=str(len(results)),
                           failures=str(len(news)))  # fmt: skip
    for each in results:
        group, _, name = each["id"].rpartition("/")
        place = ".".join(["nightly", row["stage"], each["command"], *([group] if group else [])])
        case = Xml.SubElement(suite, "testcase", classname=place,
                              name=f"{name}{mark}", time=f"{each['seconds']:.3f}")  # fmt: skip
        if each["id"] in news:
            Xml.SubElement(case, "failure", message=f"{each['status']}: {each['reason']}")
        elif each["status"] != "pass":
            Xml.SubElement(case, "skipped", message=f"{each['status']}: {each['reason']}")


def page(night: Night) -> None:
    """The HTML page; a run without it is still a run."""
    if has("perf"):
        return
    with (night.folder / "page.log").open("wb") as log:
        line = zinc("perf", "report", night.folder, "-o", night.folder / "index.html")
        subprocess.run(line, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=120)


def keep(night: Night, store: Path | None) -> None:
    """The night as a bundle, in the store beside those of other machines; without it it is still a night."""
    if has("bundle"):
        return
    out = night.folder / "bundle.tar.gz"
    reports = [
        path for stage in STAGES for path in sorted(night.of(stage.name).glob("*.json")) if path.name != STATE
    ]
    bundles = [path for path in [night.of("probes") / "bundle"] if path.is_dir()]
    added = ["--add", *map(str, [*bundles, *reports])] if bundles or reports else []
    device = "sim" if night.device == "sim" else "auto"
    lines = [zinc("bundle", "-o", out, "--device", device, "--only-added", *added)]
    lines.append(zinc("bundle", "import", out, *(["--store", str(store.resolve())] if store else [])))
    with (night.folder / "bundle.log").open("wb") as log:
        for line in lines:
            done = subprocess.run(line, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=120)
            if done.returncode:
                print(f"nightly: no bundle was kept: {tail(night.folder / 'bundle.log')}", file=sys.stderr)
                return
