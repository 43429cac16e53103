"""Every shared golden: logits, residual stream, routing and continuation are llama.cpp's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from goldens import (
    QUANTISED,
    SECOND_STEMS,
    STEMS,
    TRACED,
    Golden,
    Values,
    find_golden_model,
    make_collector,
    read_golden,
)

GREEDY = 8
# Named values that the six traces and our graphs have in common today; fewer means a label went astray.
LEAST_COMPARED = {
    "deepseek2": 52,
    "deepseek2lite": 58,
    "gptoss": 22,
    "jamba": 24,
    "gemma4": 123,
    "gemma4moe": 86,
    "mamba": 9,
    "qwen35moe": 90,
}


@pytest.fixture(params=(*STEMS, *SECOND_STEMS))
def golden_trace(request: pytest.FixtureRequest, data_dir: Path) -> Golden:
    return read_golden(data_dir, request.param)


def largest_error(got: np.ndarray, want: np.ndarray) -> float:
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    assert np.abs(want).max() > 0.1, "an all but zero golden would prove nothing"
    return float(np.abs(got.astype(np.float64) - want).max())


def test_folder_holds_exactly_the_listed_goldens(data_dir: Path) -> None:
    assert sorted(STEMS) == sorted(file.stem for file in (data_dir / "goldens").glob("*.gguf"))


@pytest.mark.parametrize("ordering", ["canonical-1", "float32-dequant"])
@pytest.mark.rest(keep=17)
def test_logits_and_residual_stream_match_llama_cpp(golden_trace: Golden, ordering: str) -> None:
    seen: Values = {}
    with golden_trace.engine(ordering) as engine:
        logits = engine.forward(golden_trace.ids, tap=make_collector(seen))
    away = largest_error(logits[golden_trace.rows], golden_trace.exact("logits"))
    wanted = golden_trace.exact("l_out")
    ours = np.stack([seen[f"l_out-{layer}"][golden_trace.rows] for layer in range(len(wanted))])
    stream_away = largest_error(ours, wanted)
    print(
        f"{golden_trace.stem} {ordering}: logits {away:.1e}, l_out {stream_away:.1e} of {np.abs(wanted).max():.0f}"
    )
    assert away <= golden_trace.error_limit
    # Nothing norms the stream: mamba's reaches hundreds, where float32 itself is coarser.
    assert stream_away <= max(golden_trace.error_limit, 2**-17 * float(np.abs(wanted).max()))
    if golden_trace.is_plain:
        assert (
            largest_error(seen["result_norm"][golden_trace.rows], golden_trace.arrays["result_norm"])
            <= golden_trace.error_limit
        )


@pytest.mark.rest(keep=5)
def test_greedy_continuation_matches_llama_cpp(golden_trace: Golden) -> None:
    wanted = golden_trace.exact("greedy_tokens")
    assert len(wanted) == GREEDY
    with golden_trace.engine() as engine:
        sequence = engine.open()
        logits = engine.extend(sequence, golden_trace.ids, rows="last")
        tokens = []
        for _ in range(GREEDY):
            tokens.append(int(logits[-1].argmax()))
            logits = engine.extend(sequence, tokens[-1:], rows="last")
    assert tokens == wanted.tolist()


@pytest.mark.parametrize("stem", [stem for stem in (*STEMS, *SECOND_STEMS) if stem.endswith("-f32")])
@pytest.mark.rest(keep=14)
def test_router_choices_match_llama_cpp_in_order(stem: str, data_dir: Path) -> None:
    golden = read_golden(data_dir, stem)  # the -q files have them of llama.cpp's quantised path only
    routed = [name for name in golden.arrays if name.startswith("ffn_moe_topk-")]
    seen: Values = {}
    with golden.engine() as engine:
        engine.forward(golden.ids, tap=make_collector(seen))
    assert sorted(routed) == sorted(name for name in seen if name.startswith("ffn_moe_topk-"))
    for name in routed:
        assert np.array_equal(seen[name], golden.arrays[name]), name
        assert len(np.unique(seen[name])) > 2


@pytest.mark.parametrize("stem", QUANTISED)
@pytest.mark.rest(keep=10)
def test_quantised_activations_are_as_close_as_llama_cpp_is_to_itself(stem: str, data_dir: Path) -> None:
    golden = read_golden(data_dir, stem)
    with golden.engine("canonical-1-q8") as engine:
        logits = engine.forward(golden.ids)
    quantised, dequantised = golden.arrays["logits"], golden.arrays["logits_deq"]
    away = float(np.median(np.abs(logits - quantised).max(axis=1)))
    between = float(np.median(np.abs(quantised - dequantised).max(axis=1)))
    print(
        f"{stem}: median distance {away:.3f} to llama.cpp's quantised path, itself {between:.3f} from dequantised"
    )
    assert between > 0.05
    assert away <= 1.5 * between + 0.1


@pytest.mark.parametrize("structure", TRACED)
def test_values_named_by_both_sides_match(structure: str, data_dir: Path) -> None:
    golden = read_golden(data_dir, f"{structure}-f32")
    seen: Values = {}
    with golden.engine() as engine:
        engine.forward(golden.ids, tap=make_collector(seen))
    theirs: dict[str, list[np.ndarray]] = {}
    with np.load(find_golden_model(data_dir, f"{structure}-f32").with_suffix(".trace.npz")) as trace:
        for key in trace.files:
            theirs.setdefault(key.partition("#")[0].lower(), []).append(trace[key])
    parted, compared = {}, 0
    for label in seen:
        name, ours = match_named_value(golden, label, seen)
        named = theirs.get(name.lower())
        if named is None:
            continue
        over = [error_beyond_rounding(ours, value) for value in named if value.size == ours.size]
        assert over, f"{label}: ours has {ours.shape}, theirs {[value.shape for value in named]}"
        compared += 1
        if min(over) > 0:
            parted[label] = min(over)
    print(f"{structure}: {compared} named values compared, {len(seen) - compared} are ours alone")
    assert not parted
    assert compared >= LEAST_COMPARED[structure]


def match_named_value(golden: Golden, label: str, seen: Values) -> tuple[str, np.ndarray]:
    """Return llama.cpp's name of one of our values, and the value that it has by that name. In gpt-oss it names
    projections before their bias, and we name queries and keys after RoPE, which it does not name; in jamba its
    "ffn_inp" is the mixer's result without the residual."""
    value, (stem, _, layer) = seen[label], label.partition("-")
    if golden.stem.startswith("gptoss") and stem in ("Qcur", "Kcur"):
        return "", value
    if golden.stem.startswith("gptoss") and stem == "Vcur":
        return label, value - golden.model.tensors[f"blk.{layer}.attn_v.bias"].data
    if golden.stem.startswith("gptoss") and stem in ("ffn_moe_gate", "ffn_moe_up"):
        return f"{stem}_biased-{layer}", value
    if golden.stem.startswith("jamba") and stem == "ffn_inp":
        return label, value - (seen[f"l_out-{int(layer) - 1}"] if int(layer) else seen["embd"])
    return label, value


def error_beyond_rounding(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the largest difference beyond the trace's own float16 rounding; negative if they agree."""
    value = theirs.astype(np.float64).reshape(-1)
    return float((np.abs(ours.reshape(-1) - value) - (2**-10 * np.abs(value) + 1e-3)).max())
