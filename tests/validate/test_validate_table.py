"""The tables a person reads."""

from __future__ import annotations

from typing import Any

import pytest

from zinc_rt.cli.report import Report
from zinc_rt.validate.check_result import CheckResult, Reportable, ReportFigures, ValueMeasure
from zinc_rt.validate.measure import Agreement, Limit, Measure
from zinc_rt.validate.table import (
    format_causes,
    format_first_bad,
    format_reasons,
    format_sections,
    format_table,
    format_verdict,
)

SAME = Limit(bits=True)


def measure_of(
    max_abs: float = 0.0, *, equal_bits: bool = False, agreement: Agreement | None = None
) -> ValueMeasure:
    return ValueMeasure(Measure(max_abs, max_abs / 5, 9, equal_bits, nonfinite=0, within=True), agreement)


def passed_result(name: str) -> CheckResult:
    return CheckResult(f"m/t1/{name}", "layer", "pass", "t1", "t_cpu", measure=measure_of(), limit=SAME)


def failed_result(name: str, **bad: Any) -> CheckResult:
    return CheckResult(
        f"m/t1/{name}", "layer", "fail", "t1", "t_cpu", measure=measure_of(0.5), limit=SAME, first_bad=bad
    )


def skipped_result(name: str, reason: str, measure: Reportable | None = None) -> CheckResult:
    return CheckResult(
        f"m/t1/{name}", "layer", "skip", "t1", "t_cpu", reason=reason, measure=measure or ReportFigures()
    )


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (["l_out-0"], "l_out-0"),
        (["l_out-0", "l_out-1", "l_out-2"], "l_out-0..2"),
        (["l_out-0", "x-0", "l_out-1", "x-1", "logits"], "l_out-0..1, x-0..1, logits"),
        (["l_out-3", "l_out-7", "l_out-8"], "l_out-3, l_out-7..8"),
        (["ffn_moe_topk-9", "ffn_moe_topk-10"], "ffn_moe_topk-9..10"),
        (["first-divergent", "logits", "logits"], "first-divergent, logits, logits"),
    ],
)
def test_adjacent_rows_with_one_reason_are_a_range(names: list[str], line: str) -> None:
    assert list(format_reasons([skipped_result(name, "why") for name in names])) == [f"skip  {line}: why"]


def test_reasons_are_one_line_each_in_order_of_appearance() -> None:
    lines = list(
        format_reasons(
            [
                skipped_result("b", "second nature"),
                skipped_result("a-1", "first"),
                skipped_result("c", "second nature"),
            ]
        )
    )
    assert lines == ["skip  b, c: second nature", "skip  a-1: first"]


def test_skip_has_a_row_only_if_measured() -> None:
    text = str(
        format_table(
            [
                passed_result("l_out-0"),
                skipped_result("l_out-1", "why"),
                skipped_result("l_out-2", "no gate", measure_of(0.25)),
            ]
        )
    )
    rows = text.splitlines()
    assert [row.split()[0] for row in rows] == ["value", "l_out-0", "l_out-2", "skip", "skip"]
    assert "2.5e-01" in rows[2] and rows[2].endswith("skip")
    assert text.count("no gate") == 1


def test_only_skips_print_no_table() -> None:
    assert str(format_table([skipped_result("l_out-0", "why")])) == "skip  l_out-0: why"


def test_note_is_the_last_column_so_that_only_it_wraps() -> None:
    row = str(format_table([failed_result("l_out-0", token=3, dim=7, got=1.5, want=-2.0)])).splitlines()[1]
    assert row.endswith("FAIL  token 3, dim 7: 1.5, not -2")


@pytest.mark.parametrize(
    ("got", "want", "shown"),
    [
        (1.5, 2.5, "1.5, not 2.5"),
        (1.7411799430847168, 1.7411800622940063, "1.74117994, not 1.74118006"),
        (float("nan"), 1.0, "nan, not 1"),
        (-0.0, 0.0, "-0, not 0"),
        (5, 7, "5, not 7"),
    ],
)
def test_close_values_get_enough_digits_to_differ(got: float, want: float, shown: str) -> None:
    assert format_first_bad(failed_result("x", node="Qcur-3", token=0, head=2, dim=4, got=got, want=want)) == (
        f"node Qcur-3, token 0, head 2, dim 4: {shown}"
    )


def test_shape_mismatch_is_reported() -> None:
    assert format_first_bad(failed_result("x", shape=[2, 3], wanted_shape=[3, 2])) == "shape [2, 3], not [3, 2]"


def test_each_pair_of_tiers_has_a_section() -> None:
    other = CheckResult("m/t1/untapped", "tap", "pass", "t1", "t1", measure=measure_of(0.0), limit=SAME)
    headings = [str(page).splitlines()[1] for page in format_sections([passed_result("l_out-0"), other])]
    assert headings == ["t1 against t_cpu", "t1 against itself"]


def test_pass_is_a_row_and_failure_a_table_unless_verbose() -> None:
    logits = CheckResult(
        "m/t1/logits",
        "logits",
        "pass",
        "t1",
        "g.npz",
        measure=measure_of(2e-6, agreement=Agreement(0.0, 0.0, top1=3, positions=4)),
    )
    layer = CheckResult("m/t1/l_out-0", "layer", "pass", "t1", "g.npz", measure=measure_of(1e-6))
    wrong = CheckResult("m/t1/l_out-0", "layer", "fail", "t1", "t_cpu", measure=measure_of(1.0), limit=SAME)
    brief, full = map(str, format_sections([layer, logits, wrong], {"t1": "simulated"}, verbose=False))
    assert brief.splitlines()[-1].split() == [
        "t1", "(simulated)", "g.npz", "2", "of", "2", "1.0e-06", "2.0e-06", "0.0e+00", "3/4", "pass",
    ]  # fmt: skip
    assert full.splitlines()[1] == "t1, simulated, against t_cpu" and "FAIL" in full
    assert len(list(format_sections([layer, logits, wrong]))) == 2
    assert "1.0e-06" in str(next(format_sections([layer, logits])))


def test_equal_bits_print_bit_exact_and_ungated_results_do_not_pass() -> None:
    same = CheckResult("m/t1/l_out-0", "layer", "pass", "t1", "t_cpu", measure=measure_of(equal_bits=True))
    shown = CheckResult("m/t1/l_out-0", "layer", "skip", "t1", "q", reason="no gate", measure=measure_of(0.5))
    [text] = map(str, format_sections([same, shown], verbose=False))
    rows = [line.split() for line in text.splitlines()[2:4]]
    assert rows == [
        ["t1", "t_cpu", "1", "of", "1", "bit-exact", "pass"],
        ["t1", "q", "0", "of", "1", "5.0e-01", "skip"],
    ]
    assert text.splitlines()[-1] == "skip  l_out-0: no gate"


def test_shared_cause_is_printed_once() -> None:
    results = [failed_result("l_out-0"), failed_result("l_out-1"), failed_result("logits")]
    for result in results[:2]:
        result.cause = "the same cause"
    assert list(format_causes(results)) == ["fail  l_out-0..1: the same cause"]
    assert "fail  l_out-0..1: the same cause" in format_table(results).parts


@pytest.mark.parametrize(
    ("results", "strict", "line"),
    [
        ([passed_result("a")], False, "PASS  1 model: 1 check passed"),
        ([passed_result("a"), failed_result("b")], False, "FAIL  1 model: 1 failed, 1 check passed"),
        (
            [passed_result("a"), skipped_result("b", "why")],
            False,
            "PASS  1 model: 1 check passed, 1 skipped (why)",
        ),
        ([passed_result("a"), skipped_result("b", "why")], True, "FAIL  1 model: 1 check passed, 1 skipped (why)"),
        (
            [skipped_result("a", "x"), skipped_result("b", "y"), skipped_result("c", "y")],
            False,
            "NOTHING RAN  1 model: 0 checks passed, 3 skipped (x and 1 more reason)",
        ),
        ([], False, "NOTHING RAN  1 model: 0 checks passed"),
    ],
)
def test_verdict_is_one_line(results: list[CheckResult], strict: bool, line: str) -> None:
    assert (
        format_verdict(Report("validate", results=[result.reported() for result in results]), 1, strict=strict)
        == line
    )
