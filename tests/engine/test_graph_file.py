"""A graph file starts a model without its architecture's code, and is refused by name where it does not fit."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.base import Device
from zinc_rt.cli.run import main as run
from zinc_rt.cli.serve import main as serve
from zinc_rt.engine import graph_file, variants
from zinc_rt.engine.graph_file import GraphFile, GraphWriter, open_graph_file
from zinc_rt.engine.llm import LLM
from zinc_rt.engine.variants import EngineOptions, Variants
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, UsageError, ZincError
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.kernels.weight import view_bytes
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.pooling import RankHead
from zinc_rt.model.sample_graph import SampleForm
from zinc_rt.sched.sampling import Sampling

LIMITS = SequenceLimits(ctx=64, slots=2, rows=2)
STEPS = (("decode", 1, 1, 1), ("decode", 2, 2, 2), ("prefill", 16, 1, 1))


class PlanningBackend:
    """gfx1201's kernels without a device."""

    def __init__(self, **changes: Any) -> None:
        self.kernels, self.ordering, self.builds_planned = KERNELS, "canonical-1", True
        self.spec, self.device = registry.spec("t1"), Device("none", "gfx1201")
        for name, value in changes.items():
            setattr(self, name, value)


def make_variants(gguf: GGUFFile, store: Any, limits: SequenceLimits = LIMITS, **changes: Any) -> Variants:
    backend: Any = PlanningBackend(**changes)
    return Variants(gguf, backend, limits, EngineOptions(store=store))


def plan_steps(made: Variants) -> str:
    """Plan every step, greedy and sampled. Return how many programs were read and planned."""
    vocab = made.model("decode").columns
    for stage, *counts in STEPS:
        for greedy in (True, False):
            made.plan(stage, *counts, form=SampleForm(vocab, 2, greedy=greedy))  # type: ignore[arg-type]
    assert made.stored is not None
    return made.stored.starts.text


def save(gguf: GGUFFile, path: Path) -> Variants:
    writer = GraphWriter()
    made = make_variants(gguf, writer)
    assert plan_steps(made).startswith("0 read from the file, 6 planned")
    assert writer.write(path, {stage: made.model(stage) for stage in graph_file.STAGES}) == path.stat().st_size
    return made


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "m.zgf"
    save(read_gguf(FOLDER / "qwen3-q.gguf"), path)
    return path


@pytest.mark.parametrize("name", ["qwen3-q", "qwen35moe-q", "gemma4moe-q"])
def test_a_file_replaces_the_builder_and_the_planner(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf, path = read_gguf(FOLDER / f"{name}.gguf"), tmp_path / "m.zgf"
    first = save(gguf, path)

    def fail(*_: object, **__: object) -> Any:
        raise AssertionError("a start with a graph file builds or plans")

    for function in ("build_model", "build_draft_model", "fuse_graph", "plan_graph", "add_sampling"):
        monkeypatch.setattr(variants, function, fail)
    again = make_variants(gguf, open_graph_file(path))
    assert plan_steps(again).startswith(f"6 read from {path}, 0 planned")
    for stage in graph_file.STAGES:
        built, loaded = first.model(stage), again.model(stage)
        assert loaded.graph == built.graph and loaded.limits == built.limits == LIMITS
        assert (loaded.layers, loaded.vocab, loaded.width) == (built.layers, built.vocab, built.width)
        assert list(loaded.weights) == list(built.weights) and list(loaded.constants) == list(built.constants)
        for key, weight in built.weights.items():
            mine = loaded.weights[key]
            assert (mine.dtype, mine.shape, mine.raw.shape) == (weight.dtype, weight.shape, weight.raw.shape)
            assert np.array_equal(view_bytes(mine), view_bytes(weight))
        for key, table in built.constants.items():
            assert loaded.constants[key].shape == table.shape and np.array_equal(loaded.constants[key], table)


def test_a_rank_head_is_found_in_the_model_file(tmp_path: Path) -> None:
    path = tmp_path / "bert.gguf"
    write_tiny(path, "bert")
    gguf = read_gguf(path)
    model = make_variants(gguf, None).model("prefill")
    weight = next(weight for weight in model.weights.values() if weight.dtype == "f32" and len(weight.shape) == 2)
    head = RankHead(None, None, weight[:1], None, last=False, softmax=True)
    writer = GraphWriter()
    stored = writer.of(gguf, make_variants(gguf, None).backend)
    writer.write(tmp_path / "m.zgf", {"prefill": replace(model, rank_head=head)})
    loaded = open_graph_file(tmp_path / "m.zgf").load_model(stored, gguf, "prefill")
    assert loaded.pooling == model.pooling != "" and loaded.rank_head is not None
    assert np.array_equal(loaded.rank_head.output.raw, head.output.raw) and loaded.rank_head.softmax
    assert loaded.rank_head.dense is None


@pytest.mark.parametrize(
    ("changes", "limits", "name"),
    [
        ({"ordering": "canonical-1-q8"}, LIMITS, "ordering"),
        ({"device": Device("none", "gfx1200")}, LIMITS, "chip"),
        ({"spec": registry.spec("t2")}, LIMITS, "tier"),
        ({}, replace(LIMITS, slots=1), "limits"),
    ],
)
def test_another_run_is_refused_by_name(
    saved: Path, changes: dict[str, Any], limits: SequenceLimits, name: str
) -> None:
    with pytest.raises(InputError, match=rf"m\.zgf: saved for another {name}: .*; this run has "):
        make_variants(read_gguf(FOLDER / "qwen3-q.gguf"), open_graph_file(saved), limits, **changes)


def test_another_model_or_build_is_refused_by_name(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="saved for another model shape"):
        make_variants(read_gguf(FOLDER / "gemma4-q.gguf"), open_graph_file(saved))
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    for name, value in (("general.name", "a fine-tune"), ("qwen3.rope.freq_base", 5e5)):
        other = replace(gguf, metadata={**gguf.metadata, name: value})
        if name.startswith("general"):
            make_variants(other, open_graph_file(saved))
        else:
            with pytest.raises(InputError, match="saved for another model shape"):
                make_variants(other, open_graph_file(saved))
    monkeypatch.setattr(graph_file, "digest_planning_source", lambda: "newer")
    with pytest.raises(InputError, match=r"saved for another planning code: .*; this run has 'newer'"):
        make_variants(gguf, open_graph_file(saved))


def reseal(content: bytearray) -> bytes:
    """Return the file with a matching checksum, as somebody who forges one would."""
    content[16:48] = hashlib.sha256(content[graph_file.HASHED_FROM :]).digest()
    return bytes(content)


def open_changed(saved: Path, tmp_path: Path, content: bytes) -> Variants:
    path = tmp_path / "changed.zgf"
    path.write_bytes(content)
    return make_variants(read_gguf(FOLDER / "qwen3-q.gguf"), open_graph_file(path))


def test_a_damaged_file_is_refused(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    for at in (0, 5, 9, 20, 50, 58, 70, len(content) // 2, len(content) - 1):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        with pytest.raises(InputError, match=r"changed\.zgf: (it |format |the checksum )"):
            open_changed(saved, tmp_path, bytes(damaged))
    for size in (0, 10, 64, len(content) - 1):
        with pytest.raises(InputError, match=r"changed\.zgf: (it is shorter|it has)"):
            open_changed(saved, tmp_path, content[:size])
    with pytest.raises(InputError, match="no such file"):
        open_graph_file(tmp_path / "none.zgf")


def test_a_forged_file_cannot_reach_outside_of_the_model_file(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    for old, new in (
        (b'"blk.0.attn_norm.weight"', b'"blk.9.attn_norm.weight"'),  # a tensor that the file does not have
        (b'"blk.0.attn_norm.weight", [256], 0,', b'"blk.0.attn_norm.weight", [256], 4,'),  # beyond its end
        (
            b'"blk.0.attn_norm.weight", [256], 0, [256]',
            b'"blk.0.attn_norm.weight", [256], 0, [255]',
        ),  # fewer bytes
        (
            b'"blk.0.attn_norm.weight", [256], 0, [256]',
            b'"blk.0.attn_norm.weight", [128], 0, [128]',
        ),  # not the graph's
        (b'"layers": ', b'"layerz": '),
    ):
        assert content.count(old) and len(old) == len(new)
        made = open_changed(saved, tmp_path, reseal(bytearray(content.replace(old, new))))
        with pytest.raises(ZincError, match=r"changed\.zgf: its model of stage prefill is malformed"):
            made.model("prefill")
    begin = content.index(b"ZIR\0")
    forged = bytearray(content)
    forged[begin + 100] ^= 1
    made = open_changed(saved, tmp_path, reseal(forged))
    with pytest.raises(ZincError, match="checksum"):
        plan_steps(made)
    with pytest.raises(InputError, match="malformed"):
        open_changed(saved, tmp_path, reseal(bytearray(content.replace(b'"saved by"', b'"saved_by"'))))


@pytest.mark.rest
def test_served_tokens_are_the_same_with_a_saved_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = str(FOLDER / "qwen3-q.gguf"), str(tmp_path / "m.zgf")
    device = ["--tier", "t1", "--device", "sim"]
    assert serve([model, *device, "--slots", "2", "--ctx", "64", "--save-graphs", path]) == 0
    assert "saved     " in capsys.readouterr().out
    prompts, sampling = [[1, 2, 3], [4, 5]], Sampling(max_tokens=3, temperature=1.0, seed=7)

    def generate(**options: Any) -> list[list[int]]:
        with LLM(model, "t1", "sim", 2, 64, **options) as llm:
            texts = [list(completion.token_ids) for completion in llm.generate(prompts, sampling)]
            stored = llm.engine.variants.stored
            assert stored is None or stored.starts.planned == 0
            return texts

    plain = generate(graph_cache=False)
    monkeypatch.setattr(variants, "build_model", lambda *_, **__: pytest.fail("the builder ran"))
    assert generate(graphs=path) == plain
    words = [model, *device, "--graphs", path, "--tokens", "1,2,3"]
    for extra, reason in (
        (["-c", "32"], "saved for ctx 64, but this run asks for 32"),
        (["--kv-type", "f16"], "saved for kv_type f32, but this run asks for f16"),
        (["--speculate", "ngram:2"], "saved for rows 2, but this run asks for 6"),
    ):
        assert run([*words, *extra]) == 2 and reason in capsys.readouterr().err
    assert serve([model, *device, "--slots", "2", "--graphs", path, "--plan"]) == 0
    assert "plan format" in capsys.readouterr().out
    assert serve([model, *device, "--slots", "2", "--graphs", path, "--save-graphs", path]) == 2
    with pytest.raises(UsageError, match="saved for slots 2, but this run asks for 3"):
        LLM(model, "t1", "sim", 3, 64, graphs=path)
    with pytest.raises(UsageError, match="tier t_cpu runs graphs without saved plans"):
        LLM(model, "t_cpu", slots=2, ctx=64, graphs=path)
    assert isinstance(open_graph_file(path), GraphFile)
