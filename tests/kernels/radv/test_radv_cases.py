"""The cases of validate/cases on Vulkan's kernels as RADV's machine code, on the bare engine at its strictest.

One case of each kernel by default; of kernels that differ by the type of weights or a width alone those in CHOSEN,
as compiling one takes seconds. With --slow every case of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from kernels.gfx1201.harness import ORDERING, check_op

from zinc_rt.backends.vulkan.self_test_cases import KERNEL as SELF_TEST
from zinc_rt.backends.vulkan.self_test_cases import OPERATIONS, find_wrong_bits, make_operands
from zinc_rt.kernels.radv.table import KERNELS
from zinc_rt.sim.shader.run.engine_device import EngineDevice
from zinc_rt.validate.cases.table import FAMILIES, family_cases
from zinc_rt.validate.kernel_test.select import PlannedCase, pick_one_plan_per_kernel, plan_cases

pytestmark = pytest.mark.rest
ORDERINGS = (ORDERING, "canonical-1-q8")
PARTS = 4  # of a family, so that workers share it
CHOSEN = {
    "embed": {"embed_q6_k"},
    "matvec": {"matvec_f32", "matvec_q4_k"},
    "matmul": {"matmul_q8_0", "matmul_wmma_f16_q4_k", "matmul_wmma_experts_bf16_q8_0"},
    "matvec_q8": {"matvec_q8_32_q8_0", "matvec_q8_256_q4_k"},
    "flash_attn": {"flash_attn_128", "flash_attn_512"},
    "mla_flash_attn": {"mla_flash_attn_512"},
}


@cache
def planned_cases(family: str, ordering: str) -> tuple[PlannedCase, ...]:
    """Return the cases whose dispatch in this ordering differs from that in canonical-1."""
    known = () if ordering == ORDERING else planned_cases(family, ORDERING)
    met = {(plan.case.text(), plan.kernels) for plan in known}
    result = plan_cases(family_cases(family), KERNELS, ordering)
    return tuple(plan for plan in result if plan.kernels and (plan.case.text(), plan.kernels) not in met)


def is_chosen(kernel: str) -> bool:
    families = [item for item in CHOSEN if kernel.startswith(f"{item}_")]
    return not families or any(kernel in CHOSEN[family] for family in families)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_family_matches_the_oracle_bits(
    ordering: str, family: str, part: int, pytestconfig: pytest.Config
) -> None:
    plans: Sequence[PlannedCase] = planned_cases(family, ordering)
    if not pytestconfig.getoption("--slow"):
        plans = pick_one_plan_per_kernel([plan for plan in plans if all(map(is_chosen, plan.kernels))])
    for plan in plans[part::PARTS]:
        case = plan.case
        try:
            check_op(
                case.op, *case.operands(), capacity=case.room, kernels=KERNELS, ordering=ordering, **case.attrs
            )
        except AssertionError as error:
            raise AssertionError(f"{case.text()}: {error}") from error


def test_every_kernel_has_a_case() -> None:
    every = (plan for ordering in ORDERINGS for family in FAMILIES for plan in planned_cases(family, ordering))
    met = {kernel for plan in every for kernel in plan.kernels}
    assert set(KERNELS.names()) - met == {SELF_TEST}
    assert {name for names in CHOSEN.values() for name in names} <= met


def test_arithmetic_self_test_finds_no_wrong_bit() -> None:
    """What a Vulkan driver is asked at its first open, asked of RADV's code."""
    argument, kernel, device = make_operands(), KERNELS.load(SELF_TEST), EngineDevice(level="full")
    got = np.zeros((len(OPERATIONS), len(argument.a)), np.uint32)
    vas = [
        device.place(item, name, write=False)
        for name, item in zip("abc", (argument.a, argument.b, argument.c), strict=True)
    ]
    vas.append(device.place(got, "y", initialised=False))
    block = np.frombuffer(
        np.array(vas, np.uint64).tobytes() + np.array([len(argument.a), 0], np.uint32).tobytes(), np.uint8
    )
    va = device.place(block, "arguments", write=False)
    findings = device.run(
        kernel.image,
        groups=(-(-len(argument.a) // 32), len(OPERATIONS), 1),
        user_data=(va & 0xFFFFFFFF, va >> 32),
        vgprs=kernel.vgprs,
        name=kernel.name,
    )
    assert not findings
    assert [result for number, bits in enumerate(got) if (result := find_wrong_bits(number, argument, bits))] == []
