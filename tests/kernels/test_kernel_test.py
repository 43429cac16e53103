"""zinc-rt kernel-test: its cases reach every kernel, a planted mistake is found and made small."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels.planted_edits import EDITS, Edit, assemble_edited

from zinc_rt.host.errors import UsageError
from zinc_rt.ir.op import Op
from zinc_rt.kernels.assemble import is_available
from zinc_rt.kernels.cases import Case, parse
from zinc_rt.kernels.sets import SETS, KernelSet, find_kernel_set
from zinc_rt.validate.cases.sweep import TYPES
from zinc_rt.validate.cases.table import FAMILIES, family_cases
from zinc_rt.validate.kernel_test import changed, pool, text
from zinc_rt.validate.kernel_test.bench import CaseOutcome
from zinc_rt.validate.kernel_test.command import main
from zinc_rt.validate.kernel_test.pool import CaseRun, Worker
from zinc_rt.validate.kernel_test.select import PlannedCase, list_cases, pick_one_plan_per_kernel, plan_cases
from zinc_rt.validate.kernel_test.shrink import shrink_case
from zinc_rt.validate.kernel_test.side import Side, make_sides
from zinc_rt.validate.kernel_test.verdicts import blame_kernels, judge_kernels

SIMULATED = ("--tier", "t1", "--device", "sim")


@pytest.fixture
def kernel_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Exit code and report; what has passed is noted in the test's own folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        report = tmp_path / "report.json"
        code = main([*words, "--jobs", "1", "--json", str(report)])
        return code, json.loads(report.read_text())

    return run


# --- cases -------------------------------------------------------------------------------------------------------


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_is_a_node_and_its_line_is_complete(family: str) -> None:
    for case in family_cases(family):
        assert not case.check_node(), case.text()
        assert parse(case.text()) == case


@pytest.mark.rest
@pytest.mark.parametrize("name", ["gfx1201", "native", "numpy-reference", "spirv"])
@pytest.mark.slow(keep=2)
def test_every_kernel_of_a_set_has_a_case(name: str) -> None:
    kernels = find_kernel_set(name)
    assert name in SETS and kernels is not None
    orderings = ("canonical-1", "canonical-1-q8") if name in ("native", "spirv", "gfx1201") else ("canonical-1",)
    met = {
        kernel
        for ordering in orderings
        for plan in plan_cases(list_cases(()), kernels, ordering)
        for kernel in plan.kernels
    }
    uncovered = sorted(set(kernels.names()) - met - RUN_BY_NO_NODE.get(name, set()))
    assert not uncovered, f"no case in validate/cases dispatches {', '.join(uncovered)}"


RUN_BY_NO_NODE = {"spirv": {"self_test"}}  # the backend runs it when a device is opened


@pytest.mark.rest
def test_every_kernel_is_tested_with_every_type_it_names() -> None:
    kernels = find_kernel_set("gfx1201")
    assert kernels is not None
    met = {
        (kernel, plan.case.dtype)
        for plan in plan_cases(family_cases("projections"), kernels, "canonical-1")
        for kernel in plan.kernels
    }
    for name in kernels.names():
        kind, _, dtype = name.partition("_")
        if dtype in TYPES and kind in ("matvec", "matmul", "embed"):
            assert (name, dtype) in met


def test_operands_are_deterministic() -> None:
    line = (
        "FLASH_ATTN T=2 ctx=20 slots=2 pages=3 kv_rows=96 heads=2 kv_heads=1 head_dim=16 value_dim=16 scale=0.25 "
        "-sinks"
    )
    first, second = parse(line).operands(), parse(line).operands()
    assert [None if item is None else item.tobytes() for item in first] == [  # type: ignore[union-attr]
        None if item is None else item.tobytes()
        for item in second  # type: ignore[union-attr]
    ]


@pytest.mark.parametrize("rows", [32, 40])
def test_cache_rows_that_no_query_sees_are_nan(rows: int) -> None:
    """Also those beyond the pages, which a reduced case may have."""
    shape = f"T=1 ctx=5 slots=1 pages=2 kv_rows={rows} heads=1 kv_heads=1 head_dim=4 value_dim=4 scale=0.5"
    keys = parse(f"FLASH_ATTN {shape} values=plain").operands()[1]
    assert isinstance(keys, np.ndarray) and keys.shape == (rows, 4)
    assert 1 <= np.isfinite(keys).all(axis=1).sum() <= 5 and np.isnan(keys[32:]).all()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "unknown opcode ''"),
        ("ADDD T=1 N=2", "did you mean ADD"),
        ("ADD T=1", "N has no value"),
        ("ADD T=1 N=0", "a has shape (1, 0)"),
        ("ADD T=1 N=two", "N=two"),
        ("ADD T=1 N=2 -b", "no optional operand"),
        ("ADD T=1 N=2 values=odd", "expected one of mixed"),
        ("MATMUL T=1 N=2 K=33 one=1 dtype=q8_0", "whole blocks of 32"),
        ("MATMUL T=1 N=2 K=32 one=1 dtype=q9_0", "ggml has no type with that name"),
        ("RMS_NORM T=1 K=4 size=4", "needs eps="),
        ("RMS_NORM T=1 K=5 size=4 eps=1e-6", "expected K % size == 0"),
        ("ROPE T=1 K=4 R=1 ctx=4 head_dim=4 mode=odd", "expected one of norm, neox"),
        ("TABLE_STORE E=9 slots=2 pages=4", "expected E <= slots*pages"),
    ],
)
def test_invalid_case_line_is_explained(line: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        parse(line)


# --- whose fault ---


def make_case_run(*kernels: str, failed: bool = False, blamed: str = "") -> CaseRun:
    return CaseRun(parse("ADD T=1 N=1"), CaseOutcome("wrong" if failed else "pass", kernels, blamed=blamed))


@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        # one that fails alone explains every case it is in
        (
            [
                make_case_run("a", failed=True),
                make_case_run("grids", "a", failed=True),
                make_case_run("b", "a", failed=True),
            ],
            {"a"},
        ),
        # a helper of everybody
        (
            [
                make_case_run("a"),
                make_case_run("b"),
                *[make_case_run("grids", name, failed=True) for name in "abab"],
            ],
            {"grids"},
        ),
        # what works for many is not accused by few
        (
            [
                make_case_run("mv", "sum", failed=True),
                *[make_case_run("mv", "x")] * 9,
                *[make_case_run("mv", "sum", failed=True)] * 2,
            ],
            {"sum"},
        ),
        # two at once
        ([make_case_run("a", failed=True), make_case_run("b", failed=True), make_case_run("c")], {"a", "b"}),
        # a device's finding names its kernel
        (
            [
                make_case_run("a", "b", failed=True, blamed="b"),
                make_case_run("a", "b", failed=True),
                make_case_run("a"),
            ],
            {"b"},
        ),
    ],
)
def test_failures_are_attributed_to_the_kernel_that_explains_them(ran: list[CaseRun], expected: set[str]) -> None:
    blamed = blame_kernels(ran)
    assert set(blamed.values()) == expected
    assert set(blamed) == {i for i, item in enumerate(ran) if item.outcome.failed}
    result = judge_kernels(ran, [])
    assert {name for name, item in result.items() if item.failed} == expected


def test_skipped_cases_after_many_costly_failures_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `scale` killed its process each time: the seventh case and those behind it do not run."""

    class DyingWorker:
        def __init__(self, side: Side) -> None: ...

        def run(self, case: Case, kernels: tuple[str, ...] = ()) -> CaseRun:
            return CaseRun(case, CaseOutcome("died" if "scale" in kernels else "pass", kernels))

        def close(self) -> None: ...

    monkeypatch.setattr(pool, "Worker", DyingWorker)
    side = make_sides("t1", "sim")[0]
    scale, add = parse("SCALE T=1 N=1 one=1 factor=0.5"), parse("ADD T=1 N=1")
    argument = [
        *[PlannedCase(scale, ("grids", "scale"))] * 9,
        PlannedCase(add, ("add",)),
        PlannedCase(scale, ("only", "scale")),
    ]
    result = judge_kernels(pool.run_all(side, argument, 1), ["add", "grids", "only", "scale"])
    assert {name: (item.cases, item.left_out.total()) for name, item in result.items()} == {
        "add": (1, 0),
        "grids": (6, 3),
        "only": (0, 1),
        "scale": (6, 4),
    }
    rows = {row[0]: row[-1] for row in text.format_table(result).rows}
    assert rows["add"] == "pass" and rows["only"].startswith("NOT RUN  (1 cases left out: scale ended")
    assert "left out: scale ended" in rows["scale"] + rows["grids"]


@pytest.mark.parametrize("limit", [1, 7, 64, 300])
def test_shrinking_ends_at_the_smallest_failing_size(limit: int) -> None:
    """As if a kernel were wrong from so many columns on."""
    start = parse("SCALE T=5 N=1029 one=1 factor=0.3 values=edges seed=9 tokens=64")

    def fail_at_limit(case: Case) -> CaseRun | None:
        return CaseRun(case, CaseOutcome("wrong", ("scale",))) if case.dims["N"] >= limit else None

    result, tried = shrink_case(CaseRun(start, CaseOutcome("wrong", ("scale",))), fail_at_limit)
    assert result.case.text() == f"SCALE T=1 N={limit} one=1 values=plain -weight" and 0 < tried < 200


@pytest.mark.rest
def test_worker_death_is_recorded_and_the_next_case_runs() -> None:
    side = make_sides("t_cpu_native", "auto", ordering="canonical-1")[0]
    worker = Worker(side)
    try:
        first = worker.run(parse("ADD T=1 N=3"))
        assert first.outcome.status == "pass" and first.outcome.counts == (3, 0)
        assert worker._process is not None
        worker._process.kill()
        worker._process.wait()
        died = worker.run(parse("ADD T=1 N=3"), ("add",))
        assert died.outcome.status == "died" and "SIGKILL" in died.outcome.said
        assert worker.run(parse("ADD T=1 N=3")).outcome.status == "pass"
    finally:
        worker.close()


# --- the command -------------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_cases_of_every_kernel_pass_on_the_simulated_device(
    kernel_test: Callable[..., tuple[int, dict[str, Any]]], request: pytest.FixtureRequest
) -> None:
    """By default some kernels, the others run on the bare engine: gfx1201/test_gfx1201_cases.py."""
    everything = request.config.getoption("--slow")
    code, report = kernel_test(*SIMULATED, *(() if everything else ("--most", "2", "--family", "sampling")))
    assert code == 0
    tested = {result["measure"]["kernel"] for result in report["results"]}
    assert tested == set(kernel_names("gfx1201") if everything else SAMPLING)
    assert all(result["measure"]["cases"] and result["measure"]["simulated"] for result in report["results"])
    assert report["shortcuts"]


SAMPLING = (
    *("argmax", "count_tokens", "log_sum", "logits_adjust", "logprobs"),
    *("sample_draw", "sample_sort", "sample_weights", "slot_operands"),
    *("step_grids", "stream_out", "table_store", "verify_k"),
)


def kernel_names(name: str) -> tuple[str, ...]:
    return find(name).names()


@pytest.mark.rest
@pytest.mark.skipif(not is_available(), reason="no assembler: the package ziglang is not installed")
@pytest.mark.parametrize(
    "edit",
    [EDITS[0], *(pytest.param(edit, marks=pytest.mark.slow) for edit in EDITS[1:])],
    ids=lambda e: e.kernel,
)
@pytest.mark.slow(keep=12)
def test_injected_mistake_is_found_with_its_smallest_case(
    edit: Edit, tmp_path: Path, kernel_test: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    edited = assemble_edited(edit, tmp_path)
    family = ("--family", edit.family) if edit.family else ()
    code, report = kernel_test(*SIMULATED, *family, "--kernel", edit.kernel, "--replace", str(edited))
    assert code == 1
    (failed,) = (result for result in report["results"] if result["status"] == "fail")
    assert failed["measure"]["kernel"] == edit.kernel
    smallest = parse(failed["first_bad"]["case"])
    assert {name: smallest.dims[name] for name in edit.least} == edit.least
    code, second = kernel_test(*shlex.split(failed["repro"])[2:])
    (once_more,) = second["results"]
    assert code == 1 and once_more["measure"]["kernel"] == edit.kernel
    assert once_more["first_bad"]["case"] == smallest.text()


def test_changed_runs_kernels_that_have_not_passed_as_they_are(
    kernel_test: Callable[..., tuple[int, dict[str, Any]]], tmp_path: Path
) -> None:
    native = ("--tier", "t_cpu_native", "--ordering", "canonical-1", "--kernel", "soft*", "--kernel", "row_scale")

    def list_tested() -> list[str]:
        code, report = kernel_test(*native, "--changed")
        assert code == 0
        return [result["measure"]["kernel"] for result in report["results"] if result["measure"]]

    kernel_test(*native, "--quick")
    assert list_tested() == ["row_scale", "softcap"], "one case of each is no reason to leave a kernel out"
    assert list_tested() == []
    passed = json.loads((tmp_path / "zinc-rt" / changed.FILE).read_text())
    passed["--tier t_cpu_native"]["softcap"] = "another digest"
    (tmp_path / "zinc-rt" / changed.FILE).write_text(json.dumps(passed))
    assert list_tested() == ["softcap"]
    digests = {changed.digest_kernel(find(name), "add") for name in ("native", "gfx1201", "spirv")}
    assert len(digests) == 3


def find(name: str) -> KernelSet:
    kernels = find_kernel_set(name)
    assert kernels is not None
    return kernels


def test_quick_takes_one_case_for_every_kernel() -> None:
    plans = plan_cases(list_cases(["norms"]), find("gfx1201"), "canonical-1")
    quick = pick_one_plan_per_kernel(plans)
    every = {kernel for plan in plans for kernel in plan.kernels}
    assert {kernel for plan in quick for kernel in plan.kernels} == every
    assert len(quick) <= len(every)


def test_invalid_arguments_are_rejected_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in {
        ("--kernel", "swigul", *SIMULATED): "did you mean swiglu",
        ("--family", "odd", *SIMULATED): "no such family",
        ("--tier", "t_cpu"): "the oracle cannot be tested against itself",
        ("--tier", "t9"): "unknown tier 't9'",
        ("--jobs", "0"): "expected 1 or more",
        ("--replace", "nosuch.zrt", *SIMULATED): "cannot read",
        (*SIMULATED, "--ordering", "float32-dequant"): "t1 computes canonical-1",
    }.items():
        assert main(list(words)) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.rest
def test_support_lists_supported_cases_and_why_others_are_not(
    kernel_test: Callable[..., tuple[int, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = kernel_test("--mode", "support")
    assert code == 0
    result = {result["id"]: result for result in report["results"]}
    assert {"matvec_q4_k", "matmul_q4_k"} <= set(result["gfx1201 MATMUL q4_k"]["measure"]["kernels"])
    assert "matvec_f32" in result["gfx1201 MATMUL iq1_m"]["measure"]["kernels"]  # expanded
    assert result["native MATMUL iq1_m"]["status"] == "pass"
    assert {"round_rows_f16", "matmul_wmma_f16_q4_k"} <= set(
        result["gfx1201 MATMUL_WMMA_Q4K q4_k"]["measure"]["kernels"]
    )
    assert {"sort_experts", "matmul_wmma_experts_bf16_q8_0"} <= set(
        result["spirv MOE_DOWN_ACC_WMMA_BF16 q8_0"]["measure"]["kernels"]
    )
    printed = capsys.readouterr().out
    assert all(op.name in printed for op in Op if op is not Op.BARRIER)
    assert max(map(len, printed.splitlines())) <= 100
    assert re.search(r"^MATMUL_WMMA_B?F16 +\d+ +all 26$", printed, re.MULTILINE)


@pytest.mark.rest
def test_simulator_time_is_not_reported_as_speed(
    kernel_test: Callable[..., tuple[int, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--mode", "perf", *SIMULATED, "--case", "ADD T=1 N=1024 values=plain")
    code, report = kernel_test(*words)
    assert code == 0
    (result,) = report["results"]
    assert result["measure"]["bytes"] >= 3 * 4096 and result["measure"]["simulated"]
    assert result["measure"]["bytes_per_second"] is None and result["measure"]["flops_per_second"] is None
    assert "not a speed" in capsys.readouterr().out


def test_device_sim_selects_the_simulated_kernels_only() -> None:
    assert {(side.tier, side.simulated) for side in make_sides("", "sim")} == {("t1", True)}
    assert "t_cpu_native" in {side.tier for side in make_sides("", "auto")}


def test_sets_of_a_chip_run_on_a_simulated_chip_that_they_fit() -> None:
    def list_sides(asked: str, chip: str | None) -> list[tuple[str, str | None]]:
        return [(side.kernels, side.chip) for side in make_sides(asked, "sim", ordering="canonical-1", chip=chip)]

    assert list_sides("", None) == [("gfx1201", None), ("gfx1100", "gfx1100"), ("radv", None)]
    assert list_sides("", "gfx1151") == [("gfx1100", "gfx1151"), ("radv", "gfx1151")]
    assert list_sides("t1", None) == [("gfx1201", None)]
    assert list_sides("t2", "strix-halo") == [("gfx1100", "strix-halo")]


# --- counters ----------------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_counters_compare_two_sets_on_the_same_case(
    kernel_test: Callable[..., tuple[int, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = kernel_test("--mode", "counters", "--device", "sim", "--case", "ADD T=4 N=320 values=plain")
    assert code == 0
    (result,) = report["results"]
    measure = result["measure"]
    for name in ("gfx1201", "radv"):
        assert measure[name]["kernels"] == ["add"] and measure[name]["dispatches"] == 1
        # Two operands are loaded and one is stored; a wave's counts are whole instructions.
        assert measure["operand_bytes"] * 0.9 < measure[name]["bytes"] < 2 * measure["operand_bytes"]
        assert measure[name]["waves"] > 0 and measure[name]["instructions"] > 10 * measure[name]["waves"]
    ratio = measure["ratios"]["instructions"]
    assert ratio == measure["radv"]["instructions"] / measure["gfx1201"]["instructions"] > 1
    output = capsys.readouterr().out
    assert "COUNTED   1 cases of 1 opcodes on a SIMULATED device: counts, not a speed" in output
    assert f"{ratio:.2f}" in output


def test_counters_need_two_sets_on_a_simulated_device(capsys: pytest.CaptureFixture[str]) -> None:
    for words, reason in (
        (("--tier", "t1", "--device", "sim"), "compares two kernel sets, not t1"),
        (("--tier", "t1,t_cpu_native", "--device", "auto"), "reads a simulated device's counters"),
    ):
        assert main(["--mode", "counters", "--case", "ADD T=1 N=8", *words]) == 2
        assert reason in capsys.readouterr().err
