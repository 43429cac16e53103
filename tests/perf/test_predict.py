"""Prediction: a figure from the lowered graph, its devices and its assumptions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.facts import Fact
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.predict import devices
from zinc_rt.perf.predict.devices import CASES, load_table, read_table
from zinc_rt.perf.predict.host_experts import place_host_experts
from zinc_rt.perf.predict.roofline import compute_parts, predict, value_changes
from zinc_rt.perf.predict.speculation import parse_acceptance, predict_speculation
from zinc_rt.perf.predict.token_work import TokenWork, compute_work
from zinc_rt.perf.synthetic import SHAPES, write_synthetic

R9700 = load_table().device("R9700")


@pytest.fixture(scope="module")
def model_work() -> TokenWork:
    return compute_work(read_gguf(FOLDER / "qwen35moe-q.gguf"), ctx=256, position=100)


def test_bandwidth_follows_from_bus_width_and_data_rate() -> None:
    result = {key: row.memory_gbps for key, row in load_table().devices.items()}
    assert result == {
        "R9700": 640,
        "R9700 sustained": 640,
        "RX 9070 XT": 640,
        "RX 9070": 640,
        "7900 XTX": 960,
        "Strix Halo": 256,
    }
    assert all(row.source for row in load_table().devices.values())


def test_work_is_computed_from_the_graph(model_work: TokenWork) -> None:
    """Dispatch by dispatch it adds up to the whole."""
    assert sum(item.read_bytes for item in model_work.each) == model_work.read_bytes > 0
    assert sum(item.written_bytes for item in model_work.each) == model_work.written_bytes > 0
    assert len(model_work.each) == model_work.dispatches
    with Engine(read_gguf(FOLDER / "qwen35moe-q.gguf"), CpuBackend("canonical-1"), ctx=256) as engine:
        plain = [node.label for node in engine.graph("decode").nodes if node.op.name != "BARRIER"]
    names = {label for item in model_work.each for label in item.labels}
    assert len(names) < len(plain) and names <= {*plain, "record", "stream_out"}
    assert all(item.issued > 0 for item in model_work.each)


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1151"])
@pytest.mark.rest(keep=1)
def test_gfx11_has_the_dispatches_of_gfx12_and_counts_its_own_instructions(
    chip: str, model_work: TokenWork
) -> None:
    other = compute_work(read_gguf(FOLDER / "qwen35moe-q.gguf"), ctx=256, position=100, arch=chip)
    table = load_table()
    for here, there in zip(model_work.each, other.each, strict=True):
        assert (here.kernel, here.grid, here.read_bytes) == (there.kernel, there.grid, there.read_bytes)
        assert there.waves.load_bytes == here.waves.load_bytes, here.kernel
        assert there.waves.store_bytes == here.waves.store_bytes, here.kernel
    assert other.arch == "gfx1100" and other.barriers == model_work.barriers
    salu, of_gfx12 = (sum(item.waves.units["salu"] for item in work.each) for work in (other, model_work))
    assert salu > of_gfx12
    assert not any("kernels" in note for note in predict(other, table.device("7900 XTX"), table).notes)
    notes = predict(model_work, table.device("7900 XTX"), table).notes
    assert "dispatches and instructions are those of gfx1201's kernels, not of gfx1100's" in notes


def test_later_positions_read_more_keys(model_work: TokenWork) -> None:
    later = compute_work(read_gguf(FOLDER / "qwen35moe-q.gguf"), ctx=256, position=200)
    assert later.read_bytes > model_work.read_bytes and later.dispatches == model_work.dispatches


def test_smaller_caches_take_their_share_of_the_bytes() -> None:
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    plain, f16, q8_0 = (compute_work(gguf, ctx=256, position=200, kv_type=kind) for kind in ("f32", "f16", "q8_0"))
    read = [sum(row.read_bytes for row in work.traffic if row.kind == "kv") for work in (plain, f16, q8_0)]
    assert read == [read[0], read[0] / 2, read[0] * 34 / 128] and read[0] > 0
    assert "flash_attn_128_q8_0" in q8_0.kernels and q8_0.moved_bytes < f16.moved_bytes < plain.moved_bytes


@pytest.mark.rest
def test_8_bit_activations_cost_dispatches_but_no_bytes(model_work: TokenWork) -> None:
    q8 = compute_work(read_gguf(FOLDER / "qwen35moe-q.gguf"), ctx=256, position=100, ordering="canonical-1-q8")
    assert q8.dispatches > model_work.dispatches and q8.read_bytes == model_work.read_bytes
    assert any(name.startswith("quantise_") for name in q8.kernels)


@pytest.mark.parametrize("tokens", [1, 16])
def test_no_speed_exceeds_the_limits_of_the_card(tokens: int) -> None:
    """Bytes at the specified bandwidth, operations at the specified rate: in every case, on every device."""
    work = compute_work(read_gguf(FOLDER / "qwen35moe-q.gguf"), ctx=256, position=100, tokens=tokens)
    flops = sum(item.waves.vector_flops for item in work.each)
    for device in load_table().devices.values():
        result = predict(work, device, load_table())
        speeds = [result.case_speed(case) for case in CASES]
        assert speeds == sorted(speeds) and speeds[-1] < min(result.ceiling, result.flops_ceiling)
        assert flops / tokens * speeds[-1] < device.tera_ops("f32") * 1e12
        assert work.moved_bytes / tokens * speeds[-1] < device.memory_gbps * 1e9


def test_peak_operations_are_the_makers_figures() -> None:
    """TFLOPS and TOPS of the product pages of amd.com."""
    pages = {"R9700": (47.8, 191, 383), "7900 XTX": (61.4, 123, 123)}
    for key, figures in pages.items():
        row = load_table().device(key)
        assert [row.tera_ops(kind) for kind in ("f32", "f16", "iu8")] == pytest.approx(figures, rel=0.01)


def test_a_prompt_of_an_8b_model_stays_below_the_peak(tmp_path: Path) -> None:
    """2 operations a weight and token: what 45,638 tok/s once exceeded three times over."""
    path = write_synthetic(tmp_path / "m.gguf", SHAPES["qwen3-0.6b-q8_0"], header_only=True)
    work = compute_work(read_gguf(str(path)), ctx=1024, position=127, tokens=128)
    speed = predict(work, R9700, load_table()).case_speed("optimistic")
    assert 2 * 0.44e9 * speed < R9700.tera_ops("f32") * 1e12


def test_experts_are_read_once_however_many_tokens_choose_them() -> None:
    gguf = read_gguf(FOLDER / "qwen35moe-q.gguf")
    read = []
    for tokens in (1, 2, 64):
        work = compute_work(gguf, ctx=256, position=200, tokens=tokens)
        read.append(sum(row.read_bytes for row in work.traffic if "exps" in row.name))
    assert read[0] < read[1] < 2 * read[0] and read[2] < 64 * read[0]


def test_slots_share_the_weights() -> None:
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    one, four = (compute_work(gguf, ctx=256, position=100, sequences=slots) for slots in (1, 4))
    kv, weights = (
        [sum(row.read_bytes for row in item.traffic if row.kind == kind) for item in (one, four)]
        for kind in ("kv", "weight")
    )
    assert four.tokens == 4 and kv[1] == 4 * kv[0] and weights[1] < 1.1 * weights[0]


def test_host_reads_only_ring_entry_cursor_and_flag(model_work: TokenWork) -> None:
    assert model_work.readback_bytes == 16 + 4 + 4 and model_work.logits_bytes == 4 * 512
    likely = load_table().case("likely")
    assert predict(model_work, R9700, load_table()).likely == compute_parts(model_work, R9700, likely)
    assert compute_parts(model_work, R9700, likely).readback == pytest.approx(24 / 100e6)
    logits = compute_parts(model_work, R9700, likely, reads_logits=True)
    assert logits.readback == pytest.approx((24 + 4 * 512) / 100e6)
    other = logits.as_dict() | {"readback": compute_parts(model_work, R9700, likely).readback}
    assert other == compute_parts(model_work, R9700, likely).as_dict()


def test_only_discrete_card_pays_for_readback(model_work: TokenWork) -> None:
    for reads_logits in (False, True):
        readback = {
            key: compute_parts(model_work, row, load_table().case("likely"), reads_logits=reads_logits).readback
            for key, row in load_table().devices.items()
        }
        assert readback["R9700"] > 0 and readback["Strix Halo"] == 0


def test_changes_never_slow_down_the_prediction(model_work: TokenWork) -> None:
    changes = value_changes(model_work, R9700, load_table())
    assert [change.milestone for change in changes] == ["M1", "M2", "M4", "M5"]
    assert all(change.after >= change.before for change in changes)
    assert changes[0].after > changes[0].before * 1.5, "122 submissions against one"
    assert changes[1].after > changes[1].before, "logits against an entry of the ring"
    assert changes[-1].after > changes[-1].before


def test_prediction_includes_changes_made_so_far(model_work: TokenWork) -> None:
    assert value_changes(model_work, R9700, load_table())[1].after == pytest.approx(
        predict(model_work, R9700, load_table()).case_speed("likely")
    )


def test_unknown_device_lists_known_ones() -> None:
    with pytest.raises(UsageError, match="Strix Halo"):
        load_table().device("RTX 5090")


@pytest.mark.parametrize("value", [[30.0], None, "fast"])
def test_assumption_has_three_figures(value: object) -> None:
    row = Fact("submit_us", "says", "assumed", "where", value, marks=devices.PREDICTION)
    with pytest.raises(InputError, match="submit_us"):
        devices.parse_assumption(row)


@pytest.mark.parametrize(
    ("original", "replacement"),
    [("bus_bits: 256", "bus_bits: 0"), ("zinc-rt-devices/1", "2")],
)
def test_invalid_table_is_rejected(original: str, replacement: str, tmp_path: Path) -> None:
    spoilt = tmp_path / "devices.yaml"
    spoilt.write_text(devices.FILE.read_text().replace(original, replacement, 1))
    with pytest.raises(InputError):
        read_table(spoilt)


def test_experts_exceeding_vram_stay_on_host_and_cost_link_time(model_work: TokenWork) -> None:
    whole = sum(model_work.weights.sizes.values())
    layers = model_work.weights.layers
    assert (
        layers
        and place_host_experts(model_work.weights, R9700, "auto", read_efficiency=0.8).residency.vram_bytes
        == whole
    )
    every = place_host_experts(model_work.weights, R9700, "gtt", read_efficiency=0.8)
    assert every.residency.layers == tuple(layer.layer for layer in layers)
    link = 32e9 * 16 * 128 / 130 / 8  # PCIe 5.0 x16, bytes a second
    read = every.residency.token_bytes
    assert every.seconds == pytest.approx(read / link) and 0 < read < every.residency.host_bytes
    assert every.extra == pytest.approx(read / link - read / (640e9 * 0.8))
    unified = place_host_experts(model_work.weights, load_table().device("Strix Halo"), "gtt", read_efficiency=0.8)
    assert not unified.residency.host and unified.extra == 0
    with pytest.raises(InputError, match="must be in VRAM"):
        place_host_experts(model_work.weights, replace(R9700, memory_gb=whole / 2e9), "vram", read_efficiency=0.8)


def test_speculation_divides_expected_tokens_by_the_time_of_its_rows() -> None:
    gguf, known = read_gguf(FOLDER / "qwen3-q.gguf"), load_table()
    options: dict[str, Any] = {"ctx": 256, "position": 100, "ordering": "canonical-1"}
    (three,) = predict_speculation(gguf, R9700, known, 0.7, 3, **options)
    assert three.tokens == 4 and three.expected == pytest.approx(1 + 0.7 + 0.49 + 0.343)
    plain = predict(compute_work(gguf, ctx=256, position=100), R9700, known)
    for case in CASES:
        assert three.gain[case] == pytest.approx(three.expected * plain.cases[case].seconds / three.seconds[case])
    (never,) = predict_speculation(gguf, R9700, known, 0.0, 3, **options)
    assert never.gain["likely"] < 1 and never.seconds == three.seconds


def test_recurrent_state_needs_tokens_again() -> None:
    gguf, known = read_gguf(FOLDER / "qwen35moe-q.gguf"), load_table()
    rows = [
        predict_speculation(gguf, R9700, known, p, 3, ctx=256, position=100, ordering="canonical-1")[0]
        for p in (1.0, 0.7)
    ]
    assert [row.tokens for row in rows] == [4, 4] and rows[0].expected == 4
    assert rows[1].expected == pytest.approx((2.533 + 0.3 * (2.19 + 1.7 + 1)) / 1.9)


def test_drafts_by_the_files_own_layer_cost_its_time(tmp_path: Path) -> None:
    known, rows = load_table(), {}
    for mtp in (None, 1):
        write_tiny(tmp_path / f"{mtp}.gguf", "qwen35", mtp=mtp)
        gguf = read_gguf(tmp_path / f"{mtp}.gguf")
        (rows[mtp],) = predict_speculation(
            gguf, R9700, known, 1.0, 2, ctx=256, position=100, ordering="canonical-1"
        )
    assert not rows[None].draft_seconds
    for case, draft in rows[1].draft_seconds.items():
        assert 0 < draft < rows[None].seconds[case] < rows[1].seconds[case] - 2 * draft


@pytest.mark.parametrize("text", ["", "a", "1.5", "-0.1", "nan", "0.7:0", "0.7:9", "0.7:x"])
def test_unusable_acceptance_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected P\[:K\]"):
        parse_acceptance(text)
