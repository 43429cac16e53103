"""Triton kernels on a simulated chip: arguments, checks, hooks, printing. Skipped without the package triton."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from zinc_rt.host.errors import CheckFailed, UnsupportedError, UsageError
from zinc_rt.launching.hostcall import format_message
from zinc_rt.launching.launch import LaunchStopped
from zinc_rt.launching.triton_memory import HostAllocation, merge_allocations

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="the package triton is not installed")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the package torch is not installed")


@pytest.fixture
def triton_chip() -> Iterator[Any]:
    if find_spec("triton") is None:
        pytest.skip("the package triton is not installed")
    from zinc_rt.launching import triton

    installed = triton.install()
    yield installed
    installed.uninstall()


@pytest.fixture
def triton_kernels() -> Any:
    pytest.importorskip("triton")
    import triton_kernels

    return triton_kernels


def test_arrays_go_in_and_results_come_back(triton_chip: Any, triton_kernels: Any) -> None:
    x, y = np.random.default_rng(7).standard_normal((2, 1000)).astype(np.float32)
    out = np.zeros_like(x)
    triton_kernels.add[(4,)](x, y, out, 1000, BLOCK=256)
    assert np.array_equal(out, x + y)
    triton_chip.assert_clean()
    assert triton_chip.launches == 1


def test_missing_mask_is_found_with_line_and_element(triton_chip: Any, triton_kernels: Any) -> None:
    x, y, out = (np.ones(1000, np.float32) for _ in range(3))
    triton_kernels.add_without_mask[(4,)](x, y, out, 1000, BLOCK=256)
    [finding] = triton_chip.findings
    assert finding.rule == "out-of-bounds"
    assert "triton_kernels.py:" in finding.line
    assert "load of y[1000] of 1000 elements" in finding.access
    with pytest.raises(CheckFailed, match=r"triton_kernels.py:\d+: out-of-bounds"):
        triton_chip.assert_clean()


def test_nothing_launched_is_not_clean(triton_chip: Any) -> None:
    with pytest.raises(CheckFailed, match="nothing was checked"):
        triton_chip.assert_clean()


@pytest.mark.rest
@pytest.mark.parametrize("chip", ["gfx1100", "gfx1151"])
def test_next_launch_reads_results_on_gfx11(chip: str, triton_kernels: Any) -> None:
    triton = pytest.importorskip("zinc_rt.launching.triton")
    x, y, out = np.arange(70, dtype=np.float32), np.ones(70, np.float32), np.zeros(70, np.float32)
    installed = triton.install(chip, coherence="caches")
    try:
        for source in (x, out):
            triton_kernels.add[(1,)](source, y, out, 70, BLOCK=128)
        installed.assert_clean()
    finally:
        installed.uninstall()
    assert np.array_equal(out, x + 2)


@pytest.mark.rest
def test_views_share_memory_and_strides_count(triton_chip: Any, triton_kernels: Any) -> None:
    base = np.arange(200, dtype=np.float32)
    view = base[10:110:2]  # 50 elements, every second
    triton_kernels.double_strided[(1,)](view, 2, 50, BLOCK=128)
    expected = np.arange(200, dtype=np.float32)
    expected[10:110:2] *= 2
    assert np.array_equal(base, expected)
    triton_kernels.add[(1,)](base[:100], base[100:], base[:100], 100, BLOCK=128)  # in place
    assert np.array_equal(base[:100], expected[:100] + expected[100:])
    triton_chip.assert_clean()


@pytest.mark.rest
def test_tuples_numbers_and_halves_are_passed(triton_chip: Any, triton_kernels: Any) -> None:
    out = np.zeros(8, np.float32)
    x = np.arange(4, dtype=np.float16)
    triton_kernels.mixed[(1,)]((x, 1.5), -3, 1 << 40, out, BLOCK=4)
    assert out[:4].tolist() == [-3 + 1.5 * i for i in range(4)]
    assert out[4] == np.float32(1 << 40)
    triton_chip.assert_clean()


@pytest.mark.rest
def test_pointers_stored_in_memory_reach_torch_tensors(triton_chip: Any, triton_kernels: Any) -> None:
    torch = pytest.importorskip("torch", reason="the package torch is not installed")
    parts = [torch.full((16,), float(index)) for index in range(3)]
    table = torch.tensor([part.data_ptr() for part in parts], dtype=torch.int64)
    before = table.clone()
    out = torch.zeros(3, 16)
    triton_kernels.gather_pointers[(3,)](table, out, BLOCK=16)
    assert torch.equal(out, torch.stack(parts)) and torch.equal(table, before)
    triton_chip.assert_clean()


@pytest.mark.rest
def test_device_print_prints(triton_chip: Any, triton_kernels: Any, capsys: pytest.CaptureFixture[str]) -> None:
    triton_kernels.print_values[(1,)](np.arange(4, dtype=np.int32), BLOCK=4, num_warps=1)
    lines = capsys.readouterr().out.splitlines()
    assert {line.split("value:")[1].split()[-1] for line in lines if "value:" in line} == {"0", "1", "2", "3"}


@pytest.mark.rest
def test_device_assert_ends_the_launch(
    triton_chip: Any, triton_kernels: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.array([1, 2, -3, 4], np.float32)
    with pytest.raises(LaunchStopped, match=r"trap at .*triton_kernels.py:\d+"):
        triton_kernels.assert_positive[(1,)](x, BLOCK=4, num_warps=1, debug=True)
    assert "must be positive" in capsys.readouterr().err
    x[2] = 3
    triton_kernels.assert_positive[(1,)](x, BLOCK=4, num_warps=1, debug=True)  # on a GPU that is opened again


@pytest.mark.rest
def test_autotune_ranks_by_simulated_counters(
    triton_chip: Any, triton_kernels: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.ones(1000, np.float32)
    out = np.zeros_like(x)
    triton_kernels.tuned[lambda meta: (-(-1000 // meta["BLOCK"]),)](x, out, 1000)
    assert np.array_equal(out, 2 * x)
    assert triton_kernels.tuned.best_config.kwargs["BLOCK"] in (64, 1024)
    assert "estimates from simulated counters" in capsys.readouterr().err


@pytest.mark.rest
def test_launch_hooks_and_num_stages(triton_chip: Any, triton_kernels: Any) -> None:
    from triton import knobs

    seen: list[str] = []

    def record_enter(metadata: Any) -> None:
        seen.append(metadata.get()["name"])

    def record_leave(metadata: Any) -> None:
        seen.append("end")

    knobs.runtime.launch_enter_hook.add(record_enter)
    knobs.runtime.launch_exit_hook.add(record_leave)
    try:
        a = np.random.default_rng(7).standard_normal((32, 64)).astype(np.float16)
        b = np.random.default_rng(8).standard_normal((64, 32)).astype(np.float16)
        for stages in (1, 3):
            out = np.zeros((32, 32), np.float32)
            triton_kernels.matmul[(2, 2)](a, b, out, 32, 32, 64, BLOCK=16, STEP=16, num_stages=stages)
            exact = a.astype(np.float32) @ b.astype(np.float32)
            assert np.allclose(out, exact, rtol=1e-3, atol=1e-3)
    finally:
        knobs.runtime.launch_enter_hook.remove(record_enter)
        knobs.runtime.launch_exit_hook.remove(record_leave)
    assert seen == ["matmul", "end"] * 2
    triton_chip.assert_clean()


@needs_triton
def test_what_is_not_supported_is_named(triton_chip: Any, triton_kernels: Any) -> None:
    from zinc_rt.launching import triton

    with pytest.raises(UsageError, match="unknown chip 'gfx0'"):
        triton.install("gfx0")
    with pytest.raises(UnsupportedError, match=r"argument x is a .*Opaque of unknown size"):
        triton_kernels.add[(1,)](
            triton_kernels.Opaque(), triton_kernels.Opaque(), triton_kernels.Opaque(), 1, BLOCK=16
        )


def run(*words: str, cwd: Path, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a Python script under `zinc-rt sanitize`."""
    root = str(Path(zinc_rt.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "COLUMNS": "120"}
    command = [sys.executable, "-m", "zinc_rt.cli", "sanitize", *options, "--", sys.executable, *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.rest
@needs_triton
def test_sanitize_runs_an_unchanged_program(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        (HERE / "triton_kernels.py").read_text()
        + "x = np.ones(1000, np.float32)\nadd_without_mask[(4,)](x, x.copy(), x.copy(), 1000, BLOCK=256)\n"
        "print('ended')\n"
    )
    report = tmp_path / "report.json"
    done = run("program.py", cwd=tmp_path, options=("--json", str(report)))
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[0] == "ended"
    assert "program.py:" in done.stdout and "out-of-bounds: load of y[1000] of 1000 elements" in done.stdout
    [result] = json.loads(report.read_text())["results"]
    assert result["status"] == "fail" and result["measure"]["launches"] == 1
    assert [finding["rule"] for finding in result["measure"]["findings"]] == ["out-of-bounds"]
    known = tmp_path / "known.yaml"
    known.write_text(
        "schema: zinc-rt-suppressions/1\nsuppressions:\n- {rule: out-of-bounds, kernel: add_*, reason: known}\n"
    )
    assert run("program.py", cwd=tmp_path, options=("--suppress", str(known))).returncode == 0
    assert run("program.py", cwd=tmp_path, options=("--error-exitcode", "5")).returncode == 5


def test_sanitize_passes_exit_codes_on_and_says_that_nothing_ran(tmp_path: Path) -> None:
    ended = run("-c", "raise SystemExit(3)", cwd=tmp_path)
    assert ended.returncode == 3 and "FAIL" in ended.stdout and "exit code 3" in ended.stdout
    nothing = run("-c", "print('hello')", cwd=tmp_path)
    assert nothing.returncode == 77 and "no Triton kernel was launched" in nothing.stdout


def test_sanitize_names_the_package_that_a_program_lacks(tmp_path: Path) -> None:
    for name, advice in (("torch", "whl/cpu"), ("triton", "zinc-rt[triton]")):
        ended = run("-c", f"raise ModuleNotFoundError('No module', name='{name}')", cwd=tmp_path)
        assert ended.returncode == 1 and "ModuleNotFoundError: No module" in ended.stderr
        [line] = [line for line in ended.stderr.splitlines() if line.startswith("zinc-rt sanitize:")]
        assert f"{name} is not installed: pip install" in line and advice in line
    other = run("-c", "import no_such_module", cwd=tmp_path)
    assert "zinc-rt sanitize:" not in other.stderr


@pytest.mark.rest
@needs_torch
def test_streams_and_events_of_torch_are_types(tmp_path: Path) -> None:
    program = (
        "import torch\n"
        "def record(stream: torch.cuda.Stream | None, event: torch.cuda.Event | None = None): "
        "return stream.record_event(event)\n"
        "assert isinstance(record(torch.cuda.current_stream()), torch.cuda.Event)\n"
        "torch.cuda.Stream().wait_stream(torch.cuda.current_stream())\n"
    )
    done = run("-c", program, cwd=tmp_path)
    assert done.returncode == 77, done.stderr


def test_messages_of_printf_are_formatted() -> None:
    def to_dwords(raw: bytes) -> list[int]:
        raw += b"\0" * (-len(raw) % 8)
        return [int.from_bytes(raw[index : index + 8], "little") for index in range(0, len(raw), 8)]

    (half,) = np.array([1.5]).view(np.uint64).tolist()
    text = b"pid (%d, %u) %s is %f, %5.2f %%, %x%c %lld\n\0"
    message = [
        *to_dwords(text),
        (1 << 64) - 1,
        7,
        *to_dwords(b"value\0"),
        half,
        half,
        255,
        ord("!"),
        (1 << 64) - 2,
    ]
    assert format_message(message) == "pid (-1, 7) value is 1.500000,  1.50 %, ff! -2\n"
    assert format_message(to_dwords(b"no arguments\0")) == "no arguments"


def test_overlapping_allocations_are_one() -> None:
    rows = [(100, 50), (120, 10), (140, 20), (200, 8)]
    joined = merge_allocations([HostAllocation(index, size, False, None) for index, size in rows])
    assert [(item.address, item.size_bytes) for item in joined] == [(100, 60), (200, 8)]
