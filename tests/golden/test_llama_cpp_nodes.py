"""Which of llama.cpp's nodes stand for which of ours, where one name is given more than once."""

from __future__ import annotations

import numpy as np
import pytest

from zinc_rt.golden.llama_cpp.importing import NodeValue, list_expected_values, match_values
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.model.gguf import read_gguf


def make_rows(value: float, columns: int = 4) -> np.ndarray:
    return np.full((3, columns), value, np.float32)


def make_value(name: str, op: str, columns: int = 4) -> NodeValue:
    return NodeValue(name, name.replace(".matmul", ""), op, columns)


def test_duplicate_name_is_resolved_by_operation() -> None:
    seen = {
        "Qcur-0": [
            ("MUL_MAT", make_rows(1)),
            ("ADD", make_rows(2)),
            ("ROPE", make_rows(3)),
            ("SCALE", make_rows(4)),
        ]
    }
    ours = [make_value("Qcur.matmul-0", "MATMUL"), make_value("Qcur-0", "ROPE")]
    result, apart = match_values(ours, seen, 3, (0, 2))
    assert {name: (array[0, 0], array.shape) for name, array in result.items()} == {
        "Qcur.matmul-0": (2, (2, 4)),  # with its bias
        "Qcur-0": (3, (2, 4)),
    }
    assert apart == {"llama_cpp_only": [], "here_only": []}


def test_unmatched_values_of_both_sides_are_listed() -> None:
    seen = {
        "attn_norm-0": [("MUL", make_rows(1))],
        "ffn_up-0": [("MUL_MAT", make_rows(1, 8))],  # gate and up as one, where ours is half as wide
        "kq-0": [("MUL_MAT", make_rows(1))],
        "kq-0 (view)": [("VIEW", make_rows(1))],
        "node_7": [("ADD", make_rows(1))],
        "l_out-0": [("ADD", make_rows(1))],
        "one_token": [("ADD", make_rows(1)[:1])],
    }
    ours = [make_value(name, "ADD") for name in ("attn_norm-0", "ffn_up-0", "ffn_swiglu-0", "one_token")]
    result, apart = match_values(ours, seen, 3, (1,))
    assert list(result) == ["attn_norm-0"]
    assert apart["here_only"] == ["ffn_up-0", "ffn_swiglu-0", "one_token"]
    assert apart["llama_cpp_only"] == ["ffn_up-0", "kq-0", "one_token"]


@pytest.mark.parametrize(("kind", "least"), [("qwen3", 16), ("gemma4moe", 20)])
def test_local_values_use_the_names_of_validation(kind: str, least: int, tmp_path: object) -> None:
    write_tiny(f"{tmp_path}/m.gguf", kind)
    names = [value.name for value in list_expected_values(read_gguf(f"{tmp_path}/m.gguf"), 64)]
    assert len(names) == len(set(names)) and sum(name.endswith("-1") for name in names) >= least
    assert not [name for name in names if name.startswith(("l_out", "ffn_moe_topk", "result"))]
    if kind == "qwen3":
        assert {"Qcur.matmul-1", "Qcur-1", "kqv_out-1"} <= set(names)
