"""zinc-rt golden diff, and goldens that keep digests: two that agree, and each way in which two do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.golden.digests import digest_array
from zinc_rt.golden.format import read_golden
from zinc_rt.validate.goldens.command import main


@pytest.fixture(scope="module")
def golden_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its golden with values, a golden in another ordering, and a golden with digests."""
    folder = tmp_path_factory.mktemp("diff")
    model = folder / "m.gguf"
    assert main(["make", "--tiny", "qwen3moe", "--seed", "3", "-o", str(model)]) == 0
    line = ["make", "--model", str(model), "--tokens", "5,17,300", "--steps", "2", "--nodes", "attn_norm-*"]
    assert main([*line, "-o", str(folder / "value.npz")]) == 0
    assert main([*line, "--ordering", "float32-dequant", "-o", str(folder / "blas.npz")]) == 0
    assert main([*line, "--tier", "t_cpu_native", "--digests", "-o", str(folder / "digest.npz")]) == 0
    return folder


def change_golden(
    golden: Path, name: str = "changed.npz", meta: dict[str, Any] | None = None, **arrays: Any
) -> Path:
    with np.load(golden) as archive:
        kept = {label: archive[label] for label in archive.files}
    about = json.loads(str(kept["meta"])) | (meta or {})
    kept |= {
        label.replace("__", "-"): change(kept[label.replace("__", "-")].copy()) for label, change in arrays.items()
    }
    path = golden.with_name(name)
    np.savez(path, **{**kept, "meta": np.array(json.dumps(about))})  # type: ignore[arg-type]
    return path


def next_array(*index: int) -> Any:
    def next_value(array: np.ndarray) -> np.ndarray:
        array[index] = np.nextafter(array[index], np.float32(np.inf))
        return array

    return next_value


def run_diff(capsys: Any, got: Path, want: Path, *more: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Return the exit code, the results by name and the output."""
    capsys.readouterr()
    report = got.with_name("diff.json")
    code = main(["diff", str(got), str(want), "--json", str(report), *more])
    results = json.loads(report.read_text())["results"] if code in (0, 1, 77) else []
    return code, {result["id"].rpartition("/")[2]: result for result in results}, capsys.readouterr().out


def test_one_ordering_on_two_tiers_has_equal_digests(golden_folder: Path, capsys: Any) -> None:
    code, results, output = run_diff(capsys, golden_folder / "value.npz", golden_folder / "digest.npz")
    assert code == 0 and output.splitlines()[-1] == "PASS  4 compared, each to the bit"
    assert results["digests"]["measure"] == {"compared": 9, "differ": []}
    assert results["l_out-0"]["status"] == "skip"


def test_digest_golden_is_small_and_checked_completely(golden_folder: Path, capsys: Any) -> None:
    golden = read_golden(golden_folder / "digest.npz")
    assert golden.logits.shape == (1, 512) and golden.l_out is None and golden.source == "zinc-rt t_cpu_native"
    assert golden.meta["device"]["arch"] and golden.rows is not None and golden.rows.tolist() == [2]
    labels = {"l_out-0", "l_out-1", "ffn_moe_topk-0", "attn_norm-1", "result_norm", "logits", "greedy_logits"}
    assert labels <= golden.digests.keys()
    assert golden.digests["logits"] == digest_array(read_golden(golden_folder / "value.npz").logits)
    assert main(["check", str(golden_folder / "digest.npz")]) == 0
    wrong = change_golden(golden_folder / "digest.npz", meta={"digests": {**golden.digests, "l_out-1": "0" * 32}})
    capsys.readouterr()
    assert main(["check", str(wrong)]) == 1
    assert "node l_out-1" in capsys.readouterr().out


def test_different_orderings_are_compared_with_a_tolerance(golden_folder: Path, capsys: Any) -> None:
    code, results, output = run_diff(capsys, golden_folder / "value.npz", golden_folder / "blas.npz")
    assert code == 0 and output.splitlines()[-1].endswith("compared, each within its limit")
    assert "digests" not in results and results["logits"]["limit"]["rel_rms"] == 1e-3


def test_first_differing_element_is_named(golden_folder: Path, capsys: Any) -> None:
    wrong = change_golden(
        golden_folder / "value.npz",
        l_out=next_array(1, 2, 5),
        attn_norm__1=next_array(0, 3),
        logits=next_array(2, 9),
    )
    code, results, output = run_diff(capsys, wrong, golden_folder / "value.npz")
    assert code == 1 and output.splitlines()[-1] == "FAIL  3 of 12 differ, first attn_norm-1"
    assert results["l_out-1"]["first_bad"]["token"] == 2 and results["l_out-1"]["first_bad"]["dim"] == 5
    assert results["logits"]["measure"]["max_ulp"] == 1 and results["l_out-0"]["status"] == "pass"
    pair = output.splitlines()[-2].split()
    assert pair[:3] == ["changed.npz", "value.npz", "FAIL"] and pair[3].startswith("-2^")


def test_only_common_rows_are_compared(golden_folder: Path, capsys: Any) -> None:
    wrong = change_golden(golden_folder / "value.npz", logits=next_array(2, 9))
    code, results, _ = run_diff(capsys, wrong, golden_folder / "digest.npz")
    assert code == 1 and results["logits"]["first_bad"]["token"] == 2
    wrong = change_golden(golden_folder / "value.npz", logits=next_array(1, 9))
    code, results, _ = run_diff(capsys, wrong, golden_folder / "digest.npz")
    assert results["logits"]["status"] == "pass"


def test_different_models_or_prompts_stop_the_comparison(golden_folder: Path, capsys: Any) -> None:
    other = change_golden(golden_folder / "value.npz", meta={"model_digest": "f" * 64})
    code, results, output = run_diff(capsys, other, golden_folder / "value.npz")
    assert code == 1 and list(results) == ["model", "ids"] and "two models: ffffffffffff and " in output
    other = change_golden(golden_folder / "value.npz", ids=lambda ids: np.where(ids == 17, 18, ids))
    code, results, output = run_diff(capsys, other, golden_folder / "value.npz")
    assert code == 1 and results["ids"]["first_bad"] == {"token": 1} and "two prompts" in output


def test_invalid_golden_is_unusable(golden_folder: Path, capsys: Any) -> None:
    assert main(["diff", str(golden_folder / "m.gguf"), str(golden_folder / "value.npz")]) == 2
    assert "not a readable golden" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tier", "nonsense"], "unknown tier 'nonsense'"),
        (["--tier", "t1", "--device", "cpu"], "--device cpu supports"),
        (["--sanitizer", "full"], "--sanitizer needs a simulated device"),
    ],
)
def test_unusable_tier_reports_the_reason(
    options: list[str], message: str, golden_folder: Path, capsys: Any
) -> None:
    out = golden_folder / "never.npz"
    assert (
        main(["make", "--model", str(golden_folder / "m.gguf"), "--tokens", "1,2", *options, "-o", str(out)]) == 2
    )
    assert message in capsys.readouterr().err and not out.exists()
