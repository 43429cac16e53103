"""Findings as an author reads them: source lines, arguments, tools, suppressions, exit codes."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from code_objects import code_object
from test_launch import NOP, RACY, REVERSE, replace_barrier

import zinc_rt
from zinc_rt.cli.launch import main
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.sanitizer_rules import DEVICE, MODES, RULES, TOOLS, choose_mode
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.launch_findings import choose_tools
from zinc_rt.launching.located import PlacedBuffer, format_finding, format_remarks, strip_parameter_types
from zinc_rt.launching.source import find_toolchains
from zinc_rt.launching.source_lines import read_source_lines
from zinc_rt.launching.suppressions import Suppression, apply_suppressions, read_suppressions
from zinc_rt.launching.values import inout, out

needs_compiler = pytest.mark.skipif(
    not list(find_toolchains()) or find_spec("elftools") is None,
    reason="needs clang for gfx1201 (PATH, or the package ziglang) and the package pyelftools",
)
SAXPY = """\
kernel void saxpy(global float *y, global const float *x, float a) {
  int i = get_global_id(0);
  #pragma unroll
  for (int k = 0; k < 2; k++)
    y[2 * i + k] += a * x[2 * i + k];
}
"""
WORDS = ["--grid", "2", "--block", "32", "--device", "sim", "--arg", "x=in:f32[100]:range", "--arg", "a=f32:2"]


@pytest.fixture
def saxpy_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command that reads and writes beyond its buffers; creates files in the current folder."""
    (tmp_path / "saxpy.cl").write_text(SAXPY)
    monkeypatch.chdir(tmp_path)
    return ["saxpy.cl", *WORDS, "--arg", "y=inout:f32[128]:ones"]


@needs_compiler
def test_finding_has_source_line_argument_and_work_items_once(
    saxpy_command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(saxpy_command) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("FAIL  saxpy on gfx1201")
    result = [line for line in lines if line.startswith("saxpy.cl:")]
    assert result == ["saxpy.cl:5: out-of-bounds: load of x[100] of 100 elements [memcheck] (2 times)"]
    (below,) = [line for line in lines if line.startswith("    ")]
    assert below.startswith("    saxpy, workgroup (1, 0, 0), wave 0, lanes 18-31, pc 0x")
    assert not any("ring dword" in line for line in lines)
    assert main([*saxpy_command, "-v"]) == 1
    assert "queue 0 DISPATCH_DIRECT at ring dword" in capsys.readouterr().out


@needs_compiler
@pytest.mark.rest
def test_formats_json_and_junit_have_the_findings(
    saxpy_command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, junit = tmp_path / "r.json", tmp_path / "j.xml"
    assert main([*saxpy_command, "--format", "csv", "--json", str(report), "--junit", str(junit)]) == 1
    assert "finding,out-of-bounds,memcheck,saxpy.cl:5,saxpy,2," in capsys.readouterr().out
    (result,) = json.loads(report.read_text())["results"]
    (results,) = result["measure"]["findings"]
    assert (results["line"], results["tool"]) == ("saxpy.cl:5", "memcheck")
    assert results["access"] == "load of x[100] of 100 elements"
    suite = ElementTree.fromstring(junit.read_text())
    failure = suite.find("testcase/failure")
    assert failure is not None and failure.text is not None and suite.get("failures") == "1"
    assert "saxpy.cl:5: out-of-bounds" in failure.text and "repro zinc-rt launch saxpy.cl" in failure.text


@needs_compiler
@pytest.mark.rest
def test_suppressions_error_exit_code_and_tools(
    saxpy_command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*saxpy_command, "--error-exitcode", "42"]) == 42
    assert main([*saxpy_command, "--error-exitcode", "0"]) == 0
    assert main([*saxpy_command, "--tool", "initcheck,racecheck"]) == 0
    assert main([*saxpy_command, "--sanitizer", "off"]) == 0
    file = tmp_path / "s.yaml"
    entry = "{rule: out-of-bounds, kernel: saxpy, line: 'saxpy.cl:5', reason: the last group reads padding}"
    file.write_text(f"schema: zinc-rt-suppressions/1\nsuppressions:\n- {entry}\n")
    capsys.readouterr()
    assert main([*saxpy_command, "--suppress", str(file), "--strict"]) == 0
    assert "suppressed: 1;" in capsys.readouterr().out
    file.write_text(file.read_text() + "- {rule: race, reason: never}\n")
    assert main([*saxpy_command, "--suppress", str(file)]) == 0
    assert main([*saxpy_command, "--suppress", str(file), "--strict", "--error-exitcode", "0"]) == 1
    assert f"unused suppression: {file}: race, kernel *, line *: never" in capsys.readouterr().out


STALE = """\
kernel void stale(global int *data, volatile global int *flag, global int *out) {
  if (get_local_id(0)) return;
  if (get_group_id(0)) {
    __scoped_atomic_store_n(data, 5, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
    atomic_xchg(flag, 1);
    return;
  }
  int before = __scoped_atomic_load_n(data, __ATOMIC_RELAXED, __MEMORY_SCOPE_WVFRNT);
  while (!atomic_add(flag, 0));
  out[0] = before + __scoped_atomic_load_n(data, __ATOMIC_RELAXED, __MEMORY_SCOPE_WVFRNT);
}
"""


BARRIER = {
    "cl": "kernel void k(global int *out) {\n  if (get_local_id(0) < 32)\n    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  out[get_local_id(0)] = 1;\n}\n",
    "hip": "__global__ void k(int *out) {\n  if (threadIdx.x < 32)\n    __syncthreads();\n"
    "  out[threadIdx.x] = 1;\n}\n",
}


@needs_compiler
@pytest.mark.rest
@pytest.mark.parametrize("suffix", list(BARRIER))
def test_function_of_a_shipped_header_is_reported_at_its_call(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"k.{suffix}"
    path.write_text(BARRIER[suffix])
    [result] = zinc_rt.launch(path, grid=1, block=64, args={"out": out(64, np.int32)}, device="sim").findings
    assert result.rule == "barrier-mismatch" and result.line.endswith(f"k.{suffix}:3")


RACES = """\
kernel void k(global int *out, global int *flag) {
  local int part[64];
  int i = get_local_id(0);
  if (i < 64) part[i] = i;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (i / 32 == 1)
    part[i - 32] = -i;
  else
    out[i + 96 * get_group_id(0)] = part[i & 1];
  if (i == 32)
    flag[0] = i;
  if (i == 0)
    atomic_xchg(&flag[1], i);
  if (i == 64)
    flag[1] = i;
}
"""


@needs_compiler
@pytest.mark.rest
def test_race_names_the_other_access(tmp_path: Path) -> None:
    """Wave 2, which arrives at the barrier last, and wave 0 load what wave 1 stores after them."""
    path = tmp_path / "k.cl"
    path.write_text(RACES)
    args = {"out": inout(np.zeros(192, np.int32)), "flag": inout(np.zeros(2, np.int32))}
    result = zinc_rt.launch(path, grid=2, block=96, args=args, device="sim", tools=["racecheck"])

    def describe_group(group: FindingGroup) -> tuple[Any, ...]:
        assert group.other is not None
        line, other = (int(item.line.rpartition(":")[2]) for item in (group, group.other))
        return group.access, line, group.other.kind, other, group.other.workgroup, group.other.wave

    assert {describe_group(finding) for finding in result.findings} == {
        ("store of LDS byte 0", 7, "load", 9, (0, 0, 0), None),
        ("store of flag[0] of 2 elements", 11, "store", 11, (0, 0, 0), 1),
        ("store of flag[1] of 2 elements", 15, "atomic store", 13, (0, 0, 0), 0),
        ("atomic of flag[1] of 2 elements", 13, "store", 15, (0, 0, 0), 2),
    }
    text = "\n".join(line for finding in result.findings for line in format_finding(finding, 32))
    assert re.search(r"races with the load at \S*:9, several waves of workgroup \(0, 0, 0\), pc 0x\w+ `ds", text)
    assert re.search(r"races with the atomic store at \S*k.cl:13, wave 0 of workgroup", text)


@needs_compiler
@pytest.mark.rest
def test_cachecheck_finds_a_load_of_a_stale_line(tmp_path: Path) -> None:
    path = tmp_path / "stale.cl"
    path.write_text(STALE)
    zero = np.zeros(1, np.int32)
    args = {"data": inout(zero), "flag": inout(zero), "out": out(1, np.int32)}
    done = zinc_rt.launch(path, grid=2, block=32, args=args, device="sim", tools=["cachecheck"])
    [result] = done.findings
    assert result.rule == "stale-line" and result.line.endswith("stale.cl:10")
    assert result.access == "load of data[0] of 1 element" and result.tool == "cachecheck"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected `schema"),
        ("schema: zinc-rt-suppressions/1\nsuppressions: [{rule: race}]", "entry 1: expected rule and reason"),
        ("schema: zinc-rt-suppressions/1\nsuppressions: [{rule: race, reason: ' '}]", "the reason is empty"),
        ("schema: zinc-rt-suppressions/1\nsuppressions: [{rule: rice, reason: x}]", "unknown rule rice"),
        ("a: [", "no YAML"),
    ],
)
def test_damaged_suppression_file_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_suppressions([str(path)])


def test_finding_that_ends_the_launch_is_never_suppressed() -> None:
    fault = FindingGroup("page-fault", 1, "k: page-fault", True, "k", line="src/k.cl:3")
    mild = FindingGroup("race", 1, "k: race", False, "_Z1kPf", line="src/k.cl:3")
    entries = [Suppression(rule, "k", "k.cl:*", "known", "s.yaml") for rule in ("page-fault", "race")]
    result = apply_suppressions([fault, mild], entries)
    assert (
        result.left == (fault,) and result.suppressed == ((mild, entries[1]),) and result.unused == (entries[0],)
    )


def test_modes_are_sets_of_tools() -> None:
    assert choose_tools("fast", None) == {"memcheck", "initcheck"}
    assert choose_tools("full", None) == set(TOOLS) - {DEVICE}
    assert (
        choose_mode(MODES["fast"]) == "fast" and choose_mode(MODES["full"]) == "full" and choose_mode(()) == "off"
    )
    assert (
        choose_mode(["racecheck"]) == choose_mode(["synccheck"]) == "full" and choose_mode(["waitcheck"]) == "fast"
    )
    for tool in MODES["full"]:
        assert any(rule.tool == tool for rule in RULES.values())
    with pytest.raises(UsageError, match=r"tool racechek.*racecheck"):
        choose_tools("full", ["racechek"])


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tool", ["memcheck", "initcheck", "racecheck"])
def test_tool_reports_its_own_rules_only(tool: str) -> None:
    result = zinc_rt.launch(
        replace_barrier(NOP, NOP), "reverse", grid=2, block=64, args=REVERSE, device="sim", tools=[tool]
    )
    assert {finding.rule for finding in result.findings} == {
        rule for rule in RACY["full"] if RULES[rule].tool == tool
    }


def test_race_in_json_has_the_other_access_and_its_wave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = tmp_path / "k.co", tmp_path / "r.json"
    code.write_bytes(replace_barrier(NOP, NOP))
    words = [
        str(code),
        *["--kernel", "reverse", "--grid", "2", "--block", "64", "--device", "sim", "--tool", "racecheck"],
    ]
    arguments = ["--tool", "racecheck", "--arg", "out=out:i32[128]", "--arg", "in=in:i32[128]:range"]
    assert main([*words, *arguments, "--json", str(report)]) == 1
    (result,) = json.loads(report.read_text())["results"]
    results = next(
        finding for finding in result["measure"]["findings"] if finding["instruction"].startswith("ds_store")
    )
    other = results["other"]
    assert results["wave"] == 1
    assert other["instruction"].startswith("ds_load_b32") and other["pc"] > results["pc"]
    assert (other["kind"], other["workgroup"], other["wave"]) == ("load", [0, 0, 0], 0)
    assert "races with the load, wave 0 of workgroup (0, 0, 0), pc 0x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (0x1000, "x[0, 0] of 3 x 4 elements"),
        (0x1000 + 7 * 4, "x[1, 3] of 3 x 4 elements"),
        (0x1000 + 12 * 4, "x[12] of 3 x 4 elements"),
        (0x1000 - 4, "x[-1] of 3 x 4 elements"),
        (0x1000 + 6, "byte 2 of x[0, 1] of 3 x 4 elements"),
    ],
)
def test_address_is_shown_as_an_element(address: int, text: str) -> None:
    buffer = PlacedBuffer("x", 0x1000, np.zeros((3, 4), np.float32))
    assert buffer.element(address) == text
    assert (buffer.measure_distance(address) == 0) == (0x1000 <= address < 0x1030)


def test_names_and_remarks() -> None:
    assert strip_parameter_types("_Z5saxpyPfPKffi") == "saxpy" and strip_parameter_types("saxpy") == "saxpy"
    remarks = [FindingGroup("sgpr-read", count, "", False) for count in (2, 10)]
    assert format_remarks(remarks) == "remarks: 12 x sgpr-read; -v lists them" and format_remarks([]) == ""


def test_line_tables_of_stripped_code_and_without_pyelftools(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_source_lines(code_object(), "k.co").at(0) == ""
    debug: dict[str, Any] = {".debug_line": b"x"}
    monkeypatch.setattr("zinc_rt.launching.source_lines.read_section_contents", lambda data, source: debug)
    monkeypatch.setattr("zinc_rt.launching.source_lines.find_spec", lambda name: None)
    assert "pip install 'zinc-rt[launch]'" in read_source_lines(b"", "k.co").missing
