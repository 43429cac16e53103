"""Which kernels a projection becomes on Vulkan; canonical-1-q8 on a driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernels.case_samples import SAMPLES, family_plans, sample_plans
from vulkan_driver import require_driver

from zinc_rt.backends.spec import BackendSpec
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.device import open_device
from zinc_rt.kernels.cases import parse
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch
from zinc_rt.kernels.rows.expand import EVERY_OTHER_TYPE
from zinc_rt.kernels.spirv.table import KERNELS, TUNING
from zinc_rt.lower.lower import choose_entry
from zinc_rt.validate.kernel_test.bench import CaseBench
from zinc_rt.validate.kernel_test.select import build_skeleton, plan_case

Q8 = "canonical-1-q8"
ALL = 1 << 30


def selected_kernels(line: str, ordering: str = "canonical-1") -> tuple[str, ...]:
    return tuple(name for name in plan_case(parse(line), KERNELS, ordering).kernels if name != "step_grids")


@pytest.mark.parametrize("dtype", EVERY_OTHER_TYPE)
def test_kernel_is_selected_by_the_stored_type(dtype: str) -> None:
    stored = EVERY_OTHER_TYPE[dtype]
    for ordering in sorted(TUNING.orderings):  # what is no block format of canonical-1-q8 is canonical-1 there
        assert selected_kernels(f"MATMUL T=1 N=3 K=256 one=1 dtype={dtype} -norm_w -residual -gate", ordering) == (
            f"matvec_{stored}",
        )
        assert selected_kernels(f"EMBED T=1 V=3 D=256 dtype={dtype}", ordering) == (f"embed_{stored}",)


def test_large_token_capacity_uses_tiled_matmul() -> None:
    few, many = TUNING.matmul_capacity - 1, TUNING.matmul_capacity
    assert selected_kernels(f"MATMUL T=2 N=3 K=256 one=1 dtype=q4_k tokens={few} -norm_w -residual -gate") == (
        "matvec_q4_k",
    )
    assert selected_kernels(f"MATMUL T=2 N=3 K=256 one=1 dtype=q4_k tokens={many} -norm_w -residual -gate") == (
        "matmul_q4_k",
    )


def test_input_is_quantised_once_for_all_its_readers() -> None:
    case = parse("RMS_NORM_FUSED_QKV T=2 D=256 Q=32 K=16 V=16 eps=1e-06 dtype=q5_k")
    result = build_skeleton(case)
    entry = choose_entry(result.node, result.graph, KERNELS.entries, Q8)
    assert isinstance(entry, Entry)
    steps = entry.code(result.node, result.graph, result.capacity)
    launched = [step.kernel for step in steps if isinstance(step, Launch)]
    assert launched == ["rms_norm", "quantise_256", *["matvec_q8_256_q5_k"] * 3]


def test_shared_expert_gate_is_a_float_dot_in_every_ordering() -> None:
    line = "SHARED_EXPERT T=2 D=256 F=256 one=1 dtype=q8_0 -gate_scale -up_scale -down_scale"
    assert {"matvec_q8_32_q8_0", "matvec_q8_0", "quantise_32"} <= set(selected_kernels(line, Q8))


@pytest.fixture(scope="module")
def q8_bench() -> Iterator[CaseBench]:
    physical = require_driver()

    def open_bench() -> VulkanBackend:
        device = open_device(physical)
        spec, options = BackendSpec("vulkan", "Vulkan"), VulkanOptions(guarded=True)
        return VulkanBackend(spec, Q8, device, KERNELS, options, after=device.close)

    with CaseBench(open_bench) as bench:
        yield bench


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("family", ("projections", "experts", "attention"))
def test_family_matches_the_oracle_bits_in_canonical_1_q8(family: str, q8_bench: CaseBench, sample: str) -> None:
    """Those cases alone that canonical-1 computes by other kernels."""
    taken = family_plans(family, KERNELS, Q8, sample, maximum=400)
    own = [plan for plan in taken if any(name.startswith("quantise_") for name in plan.kernels)]
    assert own
    for plan in sample_plans(own, sample, group_count=1):
        result = q8_bench.run(plan.case)
        assert result.status == "pass", f"{plan.case.text()}: {result.said or result.difference}"


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    "line",
    [
        "MATMUL T=2 N=18 K=1280 one=1 dtype=q4_k values=outliers",  # a group and a pair
        "MATMUL T=2 N=18 K=9472 one=1 dtype=q6_k values=plain",  # more than the 32 blocks that go at a time
        "MATMUL T=1 N=5 K=1056 one=1 dtype=q8_0 values=denormals",  # blocks below 2^-100
        "MATMUL T=1 N=5 K=1056 one=1 dtype=q4_0 values=edges",  # blocks with infinity and NaN
        "LM_HEAD T=6 L=3 V=50 D=512 dtype=q5_k values=mixed rows=4",
    ],
)
def test_projection_matches_the_oracle_bits_in_canonical_1_q8(q8_bench: CaseBench, line: str) -> None:
    result = q8_bench.run(parse(line))
    assert result.status == "pass", result.said or result.difference
