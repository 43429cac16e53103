"""What zinc-rt validate leaves behind: JSON, JUnit, a page, a table, and the command that shows it again."""

from __future__ import annotations

import json
import math
import re
import shlex
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import change_element, one_ulp_up
from seen import FEW, Q8, Capture, Planting, Validate, ValidateOutput, golden_of, name_of

from zinc_rt.cli.junit import MARK
from zinc_rt.cli.report import SCHEMA
from zinc_rt.golden.embedded import STEMS
from zinc_rt.golden.format import read_arrays
from zinc_rt.model.gguf import digest_model, read_gguf
from zinc_rt.validate.command import main


def test_json_on_stdout_is_the_only_output(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, *FEW, "--json", "-"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["schema"] == SCHEMA and body["command"] == "validate" and body["ordering"] == "canonical-1"
    assert {
        "schema", "command", "version", "started", "wall_seconds", "device", "model", "ordering", "ctx",
        "shortcuts", "results", "verdict",
    } <= body.keys()  # fmt: skip
    assert {"name", "arch", "simulated", "profile", "kernel", "firmware"} <= body["device"].keys()
    model = {"path": qwen3, "digest": digest_model(read_gguf(qwen3)), "architecture": "qwen3", "layers": 3}
    assert model.items() <= body["model"].items() and body["model"]["parameters"] > 10**6
    for result in body["results"]:
        assert {
            "id", "kind", "tier", "reference", "status", "reason", "measure", "limit", "first_bad", "cause",
            "advice", "repro", "artifacts",
        } == result.keys()  # fmt: skip
    assert body["verdict"] == {"status": "PASS", "exit": 0, "counts": {"pass": len(body["results"])}}


def walk_numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from walk_numbers(item)
    elif isinstance(value, float):
        yield value


@pytest.fixture
def failed_run(qwen3: str, tmp_path: Path, plant_fault: Planting) -> tuple[ValidateOutput, str, str]:
    """A run in which l_out-1 has a NaN, and its JUnit and HTML."""
    plant_fault(change_element("l_out-1", 2, 17, lambda value: math.nan))
    json_path, junit, html = (tmp_path / name for name in ("r.json", "r.xml", "r.html"))
    written = ["--json", str(json_path), "--junit", str(junit), "--html", str(html)]
    code = main(["--model", qwen3, "--tiers", "t1,t_cpu", *FEW, "--resync", *written])
    return ValidateOutput(code, json.loads(json_path.read_text())), junit.read_text(), html.read_text()


def test_nan_is_written_to_json_as_a_string(failed_run: tuple[ValidateOutput, str, str]) -> None:
    seen, _, _ = failed_run
    assert seen.exit == seen.report["verdict"]["exit"] == 1
    assert seen.result("l_out-1")["first_bad"]["got"] == "nan"
    assert all(math.isfinite(value) for value in walk_numbers(seen.report))


def test_junit_counts_match_the_report(failed_run: tuple[ValidateOutput, str, str]) -> None:
    seen, junit, _ = failed_run
    suite = Xml.fromstring(junit)
    cases, counts = suite.findall("testcase"), seen.report["verdict"]["counts"]
    assert int(suite.attrib["tests"]) == len(cases) == len(seen.results)
    assert int(suite.attrib["failures"]) == len(suite.findall(".//failure")) == counts["fail"]
    assert int(suite.attrib["skipped"]) == len(suite.findall(".//skipped")) == counts.get("skip", 0)
    simulated = [
        "t1" in (result["tier"], result["reference"]) or name_of(result) == "sanitizer" for result in seen.results
    ]
    texts = [f"{name_of(result)}{MARK * of}" for result, of in zip(seen.results, simulated, strict=True)]
    assert [case.attrib["name"] for case in cases] == texts and any(simulated)
    text = suite.find(f"testcase[@name='l_out-1{MARK}']/failure").text  # type: ignore[union-attr]
    assert text is not None and "'token': 2, 'dim': 17" in text and "repro zinc-rt validate" in text


def test_junit_skip_has_its_reason(qwen3: str, tmp_path: Path) -> None:
    path = tmp_path / "r.xml"
    assert main(["--model", qwen3, *Q8, "--junit", str(path)]) == 77
    suite = Xml.fromstring(path.read_text())
    assert int(suite.attrib["skipped"]) == int(suite.attrib["tests"]) == 5
    reasons = [skipped.attrib["message"] for skipped in suite.iter("skipped")]
    assert all(reasons) and "re-quantised" in reasons[0] and "do not reach the head" in reasons[-1]


class ParsedPage(HTMLParser):
    """Checks that tags close in order, and keeps text and references."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.references: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_page_is_self_contained_and_shows_the_verdict(failed_run: tuple[ValidateOutput, str, str]) -> None:
    _, _, html = failed_run
    page = ParsedPage(html)
    words = "".join(page.text)
    assert "FAIL" in words and "token 2, dim 17: nan" in words and "zinc-rt validate --model" in words
    assert page.references == [] and "://" not in html and "@import" not in html and "<script" not in html


def test_page_opens_with_verdict_and_summary(failed_run: tuple[ValidateOutput, str, str]) -> None:
    _, _, html = failed_run
    opening, _, folded = html.partition("<body>")[2].partition("<details")
    assert opening.index("FAIL") < opening.index("<table") and opening.count("<table") == 1
    row = re.search(r"<tr><td class=\"fail\">FAIL</td>(.*)</tr>", opening)
    assert row and "<td>t1 (simulated)</td><td>t_cpu</td>" in row[1]
    assert re.search(r'<th class="model"[^>]*>qwen3-q <span[^>]*>context 256</span></th>', opening)
    assert "<table" in folded and re.search(r"<details[^>]* open><summary>qwen3-q", html), "failures are unfolded"


def test_wide_tables_and_charts_scroll_in_their_own_box(failed_run: tuple[ValidateOutput, str, str]) -> None:
    _, _, html = failed_run
    assert html.count("<table") == len(re.findall(r'<div class="wide"[^>]*><table', html))
    assert ".wide { overflow-x: auto; }" in html and 'name="viewport"' in html


@pytest.mark.rest
def test_page_of_all_embedded_models_parses(tmp_path: Path) -> None:
    path, report = tmp_path / "r.html", tmp_path / "r.json"
    assert main(["--html", str(path), "--json", str(report)]) == 0
    words = "".join(ParsedPage(path.read_text()).text)
    assert "PASS" in words and all(stem in words for stem in STEMS)
    assert "ffn_moe_topk-3" in words and "isolation" in words
    contexts = {stem: 2048 if stem == "gemma4moe-q" else 256 for stem in STEMS}
    contexts |= {"odd-heads": 1024, "odd-latent": 256}  # generated, and validated beside the embedded models
    assert all(f"{stem}: {ctx} tokens" in words for stem, ctx in contexts.items()), "each model's own context"
    body = json.loads(report.read_text())
    assert {name: job["ctx"] for name, job in body["details"]["jobs"].items()} == contexts
    assert body["ctx"] == 256, "no model ran in less, and not all ran in more"


def test_model_name_is_escaped_on_the_page(qwen3: str, tmp_path: Path) -> None:
    odd = tmp_path / "<b>&\"'.gguf"
    odd.write_bytes(Path(qwen3).read_bytes())
    html, junit = tmp_path / "r.html", tmp_path / "r.xml"
    assert main(["--model", str(odd), *FEW, "--html", str(html), "--junit", str(junit)]) == 0
    assert "<b>&\"'" in "".join(ParsedPage(html.read_text()).text)
    assert Xml.fromstring(junit.read_text()).find("testcase") is not None


def test_full_disk_is_reported_in_one_line(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, *FEW, "--html", "/dev/full"]) == 2
    assert "/dev/full: cannot write" in capsys.readouterr().err


# --- the command that shows it again ------------------------------------------------------------------------


def repro_command(seen: ValidateOutput) -> list[str]:
    failed = next(result for result in seen.results if result["status"] == "fail")
    program, name, *options = shlex.split(failed["repro"])
    assert (program, name) == ("zinc-rt", "validate")
    return options


def measured_results(seen: ValidateOutput) -> dict[str, Any]:
    return {result["id"]: (result["status"], result["measure"], result["first_bad"]) for result in seen.results}


@pytest.mark.rest
@pytest.mark.parametrize(
    "options",
    [
        ["--tiers", "t1"],
        ["--tiers", "t1", "--ordering", "float32-dequant", "--ctx", "64"],
        ["--tiers", "t1,t_cpu", "--layers", "1:", "--input", "random:3", "--nodes", "Qcur-*", "--resync"],
        ["--tiers", "t1", "--layers", "1:", "--input", "oracle"],
        ["--tiers", "t1", "--reference", "t_cpu", "--steps", "0"],
    ],
    ids=" ".join,
)
def test_repro_of_embedded_model_gives_same_measurements(
    options: list[str], plant_fault: Planting, run_validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zinc_rt.golden.embedded.STEMS", ("qwen3-q",))
    plant_fault(change_element("l_out-2", 1, 3, lambda value: value + 1))
    seen = run_validate(*options)
    assert seen.exit == 1
    of_the_model = {id: item for id, item in measured_results(seen).items() if id.startswith("qwen3-q/")}
    assert measured_results(run_validate(*repro_command(seen))) == of_the_model


@pytest.mark.rest
def test_prompt_is_quoted_for_the_shell(gemma4: str, plant_fault: Planting, run_validate: Validate) -> None:
    plant_fault(change_element("l_out-2", 1, 3, one_ulp_up))
    seen = run_validate("--model", gemma4, "--tiers", "t1,t_cpu", "--prompt", "the cat's $(hat)", "--steps", "0")
    assert measured_results(run_validate(*repro_command(seen))) == measured_results(seen)


# --- the table ----------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_reason_shared_by_many_rows_is_one_line(qwen35moe: str, tmp_path: Path, capsys: Capture) -> None:
    arrays = read_arrays(Path(golden_of(qwen35moe)))
    kept = {name: array for name, array in arrays.items() if not re.fullmatch(r"ffn_moe_topk-\d_deq", name)}
    np.savez(tmp_path / "older.npz", **kept)  # type: ignore[arg-type]
    assert main(["--model", qwen35moe, "--golden", str(tmp_path / "older.npz")]) == 0
    lines = capsys.readouterr().out.splitlines()
    skipped = [line for line in lines if line.startswith("skip  ")]
    assert skipped == ["skip  ffn_moe_topk-0..3: the golden's experts were chosen from re-quantised activations"]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("options", [[], ["--resync"]], ids=["plain", "resync"])
def test_figures_and_status_fit_in_100_columns(
    options: list[str], qwen35moe: str, plant_fault: Planting, capsys: Capture
) -> None:
    plant_fault(change_element("ffn_out-1", 2, 17, lambda value: value + 100))
    assert main(["--model", qwen35moe, "--tiers", "t1,t_cpu", *FEW, *options]) == 1
    rows = [line for line in capsys.readouterr().out.splitlines() if re.search(r"  (FAIL|pass)\b", line)]
    assert rows and max(re.search(r"  (FAIL|pass)\b", row).end() for row in rows) <= 100  # type: ignore[union-attr]


def test_close_values_are_printed_distinctly(qwen3: str, plant_fault: Planting, capsys: Capture) -> None:
    plant_fault(change_element("l_out-1", 2, 17, one_ulp_up))
    main(["--model", qwen3, "--tiers", "t1,t_cpu", *FEW])
    got, want = re.search(r"token 2, dim 17: (\S+), not (\S+)", capsys.readouterr().out).groups()  # type: ignore[union-attr]
    assert got != want
