"""Counts of tokens on Vulkan: the one sum that several workgroups add to."""

from __future__ import annotations

import numpy as np
from kernels.op_cases import random_floats
from kernels.slot_cases import make_records

from zinc_rt.ir.op import Op
from zinc_rt.lower.one_node import build_one_node
from zinc_rt.validate.kernel_test.bench import CaseBench


def test_rows_of_one_slot_count_together(bench: CaseBench) -> None:
    logits, slot = np.tile(random_floats(2, 1, 40), (20, 1)), np.zeros(20, np.int32)
    position, counts = np.arange(20, dtype=np.int32), np.ones((2, 40), np.int32)
    operands = (logits, slot, position, make_records({"penalty_row": 1}), counts)
    tally = bench.results(build_one_node(Op.SAMPLE_SLOTS, operands, [np.empty(20, np.int32)]))["token_counts"]
    assert tally.max() == 21 and tally.sum() == 100
    assert tally[1, logits[0].argmax()] == 21
