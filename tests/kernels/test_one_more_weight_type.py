"""A quantised type is a row and its macros: docs/extending.md's gives kernels with the oracle's bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from extending import ExtendedTree, extend_tree

from zinc_rt.kernels.assemble import is_available
from zinc_rt.kernels.native.types import list_dtypes
from zinc_rt.kernels.rows import repack

SECTION, TYPE = "A weight type", "q4_1"
CASES = (
    "MATMUL T=2 N=18 K=1312 one=1",
    "MATMUL T=66 N=10 K=1312 one=1",
    "MATMUL T=2 N=18 K=1312 one=1 norm_groups=41 -bias",
    "MATMUL_WMMA_F16 T=3 N=10 K=1184 one=1",
    "MATMUL_WMMA_BF16 T=3 N=10 K=1184 one=1",
    "MOE_GATE_UP_WMMA_F16 T=3 D=160 F=20 E=4 k=2 -norm_w",
    "MOE_GATE_UP_WMMA_BF16 T=3 D=160 F=20 E=4 k=2 -norm_w",
    "MOE_GATE_TOPK T=2 D=160 E=4 F=20 k=2 -bias",
    "QKV_FUSED_ROPE_KV_WRITE T=2 D=1312 Q=18 K=12 V=7 R=3 ctx=20 slots=2 pages=2 page_tokens=16 kv_rows=64 "
    "head_dim=6 mode=neox eps=1e-06",
    "EMBED T=3 V=5 D=1312",
    "RMS_NORM_FUSED_QKV T=2 D=1312 Q=18 K=10 V=7 eps=1e-06",
    "RMS_NORM_FUSED_MLP_GATE_UP T=2 D=1312 F=18 eps=1e-06 activation=silu",
    "MOE_GATE_UP T=2 D=160 F=20 E=4 k=2",
    "MOE_GATE_UP T=2 D=160 F=20 E=4 k=2 -norm_w",
    "MOE_DOWN_ACC T=2 D=18 F=160 E=4 k=2",
    "MOE_DOWN_ACC T=2 D=18 F=160 E=4 k=2 -bias",
    "SHARED_EXPERT T=2 D=160 F=1312 one=1",
    "SHARED_EXPERT T=2 D=160 F=1312 one=1 -norm_w",
)
REPACKED = f"""
import numpy as np
from zinc_rt.ir.dtypes import count_row_bytes
from zinc_rt.kernels.rows import repack

for k in (32, 160, 1024, 1120):
    raw = np.random.default_rng(k).integers(0, 256, (3, count_row_bytes("{TYPE}", k)), np.uint8)
    assert (repack.unpack("{TYPE}", repack.pack("{TYPE}", raw), 3, k) == raw).all()
"""
TESTED = f"""
from zinc_rt.validate.kernel_test.command import main

words = [word for case in {CASES} for word in ("--case", case + " dtype={TYPE}")]
raise SystemExit(main(["--tier", "t1", "--device", "sim", "--jobs", "1", *words]))
"""

IN_A_MODEL = f"""
from pathlib import Path
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.kernels.rows.expand import list_expanded_types
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.model.gguf import read_gguf

write_tiny("m.gguf", "qwen3", quant="{TYPE}", layers=1)
logits = []
for tier, device in (("t_cpu", "auto"), ("t1", "sim")):
    backend = open_backend(choose_tier(tier, device), "canonical-1", threads=1)
    with Engine(read_gguf(Path("m.gguf")), backend) as engine:
        weights = engine.model.weights.values()
        logits.append(engine.forward([3, 1, 4, 1, 5]))
assert any(weight.dtype == "{TYPE}" for weight in weights)
assert not list_expanded_types(find_kernel_set("gfx1201").expansions, weights)
assert logits[0].any() and logits[0].tobytes() == logits[1].tobytes()
"""


@pytest.fixture(scope="module")
def extended_tree(tmp_path_factory: pytest.TempPathFactory) -> ExtendedTree:
    return extend_tree(SECTION, tmp_path_factory.mktemp("weight_type"))


def test_weight_type_is_new_to_gfx1201_and_known_to_the_cpu() -> None:
    assert TYPE not in repack.WEIGHT_TYPES
    assert TYPE in list_dtypes()


def test_weight_type_touches_two_files(extended_tree: ExtendedTree) -> None:
    assert [Path(file).name for file in extended_tree.files] == ["weights.inc", "repack.py"]


def test_repacking_is_lossless(extended_tree: ExtendedTree) -> None:
    result = extended_tree.interpreter_in("-c", REPACKED)
    assert result.returncode == 0, result.stderr


@pytest.mark.rest
@pytest.mark.skipif(not is_available(), reason='no assembler: extra "asm" is not installed')
def test_kernels_match_the_oracle_bits(extended_tree: ExtendedTree) -> None:
    built = extended_tree.interpreter_in("-m", "zinc_rt.cli.asm", "--all")
    assert built.returncode == 0, built.stderr
    result = {path.stem for path in (extended_tree.root / "zinc_rt/kernels/gfx1201/built").glob(f"*_{TYPE}.zrt")}
    uses = "norm", "parts", "glu", "glu_norm", "glu_routed", "gated", "rope", "expert_sum"
    products = [
        f"{name}_{halves}" for name in ("matmul_wmma", "matmul_wmma_experts") for halves in ("f16", "bf16")
    ]
    matvecs = ("matvec", *(f"matvec_{use}" for use in uses))
    assert result == {f"{family}_{TYPE}" for family in ("embed", "matmul", *products, *matvecs)}
    done = extended_tree.interpreter_in("-c", TESTED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"by {kernel}" in done.stdout or f", {kernel}" in done.stdout for kernel in result), done.stdout
    done = extended_tree.interpreter_in("-c", IN_A_MODEL)
    assert done.returncode == 0, done.stderr
