"""The back-test: committed figures are reproduced, an independent derivation agrees, bad rows are rejected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from zinc_rt.host.errors import InputError
from zinc_rt.perf.command import main
from zinc_rt.perf.predict.backtest import (
    backtest,
    find_device,
    fit_bandwidth_baseline,
    read_rows,
    summarise_errors,
)
from zinc_rt.perf.predict.backtest_report import COMMITTED
from zinc_rt.perf.predict.llama_cpp import (
    FOLDER,
    BackendConstants,
    BenchRow,
    find_shape,
    load_constants,
    predict_speed,
)

ROW = BenchRow("gfx1201 R9700", "llama 7B Q4_0", 3.56 * 2**30, 6.74e9, "ROCm", "tg", 128, 0, 103.62, "")
ONE = BackendConstants(
    read_efficiency=0.5, instructions_a_weight=0.0, kernel_us=0.0, cache_efficiency=1.0, repeated_keys=0.0,
    matrix_share=0.5, attention_share=1.0, tile=0.0,
)  # fmt: skip


def test_committed_constants_give_the_committed_errors() -> None:
    rows = read_rows(COMMITTED)
    result = summarise_errors(backtest(rows, load_constants(), fit_bandwidth_baseline(rows)))
    assert {name: count for name, (count, *_) in result.items()} == {
        "decode dense": 18, "decode mixtures": 6, "prompts": 24,
    }  # fmt: skip
    assert result["decode dense"][1] == pytest.approx(0.026, abs=0.003)
    assert result["decode mixtures"][1] == pytest.approx(0.002, abs=0.003)
    assert result["prompts"][1] == pytest.approx(0.073, abs=0.01)
    assert result["decode dense"][2] == pytest.approx(0.140, abs=0.003)


def test_decode_time_matches_hand_computation() -> None:
    """The file without the embedding's rows, plus keys and values of 64 tokens in f16, at half of 640 GB/s."""
    share = 1 - 32000 * 4096 / 6.74e9
    weights = 3.56 * 2**30 * share / 320e9
    keys = 32 * 64 * 2 * 2 * 4096 / 640e9
    assert 1 / predict_speed(ROW, find_device(ROW.chip), ONE) == pytest.approx(weights + keys)


def test_repeated_keys_are_read_once_for_each_query_head() -> None:
    """Llama 3 8B has four query heads a key head: four times the keys of the same depth."""
    row = replace(ROW, model="llama 8B Q4_0", params=8.03e9, depth=16384)
    device, repeated = find_device(row.chip), replace(ONE, repeated_keys=1.0)
    once, often, near = (
        1 / predict_speed(replace(row, depth=depth), device, constants)
        for depth, constants in ((16384, ONE), (16384, repeated), (0, ONE))
    )
    keys = 32 * 2 * 2 * 8 * 128 / 640e9
    assert once - near == pytest.approx(keys * 16384)
    assert often - once == pytest.approx(3 * keys * (16384 + 64))


def test_kernels_of_an_architecture_are_counted() -> None:
    """26 pairs of blocks with 17 and 7 kernels, and 12 for each of 23 blocks of experts."""
    row = replace(ROW, model="nemotron_h_moe 31B.A3.5B Q4_K - Medium", params=31.58e9, size=21.3 * 2**30)
    device = find_device(row.chip)
    more = 1 / predict_speed(row, device, replace(ONE, kernel_us=1.0)) - 1 / predict_speed(row, device, ONE)
    assert more == pytest.approx((26 * 24 + 23 * 12) * 1e-6)


def test_prompt_time_matches_hand_computation() -> None:
    """Two operations a weight and token at half of the f16 rate; four a key, head and element at all of it."""
    row, device = replace(ROW, kind="pp", tokens=512), find_device(ROW.chip)
    peak = 64 * 1024 * 2.92e9
    products = 2 * (6.74e9 - 32000 * 4096) * 512 / (peak / 2)
    attention = 4 * 4096 * 32 * 256 * 512 / peak
    assert 512 / predict_speed(row, device, ONE) == pytest.approx(products + attention)


def test_no_prompt_exceeds_the_matrix_rate_and_no_token_the_bandwidth() -> None:
    for row in read_rows(COMMITTED):
        device = find_device(row.chip)
        speed = predict_speed(row, device, load_constants()[row.backend])
        shape = find_shape(row)
        read = row.size * (1 - shape.expert_weights * (1 - shape.expert_share) / row.params)
        if row.kind == "tg":
            assert speed * (read - row.size * shape.vocab * shape.width / row.params) < device.memory_gbps * 1e9
        else:
            assert speed * 2 * row.params * shape.expert_share < device.tera_ops("f16") * 1e12


def test_unknown_models_get_the_nearest_shape() -> None:
    dense = replace(ROW, model="newmodel 9B Q4_0", params=9e9)
    assert find_shape(dense).layers in range(30, 45)
    mixture = replace(ROW, model="newmoe 30B.A3B Q4_0", params=30e9, size=17 * 2**30)
    device = find_device(ROW.chip)
    assert predict_speed(mixture, device, load_constants()["ROCm"]) > 3 * predict_speed(
        replace(mixture, model="dense 30B Q4_0"), device, load_constants()["ROCm"]
    )


def test_longer_context_is_never_faster() -> None:
    for backend in load_constants().values():
        speeds = [
            predict_speed(replace(ROW, depth=depth, kind=kind), find_device(ROW.chip), backend)
            for kind in ("tg", "pp")
            for depth in (0, 4096, 32768)
        ]
        assert speeds[:3] == sorted(speeds[:3], reverse=True) and speeds[3:] == sorted(speeds[3:], reverse=True)


def test_command_prints_errors_of_each_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "b.json"
    assert main(["predict", "--backtest", str(FOLDER / "public_rows.csv"), "--json", str(out)]) == 0
    assert "decode dense" in capsys.readouterr().out
    assert len(json.loads(out.read_text())["details"]["backtest"]) == 6


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gfx1201 R9700,llama 7B Q4_0,3.56 GiB,6.74 B,ROCm,xx512,1,", "test 'xx512'"),
        ("gfx1201 R9700,llama 7B Q4_0,3.56 tons,6.74 B,ROCm,pp512,1,", "tons"),
        ("gfx1201 R9700,llama 7B Q4_0,3.56 GiB,6.74 B,ROCm,pp512,0,", "positive"),
    ],
)
def test_bad_row_is_rejected_with_its_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("chip,model,size,params,backend,test,tps_median,source\n" + line + "\n")
    with pytest.raises(InputError, match="rows.csv:2.*" + message):
        read_rows(path)


def test_unknown_chip_and_missing_column_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no row"):
        find_device("RTX 5090")
    path = tmp_path / "rows.csv"
    path.write_text("chip,model\n")
    with pytest.raises(InputError, match="missing columns size"):
        read_rows(path)
