"""The kernel sets by name."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.op_cases import make_weight, random_floats

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.sets import SETS, BinaryKernelSet, find_kernel_set

RUNS_ON = {"radv": "gfx1201"}  # sets that are not called as what runs them


@pytest.mark.parametrize("name", SETS)
def test_set_has_its_name_and_packs_the_declared_size(name: str) -> None:
    kernels = find_kernel_set(name)
    assert kernels is not None and kernels.target == RUNS_ON.get(name, name) and kernels.entries
    for dtype in ("f32", "bf16", "q8_0", "q4_k"):
        argument = make_weight(random_floats(1, 3, 5, 256), dtype)[1:]
        packed = kernels.pack(argument)
        assert packed.dtype == np.uint8 and packed.shape == (kernels.packed_bytes(argument),)


def test_oracle_reads_weights_in_file_layout() -> None:
    kernels, argument = find_kernel_set("numpy-reference"), make_weight(random_floats(1, 3, 256), "q4_k")
    assert kernels is not None and kernels.pack(argument).tobytes() == argument.raw.tobytes()
    assert not isinstance(kernels, BinaryKernelSet)


@pytest.mark.parametrize("name", [name for name in SETS if name.startswith("gfx")])
def test_chip_kernel_set_loads_its_kernels_by_name(name: str) -> None:
    kernels = find_kernel_set(name)
    assert isinstance(kernels, BinaryKernelSet)
    assert kernels.load("argmax").target == name
    with pytest.raises(UnsupportedError, match=f"no {name} kernel nosuch"):
        kernels.load("nosuch")


def test_chip_without_kernels_has_no_set() -> None:
    assert find_kernel_set("gfx906") is None
