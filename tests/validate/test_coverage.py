"""zinc-rt validate --coverage: no form without a command, and a case taken away is a hole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from zinc_rt.golden.odd_models import list_missed_classes
from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.cases import Case
from zinc_rt.validate import coverage
from zinc_rt.validate.cases.table import family_cases
from zinc_rt.validate.command import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.rest
def test_every_form_has_a_command_or_a_reason(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "report.json"
    code = main(["--coverage", "--json", str(out)])
    shown = capsys.readouterr().out
    assert code == 0, [line for line in shown.splitlines() if line.startswith("HOLE")]
    results = json.loads(out.read_text())["results"]
    assert {result["id"].split()[0] for result in results} == {op.name for op in OPS} - {"BARRIER"}
    commands = {result["repro"].partition(" --")[0] for result in results if result["status"] == "pass"}
    assert commands == {"zinc-rt validate", "zinc-rt selftest", "zinc-rt kernel-test"}
    reasons = {result["reason"] for result in results if result["status"] == "skip"}
    assert reasons == {why for _, _, why in coverage.REASONS}, "each reason is needed"


def test_case_taken_away_is_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the native set and one family, so that models hide nothing and the test is quick."""

    def list_narrow_cases(family: str) -> Iterator[Case]:
        return (case for case in family_cases(family) if case.op is not Op.MLA_ABSORB or case.names["latent"] % 64)

    def list_no_graphs() -> Iterator[coverage.OpGraph]:
        return iter(())

    for name in ("_list_quick_graphs", "_list_odd_graphs", "_list_architecture_graphs"):
        monkeypatch.setattr(coverage, name, list_no_graphs)
    monkeypatch.setattr(coverage, "FAMILIES", ("projections",))
    monkeypatch.setattr(coverage, "SETS", ("native",))
    whole = set(coverage.measure_coverage().holes)
    monkeypatch.setattr(coverage, "family_cases", list_narrow_cases)
    missing = set(coverage.measure_coverage().holes) - whole
    assert {(form.op, form.part) for form in missing} == {("MLA_ABSORB", "latent in 64s")}
    assert {form.dtype for form in missing} == {*coverage.PLAIN, *coverage.INTEGERS}
    page = str(coverage.format_coverage(coverage.FormCoverage(dict.fromkeys(missing, ""), {}), verbose=True))
    assert "HOLE       MLA_ABSORB: latent in 64s q4_k canonical-1-q8" in page


def test_classes_of_sizes_follow_the_numbers() -> None:
    spec = OPS[Op.FLASH_ATTN]
    sizes = {"T": "tokens", "heads": 6, "kv_heads": 2, "head_dim": 96, "window": 5, "page_tokens": 16}
    assert set(coverage.classify_sizes(spec, sizes)) == {
        "T=1", "T>1", "group differs from kv heads", "head_dim not in 64s", "window within a page",
    }  # fmt: skip
    assert "group = kv heads" in coverage.classify_sizes(spec, sizes | {"heads": 4})
    assert "one kv head" in coverage.classify_sizes(spec, sizes | {"kv_heads": 1})


def test_missed_classes_are_those_of_models_that_are_not_quick() -> None:
    missed = list_missed_classes()
    assert "scan" in missed and "expert ties" in missed
    assert "latent attention" not in missed and "width 96" not in missed
