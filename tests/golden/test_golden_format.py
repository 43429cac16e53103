"""What a golden file may look like, and how a bad one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.golden.format import read_golden, write_golden
from zinc_rt.host.errors import InputError, OutputError

ARRAYS = {
    "ids": np.array([3, 1, 2], np.int32),
    "logits": np.arange(15, dtype=np.float32).reshape(3, 5),
    "l_out": np.ones((2, 3, 4), np.float32),
    "greedy_tokens": np.array([4, 4], np.int32),
    "greedy_logits": np.ones((2, 5), np.float32),
    "result_norm": np.ones((3, 4), np.float32),
    "ffn_moe_topk-1": np.zeros((3, 2), np.int32),
    "attn_norm-0": np.ones((3, 4), np.float16),
    "Qcur-11": np.ones((3, 2, 8), np.float64),
}


def test_golden_round_trips(tmp_path: Path) -> None:
    write_golden(tmp_path / "g.npz", ARRAYS, {"source": "zinc-rt t_cpu", "ordering": "canonical-1"})
    golden = read_golden(tmp_path / "g.npz")
    assert golden.meta["format"] == 1
    assert golden.ordering == "canonical-1"
    assert np.array_equal(golden.logits, ARRAYS["logits"])
    assert golden.l_out is not None and golden.l_out.shape == (2, 3, 4)
    assert golden.greedy_logits is not None and golden.greedy_logits.shape == (2, 5)
    assert list(golden.experts) == [1]
    assert {name: (a.shape, a.dtype) for name, a in golden.nodes.items()} == {
        "result_norm": ((3, 4), np.float32),
        "attn_norm-0": ((3, 4), np.float32),
        "Qcur-11": ((3, 2, 8), np.float32),
    }


def test_only_ids_and_logits_are_required(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", ids=[1, 2], logits=np.ones((2, 9)), note="mine")
    golden = read_golden(tmp_path / "g.npz")
    assert (golden.l_out, golden.greedy_tokens, golden.greedy_logits, golden.nodes) == (None, None, None, {})
    assert golden.source == "unknown source"


def test_foreign_ordering_name_is_ignored(tmp_path: Path) -> None:
    write_golden(tmp_path / "g.npz", ARRAYS, {"source": "my engine", "ordering": "canonical-1"})
    assert read_golden(tmp_path / "g.npz").ordering == ""


def test_dequantised_values_take_precedence_without_mixing(tmp_path: Path) -> None:
    deq = {f"{name}_deq": ARRAYS[name] + 1 for name in ("logits", "l_out", "attn_norm-0")}
    write_golden(tmp_path / "g.npz", ARRAYS | deq, {})
    golden = read_golden(tmp_path / "g.npz")
    assert golden.variant == "_deq"
    assert np.array_equal(golden.logits, ARRAYS["logits"] + 1)
    assert golden.quantised is not None and np.array_equal(golden.quantised.logits, ARRAYS["logits"])
    assert golden.experts == {}, "those were chosen on the way to other logits"
    assert list(golden.nodes) == ["attn_norm-0"]
    assert float(golden.nodes["attn_norm-0"][0, 0]) == 2


def test_dequantised_run_keeps_separate_expert_choices(tmp_path: Path) -> None:
    deq = {"logits_deq": ARRAYS["logits"], "ffn_moe_topk-1_deq": ARRAYS["ffn_moe_topk-1"] + 7}
    write_golden(tmp_path / "g.npz", ARRAYS | deq, {})
    golden = read_golden(tmp_path / "g.npz")
    assert golden.experts[1].min() == 7
    assert golden.quantised is not None and golden.quantised.experts[1].max() == 0


def test_arrays_can_hold_a_subset_of_prompt_rows(tmp_path: Path) -> None:
    some = {name: ARRAYS[name][1:] for name in ("logits", "attn_norm-0", "ffn_moe_topk-1")}
    some |= {"rows": np.array([1, 2]), "l_out": ARRAYS["l_out"][:, 1:], "embd": np.ones((2, 4), np.float32)}
    write_golden(tmp_path / "g.npz", ARRAYS | some, {"nodes_without_layer": ["embd"]})
    golden = read_golden(tmp_path / "g.npz")
    assert golden.rows is not None and golden.rows.tolist() == [1, 2]
    assert golden.logits.shape == (2, 5) and golden.l_out is not None and golden.l_out.shape == (2, 2, 4)
    assert golden.nodes["attn_norm-0"].shape == (2, 4) and golden.nodes["Qcur-11"].shape == (3, 2, 8)
    assert golden.nodes["embd"].shape == (2, 4) and golden.experts[1].shape == (2, 2)


@pytest.mark.parametrize("rows", [[], [0, 1, 2], [2, 1], [1, 1], [-1, 0], [1, 3], [0.5], [[1]]])
def test_invalid_rows_are_rejected(rows: list[object], tmp_path: Path) -> None:
    write_golden(tmp_path / "g.npz", ARRAYS | {"rows": np.array(rows)}, {})
    with pytest.raises(InputError, match="rows"):
        read_golden(tmp_path / "g.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": None}, "array ids is missing"),
        ({"ids": np.array([["a"]])}, "array ids is <U1"),
        ({"logits": None}, "array logits is missing"),
        ({"logits": np.ones((2, 5))}, "3 ids, but logits for 2 positions"),
        ({"logits": np.ones(3)}, r"expected numbers in 2 dimensions"),
        ({"l_out": np.ones((2, 4, 4))}, r"l_out has shape \(2, 4, 4\)"),
        ({"greedy_logits": np.ones((3, 5))}, "greedy_logits has shape"),
        ({"greedy_tokens": None}, "greedy_logits has shape"),
        ({"attn_norm-0": np.ones((4, 4))}, r"attn_norm-0 is float64\[4, 4\], expected numbers in 3 rows"),
        (
            {"ffn_moe_topk-1": np.zeros((2, 2), np.int32)},
            r"ffn_moe_topk-1 has shape \(2, 2\), expected one row per token",
        ),
        ({"rows": np.array([0, 1]), "logits": np.ones((1, 5))}, "3 ids, but logits for 1 positions"),
        ({"meta": np.array("{")}, "meta is not JSON"),
        ({"meta": np.array("[]")}, "expected an object"),
    ],
)
def test_contradictory_arrays_are_rejected(
    change: dict[str, np.ndarray | None], message: str, tmp_path: Path
) -> None:
    arrays = {name: array for name, array in {**ARRAYS, **change}.items() if array is not None}
    np.savez(tmp_path / "g.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        read_golden(tmp_path / "g.npz")


def test_unsupported_version_is_reported_with_its_command(tmp_path: Path) -> None:
    meta = json.dumps({"format": 2, "command": "zinc-rt golden make --model M.gguf -o g.npz"})
    np.savez(tmp_path / "g.npz", **ARRAYS, meta=np.array(meta))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"golden format 2; this build reads 1\n.*--model M.gguf -o g.npz"):
        read_golden(tmp_path / "g.npz")


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_truncated_file_is_rejected(keep: int, tmp_path: Path) -> None:
    write_golden(tmp_path / "g.npz", ARRAYS, {})
    data = (tmp_path / "g.npz").read_bytes()
    (tmp_path / "g.npz").write_bytes(data[:keep])
    with pytest.raises(InputError, match="not a readable golden"):
        read_golden(tmp_path / "g.npz")


def test_missing_bare_and_pickled_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_golden(tmp_path / "g.npz")
    np.save(tmp_path / "bare.npy", np.ones(3))
    with pytest.raises(InputError, match="a single array"):
        read_golden(tmp_path / "bare.npy")
    np.savez(tmp_path / "objects.npz", ids=np.array([{}], object))
    with pytest.raises(InputError, match="not a readable golden"):
        read_golden(tmp_path / "objects.npz")


def test_golden_is_written_atomically(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        write_golden(tmp_path / "no folder" / "g.npz", ARRAYS, {})
    with pytest.raises(TypeError):
        write_golden(tmp_path / "g.npz", ARRAYS, {"source": object()})
    assert list(tmp_path.iterdir()) == []
