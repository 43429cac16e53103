"""Kernels with barriers give the same bits when their lanes are numbered the other way round.

Between two barriers lavapipe runs the invocations of a workgroup eight at a time, from the first on. So what is
read before another invocation has written it, with no barrier between, shows in one of the two orders and not
always in the committed one.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import pytest
from kernels.spirv.planted_glsl import GlslEdit, compile_edited, with_modules
from kernels.spirv.test_spirv_faults import open_vulkan_backend
from support import Counts
from vulkan_driver import require_driver

from zinc_rt.kernels.spirv.compile import is_available
from zinc_rt.kernels.spirv.table import KERNELS, TUNING, module, names
from zinc_rt.spirv.module import read_module
from zinc_rt.spirv.opcodes import Opcode
from zinc_rt.validate.cases.table import family_cases
from zinc_rt.validate.kernel_test.bench import CaseBench
from zinc_rt.validate.kernel_test.select import PlannedCase, plan_cases, thin_plans

pytestmark = pytest.mark.skipif(not is_available(), reason='no compiler: extra "glsl" is not installed')

LANE = "#define lane gl_LocalInvocationID.x"
REVERSED = "#define lane (uint(WORKGROUP) - 1u - gl_LocalInvocationID.x)"
FAMILIES = ("norms", "sampling", "recurrent")
SLOW_FAMILIES = ("attention", "projections", "experts")  # their cases are large
DROPPED = {  # barriers whose loss shows in the reversed order alone
    "log_sum": ("sampling", GlslEdit("log_sum", " : 0.0;\n        barrier();", " : 0.0;")),
    "flash_attn_128": (
        "attention",
        GlslEdit("flash_attn_128", "        group_maxima[lane] = largest;\n    }\n    barrier();",
                 "        group_maxima[lane] = largest;\n    }", "attention.glsl"),
    ),
}  # fmt: skip


@cache
def kernels_with_barriers() -> frozenset[str]:
    return frozenset(name for name in names() if any(read_module(module(name)).of(Opcode.ControlBarrier)))


def choose_plans(family: str, ordering: str, count: int) -> list[PlannedCase]:
    result = plan_cases(family_cases(family), KERNELS, ordering)
    return thin_plans([plan for plan in result if kernels_with_barriers() & {*plan.kernels}], count)


def reverse_lanes(kernels: set[str], folder: Path, *edits: GlslEdit) -> dict[str, bytes]:
    result = {}
    for name in kernels:
        (folder / name).mkdir()
        result[name] = compile_edited(GlslEdit(name, LANE, REVERSED, "kernel.glsl"), folder / name, *edits)
    return result


def run_in_reverse(family: str, ordering: str, count: int, folder: Path) -> None:
    require_driver()
    taken = choose_plans(family, ordering, count)
    assert taken
    kernels = {name for plan in taken for name in plan.kernels} & kernels_with_barriers()
    with CaseBench(partial(open_vulkan_backend, with_modules(reverse_lanes(kernels, folder)), ordering)) as bench:
        for plan in taken:
            result = bench.run(plan.case)
            assert result.status == "pass", f"{plan.case.text()}: {result.said or result.difference}"


@pytest.mark.rest
@pytest.mark.parametrize("family", FAMILIES)
def test_reversed_lanes_compute_the_same_bits(family: str, tmp_path: Path, slow_counts: Counts) -> None:
    run_in_reverse(family, "canonical-1", slow_counts(1, 12), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ordering", sorted(TUNING.orderings))
@pytest.mark.parametrize("family", SLOW_FAMILIES)
def test_reversed_lanes_of_large_cases_compute_the_same_bits(family: str, ordering: str, tmp_path: Path) -> None:
    run_in_reverse(family, ordering, 6, tmp_path)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name", DROPPED)
def test_dropped_barrier_is_detected_in_one_of_the_orders(name: str, tmp_path: Path) -> None:
    require_driver()
    family, edit = DROPPED[name]
    data = reverse_lanes({name}, tmp_path, edit)
    taken = [plan for plan in choose_plans(family, "canonical-1", 8) if name in plan.kernels]
    with CaseBench(partial(open_vulkan_backend, with_modules(data))) as bench:
        assert any(bench.run(plan.case).status == "wrong" for plan in taken)
