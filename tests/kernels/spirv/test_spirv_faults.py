"""Faults planted in kernels: lint names those that can be read, a case or the self-test finds the others."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from kernels.spirv.planted_glsl import GlslEdit, compile_edited, with_modules
from vulkan_driver import require_driver

from zinc_rt.backends.spec import BackendSpec
from zinc_rt.backends.vulkan import self_test
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.device import open_device
from zinc_rt.kernels.cases import parse
from zinc_rt.kernels.sets import SpirvKernelSet
from zinc_rt.kernels.spirv.compile import is_available
from zinc_rt.spirv.lint import lint_module
from zinc_rt.spirv.module import read_module
from zinc_rt.validate.kernel_test.bench import CaseBench

pytestmark = pytest.mark.skipif(not is_available(), reason='no compiler: extra "glsl" is not installed')

READ = {  # what lint names
    "a native division": ("division",
     GlslEdit("rms_norm", "fdiv_(sum_of(0u), float(size))", "sum_of(0u) / float(size)", "norm.glsl")),
    "a native maximum": ("ext-inst", GlslEdit("self_test", "bits_of(fmax_(a, b))", "bits_of(max(a, b))")),
    "a native root": ("ext-inst", GlslEdit("self_test", "bits_of(fsqrt_(a))", "bits_of(sqrt(a))")),
    "a fused product and sum": ("ext-inst", GlslEdit("self_test", "bits_of(a * b + c)", "bits_of(fma(a, b, c))")),
    "0 + x": ("folded-operand", GlslEdit("add", "args.a.v[i] + ", "0.0 + args.a.v[i] + ")),
    "NaN by a comparison": ("nan-compare", GlslEdit("self_test", "uint(a == b) << 1", "uint(a == a) << 1")),
    "isnan": ("opcode", GlslEdit("self_test", "uint(a == b) << 1", "uint(isnan(a)) << 1")),
    "too many invocations": ("workgroup",
     GlslEdit("add", '#include "kernel.glsl"', '#define WORKGROUP 256\n#include "kernel.glsl"')),
}  # fmt: skip

RUN = {  # what a case finds: the case, and the mistake
    "accumulators swapped": ("MATMUL T=2 N=18 K=1280 one=1 -scale -bias",
     GlslEdit("matvec_f32", "(a.x + a.y) + (a.z + a.w)", "(a.x + a.z) + (a.y + a.w)", "kernel.glsl")),
    "lanes in another order": ("MATMUL T=2 N=18 K=1280 one=1 -scale -bias",
     GlslEdit("matvec_f32", "sums_[at] + sums_[at + 1u]", "sums_[at] + sums_[at + 2u]", "kernel.glsl")),
    "a barrier dropped": ("RMS_NORM T=3 K=111 size=37 eps=1e-06",
     GlslEdit("rms_norm", "    barrier();\n", "", "norm.glsl")),
    "a sum made a difference": ("ADD T=3 N=300", GlslEdit("add", "] + args.b", "] - args.b")),
    "a column left out": ("ADD T=3 N=300", GlslEdit("add", "c += LANES", "c += LANES + 1u")),
    "steps of a tile in another order": ("MATMUL_WMMA_F16 T=3 N=9 K=132 one=1 dtype=f16 -bias -scale",
     GlslEdit("matmul_wmma_f16_f16", "(i & 1u) * 8u + (i >> 1 & 1u) * 4u", "(i & 3u) * 4u", "wmma.glsl")),
    "a step rounded down": ("MATMUL_WMMA_F16 T=3 N=9 K=132 one=1 dtype=f16 -bias -scale",
     GlslEdit("matmul_wmma_f16_f16", "max(leading, -126)", "max(leading + 3, -126)", "wmma.glsl")),
}  # fmt: skip

ARITHMETIC = {  # what the self-test names
    "exp to the wrong side": ("fexp_(a)",
     GlslEdit("self_test", "uint(int(n)) << 23", "uint(int(n + 0.5)) << 23", "canonical.glsl")),
    "ties away from even": ("fdiv_(a, b)",
     GlslEdit("self_test", "sticky || (q & 2u) != 0u", "true", "canonical.glsl")),
    "a product left out": ("a * b + c", GlslEdit("self_test", "bits_of(a * b + c)", "bits_of(a * b - c)")),
    # gallivm drops the 0 that a sum starts at, so lavapipe shows it
    "a folded 0 + x": ("a sum of -0",
     GlslEdit("self_test", "f32(bits_of(sum) == SIGN_BIT ? 0u : bits_of(sum))", "sum", "canonical.glsl")),
    "halves without denormals": ("half_to_float(a)",
     GlslEdit("self_test", "float(magnitude) * f32(0x33800000u)", "f32(0u)", "canonical.glsl")),
}  # fmt: skip


def open_vulkan_backend(kernels: SpirvKernelSet, ordering: str = "canonical-1") -> VulkanBackend:
    device = open_device(require_driver())
    return VulkanBackend(
        BackendSpec("vulkan", "Vulkan"), ordering, device, kernels, VulkanOptions(), after=device.close
    )


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name", READ)
def test_statically_visible_fault_is_reported_by_lint(name: str, tmp_path: Path) -> None:
    rule, edit = READ[name]
    rules = {remark.rule for remark in lint_module(read_module(compile_edited(edit, tmp_path)))}
    assert rules == {rule}


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name", RUN)
def test_runtime_fault_is_detected_by_a_case(name: str, tmp_path: Path) -> None:
    line, edit = RUN[name]
    require_driver()
    data = compile_edited(edit, tmp_path)
    assert lint_module(read_module(data)) == ()
    with CaseBench(partial(open_vulkan_backend, with_modules({edit.kernel: data}))) as bench:
        result = bench.run(parse(line))
    assert result.status == "wrong" and edit.kernel in result.kernels


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_wrong_arithmetic_is_reported_by_the_self_test(name: str, tmp_path: Path) -> None:
    operation, edit = ARITHMETIC[name]
    require_driver()
    with open_vulkan_backend(with_modules({"self_test": compile_edited(edit, tmp_path)})) as backend:
        assert operation in [difference.operation.name for difference in self_test.find_differences(backend)]
