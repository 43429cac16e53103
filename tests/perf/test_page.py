"""The page: what a folder of reports shows is on it, self-contained, and what is in it cannot break it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from gate_evidence import bench_report, validation_report

from zinc_rt.perf.command import main
from zinc_rt.perf.gate.milestones import Milestone, find_milestone, load_milestones
from zinc_rt.perf.gate.offered import GateInput
from zinc_rt.perf.gate.verdict import evaluate
from zinc_rt.perf.history.chain import append_entry, collect_figures
from zinc_rt.perf.report.glossary import describe_source, expand_terms, section_title
from zinc_rt.perf.structure.lab import Lab

pytestmark = pytest.mark.rest
VOID = {"meta", "link", "br", "line", "circle", "polyline", "rect", "img", "hr"}


class TagChecker(HTMLParser):
    """Raises for a tag that closes another."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real gate, a prediction, a measured report, a validation, a history, and a name that contains HTML."""
    folder = tmp_path_factory.mktemp("reports")
    for name in ("gates", "perf", "validate", "zinc-rt-hangs"):
        (folder / name).mkdir()
    assert main(["gate", "--milestone", "M0", "--json", str(folder / "gates" / "gate.json")]) == 77
    bench, valid = bench_report(), validation_report()
    bench["device"]["name"] = "<script>alert(1)</script>"
    bench["results"][0]["measure"] |= {"spread": 0.01, "p99_seconds": 0.007}
    (folder / "perf" / "bench.json").write_text(json.dumps(bench))
    (folder / "validate" / "m.json").write_text(json.dumps(valid))
    (folder / "validate" / "m.html").write_text("layers")
    (folder / "zinc-rt-hangs" / "report.txt").write_text("ring")
    for number in range(4):
        bench["results"][0]["measure"]["tokens_per_second"] = 150.0 + number
        append_entry(folder / "history.jsonl", "perf bench", bench, collect_figures(bench))
    return folder


@pytest.fixture(scope="module")
def html_page(report_folder: Path) -> str:
    assert main(["report", str(report_folder), "-o", str(report_folder / "index.html")]) == 0
    return (report_folder / "index.html").read_text()


def test_page_is_well_formed_and_self_contained(html_page: str, report_folder: Path) -> None:
    parsed = TagChecker()
    parsed.feed(html_page)
    assert parsed.open == []
    assert not [link for link in parsed.links if link.startswith(("http", "//"))]
    for link in parsed.links:
        assert link.startswith("#") or (report_folder / link).exists(), link
    targets = set(re.findall(r'id="([^"]+)"', html_page))
    assert {link[1:] for link in parsed.links if link.startswith("#")} <= targets


def test_page_contains_every_report(html_page: str) -> None:
    for text in (
        "M0: T-CPU, the whole stack without a GPU",
        "needs a statement for M0/laptop",
        "150 tok/s",
        "<svg",
        "zinc-rt-hangs",
        "validate/m.html",
    ):
        assert text in html_page, text
    assert html_page.count('class="badge BLOCKED"') >= 2, "the page's verdict and the gate's"


def test_speed_criterion_is_shown_with_its_forecast(report_folder: Path, tmp_path: Path) -> None:
    gate = json.loads((report_folder / "gates" / "gate.json").read_text())
    with Lab(device="cpu") as lab:  # measures nothing
        (result,) = evaluate(find_milestone("M5"), lab, GateInput(), only="decode")
    gate["results"] = [asdict(result)]
    (tmp_path / "gate.json").write_text(json.dumps(gate))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 0
    text = (tmp_path / "p.html").read_text()
    assert result.measure["forecast"]["text"] in text and "target 240, forecast " in text


def test_duplicate_report_is_shown_once(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    for path in (tmp_path / "b.json", tmp_path / "bundle" / "report.json"):
        path.write_text(json.dumps(bench_report()))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 0
    assert (tmp_path / "p.html").read_text().count("<td>decode</td>") == 1


def test_names_are_escaped(html_page: str) -> None:
    assert "<script>alert" not in html_page and "&lt;script&gt;alert" in html_page


def test_simulated_device_is_stated_in_a_sentence(report_folder: Path, html_page: str, tmp_path: Path) -> None:
    assert "says nothing about hardware" not in html_page
    simulated = bench_report()
    simulated["device"]["simulated"] = True
    (tmp_path / "b.json").write_text(json.dumps(simulated))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 0
    assert "no speed on this page is a GPU's" in (tmp_path / "p.html").read_text()


def test_page_written_elsewhere_copies_its_files(report_folder: Path, tmp_path: Path) -> None:
    """Its links work wherever page and folder go together."""
    result = tmp_path / "a" / "night.html"
    result.parent.mkdir()
    assert main(["report", str(report_folder), "-o", str(result)]) == 0
    moved = tmp_path / "somewhere else"
    result.parent.rename(moved)
    parsed = TagChecker()
    parsed.feed((moved / "night.html").read_text())
    files = [unquote(link) for link in parsed.links if not link.startswith("#")]
    assert "night-files/validate/m.html" in files and "night-files/zinc-rt-hangs/report.txt" in files
    assert all((moved / link).is_file() for link in files)


def test_name_with_spaces_is_a_working_link(tmp_path: Path) -> None:
    (tmp_path / "of mine #1").mkdir()
    (tmp_path / "of mine #1" / "b.json").write_text(json.dumps(bench_report()))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 0
    assert 'href="of%20mine%20%231/b.json"' in (tmp_path / "p.html").read_text()


def test_page_explains_its_terms(html_page: str) -> None:
    shown = html_page.partition("<body>")[2]
    assert "§" not in re.sub(r"<svg.*?</svg>", "", shown, flags=re.S), "a section is said in words"
    assert not re.search(r"\bE [0-9]+\b", shown), "an entry of the errata is said in words"
    assert "the original design, section 25: milestones" in shown
    for word in ("BLOCKED", "structural", "refused", "t1, t2", "head", "flake", "ttft"):
        assert word in shown.partition('id="words"')[2], word


@pytest.mark.parametrize("milestone", load_milestones(), ids=lambda item: item.id)
def test_every_source_has_a_description(milestone: Milestone) -> None:
    for text in [*milestone.notes, *(source for criterion in milestone.criteria for source in criterion.source)]:
        message = expand_terms(text)
        for number in re.findall(r"design section ([0-9.A-Z]*[0-9A-Z])", message):
            assert section_title(number), text
    for source in (source for criterion in milestone.criteria for source in criterion.source):
        assert all(describe_source(source)), source
        assert not re.search(r"errata [0-9]+(?![0-9]| \(|:)", message), text


def test_folder_without_reports_produces_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 2
    assert not (tmp_path / "p.html").exists()
    assert main(["report", str(tmp_path / "no"), "-o", str(tmp_path / "p.html")]) == 2
