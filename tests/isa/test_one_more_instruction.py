"""An instruction is a row and what it computes: docs/extending.md's is decoded, linted, reported and run."""

from __future__ import annotations

from pathlib import Path

import pytest
from extending import ExtendedTree, extend_tree

SECTION, NAME = "An instruction", "v_add_max_u32"
USED = f"""
import numpy as np

from zinc_rt.isa import decode, decode_stream, target_of
from zinc_rt.isa.lint import Limits, lint
from zinc_rt.isa.report import make_kernel_report
from zinc_rt.sim.shader.run.engine_device import EngineDevice

target = target_of("gfx1201")
words = [
    0x360000FF, 0x3FF,                   # v_and_b32_e32 v0, 0x3ff, v0
    0xD65F0001, 5 + 128 << 18 | 3 + 128 << 9 | 256,  # v_add_max_u32 v1, v0, 3, 5
    0x30040082,                          # v_lshlrev_b32_e32 v2, 2, v0
    0xEE068000, 1 << 23, 2,              # global_store_b32 v2, v1, s[0:1]
    0xBFB00000,                          # s_endpgm
]
code = b"".join(word.to_bytes(4, "little") for word in words)
made = [item.instruction for item in decode_stream(code, target)]
assert made[1].text == "{NAME} v1, v0, 3, 5", made[1].text
assert decode(code[8:16], 0, target_of("gfx1100")).row.name != "{NAME}"
assert made[1].row.unit == "valu" and made[1].row.reads == ("exec",)
assert not lint(code, target, Limits(vgprs=8, sgprs=16, entry_sgprs=2))
assert make_kernel_report(code, target).mix["valu"] == 3
out = np.zeros(32, np.uint32)
device = EngineDevice()
va = device.place(out, "out", initialised=False)
assert not device.run(code, user_data=(va & 0xFFFFFFFF, va >> 32))
assert (out == np.maximum(np.arange(32) + 3, 5)).all(), out
"""


@pytest.fixture(scope="module")
def extended_tree(tmp_path_factory: pytest.TempPathFactory) -> ExtendedTree:
    return extend_tree(SECTION, tmp_path_factory.mktemp("instruction"))


def test_new_instruction_is_a_row_and_a_meaning(extended_tree: ExtendedTree) -> None:
    assert [Path(file).name for file in extended_tree.files] == ["vector.py", "vector_integer.py"]


@pytest.mark.rest
def test_all_tools_recognise_new_instruction_by_its_row(extended_tree: ExtendedTree) -> None:
    result = extended_tree.interpreter_in("-c", USED)
    assert result.returncode == 0, result.stderr
