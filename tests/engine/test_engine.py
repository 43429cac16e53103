"""What the engine refuses, and how it says so: one sentence naming the thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine, format_ctx_warning
from zinc_rt.golden.tiny_models.quantize import find_ggml_type, quantize
from zinc_rt.golden.tiny_models.writer import build_tiny, write_tiny
from zinc_rt.host.errors import InputError, UnsupportedError, UsageError, ZincError
from zinc_rt.model.gguf import GGUFFile, read_gguf

VOCAB = 512


@pytest.fixture(scope="session")
def qwen35(tmp_path_factory: pytest.TempPathFactory) -> GGUFFile:
    path = tmp_path_factory.mktemp("engine") / "qwen35.gguf"
    write_tiny(path, "qwen35", hidden=32)
    return read_gguf(path)


@pytest.fixture
def engine(qwen35: GGUFFile) -> Iterator[Engine]:
    with Engine(qwen35, CpuBackend("canonical-1"), ctx=40, slots=2) as engine:
        yield engine


# --- requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [-1, VOCAB, 2**31])
def test_out_of_vocabulary_token_is_rejected(engine: Engine, token: int) -> None:
    with pytest.raises(UsageError, match=rf"token id {token} is outside the vocabulary of 512"):
        engine.forward([1, token, 2])
    assert engine.forward([1, 2]).shape == (2, VOCAB), "and the engine goes on"


def test_sequence_can_fill_but_not_exceed_its_context(engine: Engine) -> None:
    sequence = engine.open()
    engine.extend(sequence, [1] * 39, rows="last")
    with pytest.raises(UsageError, match=r"39 \+ 2 tokens do not fit the context of 40"):
        engine.extend(sequence, [2, 3])
    assert engine.extend(sequence, [2]).shape == (1, VOCAB), "a refusal moves nothing"
    with pytest.raises(UsageError, match=r"40 \+ 1 tokens do not fit the context of 40"):
        engine.extend(sequence, [3])
    with pytest.raises(UsageError, match=r"0 \+ 41 tokens"):
        engine.forward([1] * 41)


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_rewound_sequence_continues_as_a_new_one(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny(path, name)
    with Engine(read_gguf(path), CpuBackend("canonical-1"), ctx=40, slots=2) as engine:
        sequence = engine.open()
        engine.extend(sequence, range(5, 25), rows="last")
        assert engine.rewind(sequence, 17)
        assert sequence.tokens == list(range(5, 22))
        continued = engine.extend(sequence, [100, 101])
        assert np.array_equal(continued, engine.forward([*range(5, 22), 100, 101])[-2:])
        with pytest.raises(UsageError, match="position 20 is outside a sequence of 19 tokens"):
            engine.rewind(sequence, 20)


def test_recurrent_state_and_freed_pages_cannot_be_rewound(engine: Engine, tmp_path: Path) -> None:
    sequence = engine.open()
    engine.extend(sequence, [1, 2, 3], rows="last")
    assert not engine.rewind(sequence, 2)
    assert sequence.position == 3
    path = tmp_path / "gemma3.gguf"
    write_tiny(path, "gemma3")
    with Engine(read_gguf(path), CpuBackend("canonical-1"), ctx=200, slots=1) as windowed:
        window = max(spec.window for spec in windowed.page_groups)
        assert 0 < window < 100
        sequence = windowed.open()
        windowed.extend(sequence, range(1, 180), rows="last")
        assert not windowed.rewind(sequence, 100)
        assert windowed.rewind(sequence, 178)


def test_context_of_zero_selects_the_trained_length(qwen35: GGUFFile) -> None:
    with Engine(qwen35, CpuBackend("canonical-1"), ctx=0) as engine:
        assert engine.limits.ctx == 256


def test_negative_context_is_rejected(qwen35: GGUFFile) -> None:
    with pytest.raises(UsageError, match=r"--ctx -5: expected 0 \(the trained length\) to 256 tokens"):
        Engine(qwen35, CpuBackend("canonical-1"), ctx=-5)


@pytest.mark.rest
def test_context_beyond_training_length_warns(qwen35: GGUFFile) -> None:
    with Engine(qwen35, CpuBackend("canonical-1"), ctx=300) as engine:
        assert np.isfinite(engine.forward([1] * 300, rows="last")).all()
    assert "--ctx 300 exceeds the training context of 256 tokens" in format_ctx_warning(qwen35, 300)
    assert format_ctx_warning(qwen35, 256) == format_ctx_warning(qwen35, None) == ""


@pytest.mark.rest
def test_step_larger_than_largest_variant_is_rejected(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", "llama", hidden=32, layers=1, context=1200)
    with Engine(read_gguf(tmp_path / "m.gguf"), CpuBackend("canonical-1"), ctx=1200) as engine:
        sequence = engine.open()
        with pytest.raises(UsageError, match="a step accepts 1 to 512 tokens, not 513"):
            engine.step([(sequence, [1] * 513)], [0])
        assert sequence.position == 0
        parts = engine.extend(sequence, [1] * 513, rows="last")
        assert parts.shape == (1, VOCAB), "extend takes it in parts"


def test_empty_step_is_rejected(engine: Engine) -> None:
    with pytest.raises(UsageError, match="no tokens"):
        engine.forward([])
    with pytest.raises(UsageError, match="1 to 512 tokens, not 0"):
        engine.step([(engine.open(), [])], [])


def test_slots_are_exhausted_and_reused(engine: Engine) -> None:
    first, _ = engine.open(), engine.open()
    with pytest.raises(UsageError, match="all 2 slots are in use"):
        engine.open()
    engine.release(first)
    assert engine.open().slot == first.slot


def test_rejected_request_releases_its_slot(engine: Engine) -> None:
    for _ in range(3):
        with pytest.raises(UsageError):
            engine.forward([VOCAB])
    assert {engine.open().slot, engine.open().slot} == {0, 1}


def test_released_sequence_cannot_run(engine: Engine) -> None:
    sequence = engine.open()
    engine.extend(sequence, [1, 2])
    engine.release(sequence)
    newcomer = engine.open()
    for use in (lambda: engine.extend(sequence, [3]), lambda: engine.release(sequence)):
        with pytest.raises(UsageError, match="another sequence may be using slot 0"):
            use()
    assert engine.extend(newcomer, [1]).shape == (1, VOCAB)


def test_duplicate_sequence_in_a_step_is_rejected(engine: Engine) -> None:
    sequence = engine.open()
    with pytest.raises(UsageError, match="occurs twice"):
        engine.step([(sequence, [1]), (sequence, [2])], [0])


def test_sequence_without_tokens_has_no_effect(engine: Engine) -> None:
    busy, idle = engine.open(), engine.open()
    got = engine.step([(idle, []), (busy, [7])], [0])
    assert got.tobytes() == engine.step([(idle, [7])], [0]).tobytes()
    assert (busy.position, idle.position) == (1, 1)


@pytest.mark.parametrize(
    ("rows", "message"), [([2], "row 2"), ([-1], "row -1"), ([0] * 3, "3 rows of logits"), ([0] * 40, "40 rows")]
)
def test_out_of_range_logit_rows_are_rejected(engine: Engine, rows: list[int], message: str) -> None:
    with pytest.raises(UsageError, match=rf"{message}.* requested, but the step has 2 tokens"):
        engine.step([(engine.open(), [1, 2])], rows)


@pytest.mark.parametrize("shape", [(2, 31), (1, 32), (3, 32), (64,)])
def test_injected_value_must_match_the_shape(engine: Engine, shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"inject for l_out-0 has shape .*, expected \(2, 32\)"):
        engine.step([(engine.open(), [1, 2])], [0], inject={"l_out-0": np.zeros(shape, np.float32)})


def test_unknown_label_is_rejected_with_similar_labels(engine: Engine) -> None:
    with pytest.raises(UsageError, match="has the label 'l_out-9'"):
        engine.forward([1], inject={"l_out-9": np.zeros((1, 32), np.float32)})


# --- files -----------------------------------------------------------------------------------------------------

Change = Callable[[dict[str, object], dict[str, np.ndarray]], None]


def write_changed(
    path: Path, change: Change, architecture: str = "llama", *, names: str = "", **dtypes: str
) -> None:
    """A tiny model after `change(metadata, tensors)`; `dtypes` are by tensor name, with _ instead of dots."""
    content = build_tiny(architecture, hidden=64, layers=2)
    metadata, tensors = dict(content.metadata), dict(content.tensors)
    change(metadata, tensors)
    name = names or content.architecture
    writer = gguf.GGUFWriter(None, name)
    for key, value in metadata.items():
        full = f"{content.architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        elif isinstance(value, str):
            writer.add_string(full, value)
        else:
            writer.add_array(full, value)  # type: ignore[arg-type]
    for tensor, values in tensors.items():
        dtype = dtypes.get(tensor.replace(".", "_"))
        data = values if dtype is None else quantize(values, dtype)
        writer.add_tensor(tensor, data, raw_dtype=None if dtype is None else find_ggml_type(dtype))
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_step(path: Path) -> np.ndarray:
    with Engine(read_gguf(path), CpuBackend("canonical-1"), ctx=32) as engine:
        return engine.forward([1, 2, 3])


def change_nothing(metadata: dict[str, object], tensors: dict[str, np.ndarray]) -> None:
    """No change."""


def without_key(name: str) -> Change:
    def remove_key(metadata: dict[str, object], tensors: dict[str, np.ndarray]) -> None:
        (metadata if name in metadata else tensors).pop(name)  # type: ignore[attr-defined]

    return remove_key


def with_key(name: str, value: object) -> Change:
    return lambda metadata, tensors: metadata.update({name: value})


def with_tensor(name: str, edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda metadata, tensors: tensors.update({name: edit(tensors[name])})


def test_base_file_of_the_damaged_variants_runs(tmp_path: Path) -> None:
    write_changed(tmp_path / "m.gguf", change_nothing)
    logits = run_step(tmp_path / "m.gguf")
    assert logits.shape == (3, VOCAB)
    assert np.abs(logits).max() > 0.1


def test_unsupported_architecture_is_rejected_by_name(tmp_path: Path) -> None:
    write_changed(tmp_path / "m.gguf", change_nothing, names="falcon")
    with pytest.raises(
        UnsupportedError, match=r"m\.gguf: architecture 'falcon' is not supported by this version(.|\n)*qwen3next"
    ):
        run_step(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    "name",
    [
        "token_embd.weight",
        "output_norm.weight",
        "blk.0.attn_norm.weight",
        "blk.1.attn_q.weight",
        "blk.1.ffn_up.weight",
    ],
)
def test_missing_tensor_is_reported_by_name(tmp_path: Path, name: str) -> None:
    write_changed(tmp_path / "m.gguf", without_key(name))
    with pytest.raises(InputError, match=rf"m\.gguf: tensor {name} is missing"):
        run_step(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("blk.1.attn_k.weight", lambda w: w[:-1]),
        ("blk.0.ffn_down.weight", lambda w: w.T.copy()),
        ("blk.0.ffn_norm.weight", lambda w: w[:32]),
        ("output_norm.weight", lambda w: np.concatenate([w, w])),
    ],
)
def test_wrong_tensor_shape_is_reported_with_both_shapes(
    tmp_path: Path, name: str, edit: Callable[[np.ndarray], np.ndarray]
) -> None:
    write_changed(tmp_path / "m.gguf", with_tensor(name, edit))
    with pytest.raises(InputError, match=rf"m\.gguf: {name} has shape \(.*\), but the metadata requires \(.*\)"):
        run_step(tmp_path / "m.gguf")


def test_undequantisable_type_is_reported_with_its_tensor(tmp_path: Path) -> None:
    write_changed(tmp_path / "m.gguf", with_tensor("blk.1.ffn_up.weight", lambda w: w.astype(np.float64)))
    with pytest.raises(
        UnsupportedError, match=r"m\.gguf: blk\.1\.ffn_up\.weight has the unsupported type f64(.|\n)*q4_k"
    ):
        run_step(tmp_path / "m.gguf")


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("dtype", ["q8_0", "f16", "bf16", "q4_0"])
def test_each_projection_can_have_a_different_type(tmp_path: Path, dtype: str) -> None:
    write_changed(tmp_path / "plain.gguf", change_nothing)
    write_changed(tmp_path / "m.gguf", change_nothing, blk_1_ffn_up_weight=dtype)
    away = np.abs(run_step(tmp_path / "m.gguf") - run_step(tmp_path / "plain.gguf")).max()
    assert 0 < away < 2


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_key("embedding_length"), r"llama\.embedding_length is missing"),
        (without_key("block_count"), r"llama\.block_count is missing"),
        (without_key("attention.head_count"), r"llama\.attention\.head_count is missing"),
        (without_key("attention.layer_norm_rms_epsilon"), r"layer_norm_rms_epsilon is missing"),
        (with_key("attention.head_count", 0), r"llama\.attention\.head_count is 0, expected a positive integer"),
        (with_key("block_count", "two"), r"llama\.block_count is 'two', expected integer"),
        (with_key("block_count", 3), r"tensor blk\.2\.attn_norm\.weight is missing"),
        (
            with_key("attention.layer_norm_rms_epsilon", float("nan")),
            r"layer_norm_rms_epsilon is nan, expected real",
        ),
    ],
)
def test_missing_or_invalid_metadata_is_reported_by_key(tmp_path: Path, change: Change, message: str) -> None:
    write_changed(tmp_path / "m.gguf", change)
    with pytest.raises(InputError, match=message):
        run_step(tmp_path / "m.gguf")


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize(
    "change",
    [
        with_key("attention.head_count", 3),
        with_key("attention.head_count_kv", 3),
        with_key("embedding_length", 2**31),
        with_key("block_count", 2**31),
        with_key("rope.dimension_count", 2**20),
        with_key("rope.dimension_count", 7),
        with_key("rope.freq_base", 0.0),
        with_key("rope.freq_base", -1e4),
        with_key("rope.scaling.original_context_length", 0),
        with_key("attention.key_length", 9),
        with_key("expert_count", 4),
    ],
)
def test_metadata_contradicting_the_tensors_raises_zinc_error(tmp_path: Path, change: Change) -> None:
    write_changed(tmp_path / "m.gguf", change)
    with pytest.raises(ZincError):
        run_step(tmp_path / "m.gguf")
