"""Drafts by a model's own layer for next-token prediction (MTP): the same answers, and the drafts of a float64
derivation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vulkan_driver import require_driver

from zinc_rt.engine.answering import Completion
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.llm import LLM
from zinc_rt.engine.speculating import MtpDrafter
from zinc_rt.golden.derivation import normalise, silu, softmax
from zinc_rt.golden.tiny_models.writer import build_tiny, write_content, write_tiny
from zinc_rt.host.errors import ZincError
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.speculation import DraftTask

LAYERS, HEADS, KV_HEADS, HEAD, ROTATED, EPS = 4, 4, 2, 32, 8, 1e-6
PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], [9, 8, 7, 6], [5] * 20]
SAMPLINGS = [
    Sampling(max_tokens=24, seed=1, ignore_eos=True),
    Sampling(max_tokens=24, temperature=0.2, seed=3, ignore_eos=True, logprobs=2),
    Sampling(max_tokens=24, temperature=1.0, top_k=3, seed=4, n=2, logit_bias={7: 9.0}, ignore_eos=True),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Tiny models with an MTP layer, and one whose drafts are always right: the next token depends only on the
    last one, both by the model and by the layer."""
    folder = tmp_path_factory.mktemp("mtp")
    paths = {name: folder / f"{name}.gguf" for name in ("qwen35", "qwen35moe", "qwen3next", "echo")}
    for name in ("qwen35", "qwen35moe", "qwen3next"):
        write_tiny(paths[name], name, quant="f32" if name == "qwen35" else "q", mtp=1)
    content = build_tiny("qwen35", mtp=1)
    mixing = ("attn_output.weight", "ssm_out.weight", "ffn_down.weight")
    tensors = {name: values * (not name.endswith(mixing)) for name, values in content.tensors.items()}
    at, width = f"blk.{LAYERS}.nextn", content.tensors["output_norm.weight"].size
    tensors[f"{at}.eh_proj.weight"] = np.eye(width, 2 * width, dtype=np.float32)
    tensors[f"{at}.enorm.weight"] = np.ones(width, np.float32)
    tensors[f"{at}.shared_head_norm.weight"] = content.tensors["output_norm.weight"]
    write_content(paths["echo"], replace(content, tensors=tensors))
    yield paths


def answer_with(speculate: str, tier: str, model: Path, **options: Any) -> list[Completion]:
    with LLM(model, tier, slots=3, ctx=128, speculate=speculate, **options) as llm:
        speculation = llm.scheduler.speculation
        if speculation is not None:
            speculation.adaptive = False
        completions = llm.generate(PROMPTS, SAMPLINGS)
        assert not llm.scheduler.check()
        if speculation is not None:
            usage = llm.usage()
            assert speculation.drafted == usage["draft_inputs"] > 50 and not speculation.failure
            assert speculation.accepted == usage["draft_inputs"] - usage["draft_rejected"]
            assert isinstance(speculation.drafter, MtpDrafter) and not speculation.drafter.states
    return completions


@pytest.mark.parametrize(
    ("tier", "name", "kv_type"),
    [
        ("t_cpu", "qwen35", "f32"),
        pytest.param("t_cpu", "qwen35moe", "f32", marks=pytest.mark.rest),
        ("t_cpu_native", "qwen35moe", "f32"),
        pytest.param("t_cpu_native", "qwen3next", "q8_0", marks=pytest.mark.rest),
        pytest.param("t1", "qwen35moe", "f32", marks=pytest.mark.slow),
        pytest.param("vulkan", "qwen35moe", "f32", marks=pytest.mark.slow),
    ],
)
def test_mtp_changes_no_answer(models: dict[str, Path], tier: str, name: str, kv_type: str) -> None:
    if tier == "vulkan":
        require_driver()
    plain = answer_with("off", "t_cpu_native", models[name], kv_type=kv_type)
    device = "sim" if tier == "t1" else "auto"
    assert answer_with("mtp:3", tier, models[name], kv_type=kv_type, device=device) == plain


@pytest.mark.parametrize("drafts", [1, 5])
def test_right_drafts_are_accepted(models: dict[str, Path], drafts: int) -> None:
    answers = {}
    for speculate in ("off", f"mtp:{drafts}"):
        with LLM(models["echo"], "t_cpu_native", slots=2, ctx=128, speculate=speculate) as llm:
            speculation = llm.scheduler.speculation
            if speculation is not None:
                speculation.adaptive = False
            answers[speculate] = llm.generate(PROMPTS, Sampling(max_tokens=24, seed=1, ignore_eos=True))
            if speculation is not None:
                assert speculation.accepted == speculation.drafted > 24
    assert answers["off"] == answers[f"mtp:{drafts}"]


class DerivedMtp:
    """The MTP layer of a dense model in float64."""

    def __init__(self, path: Path, tokens: list[int]) -> None:
        """`tokens`: those of the sequence, whose hidden states the oracle computes in one pass."""
        file = read_gguf(path)
        self.weights = {name: tensor.data.astype(np.float64) for name, tensor in file.tensors.items()}
        hidden: dict[str, np.ndarray] = {}
        with LLM(path, "t_cpu", slots=1, ctx=128) as llm:
            backend = llm.engine.backend
            engine = Engine(file, backend, limits=SequenceLimits(128))
            engine.forward(tokens, tap=lambda node, name, value: hidden.update({node.label: value.copy()}))
            engine.variants.unload()
        before = np.concatenate([np.zeros_like(hidden["result_norm"][:1]), hidden["result_norm"][:-1]])
        self.inputs = self._project(tokens, before.astype(np.float64))

    def draft(self, length: int, count: int) -> list[np.ndarray]:
        """Return the hidden states of `count` drafts after the first `length` tokens."""
        inputs, states = self.inputs[:length], []
        for _ in range(count):
            states.append(self._run(inputs)[-1])
            token = int((self.weights["output.weight"] @ states[-1]).argmax())
            inputs = np.concatenate([inputs, self._project([token], states[-1:])])
        return states

    def _project(self, tokens: list[int], hidden: Any) -> np.ndarray:
        at, weights = f"blk.{LAYERS}.nextn", self.weights
        e = normalise(weights["token_embd.weight"][tokens], weights[f"{at}.enorm.weight"], EPS)
        h = normalise(np.asarray(hidden), weights[f"{at}.hnorm.weight"], EPS)
        return np.concatenate([e, h], axis=1) @ weights[f"{at}.eh_proj.weight"].T

    def _run(self, x: np.ndarray) -> np.ndarray:
        count, w = len(x), {name.removeprefix(f"blk.{LAYERS}."): value for name, value in self.weights.items()}
        h = normalise(x, w["attn_norm.weight"], EPS)
        q, gate = np.split((h @ w["attn_q.weight"].T).reshape(count, HEADS, 2 * HEAD), 2, axis=-1)
        k, v = ((h @ w[f"attn_{which}.weight"].T).reshape(count, KV_HEADS, HEAD) for which in "kv")
        q = self._rotate(normalise(q, w["attn_q_norm.weight"], EPS))
        k = self._rotate(normalise(k, w["attn_k_norm.weight"], EPS))
        k, v = (np.repeat(value, HEADS // KV_HEADS, axis=1) for value in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / HEAD**0.5
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        y = np.einsum("hqk,khd->qhd", softmax(scores), v) / (1 + np.exp(-gate))
        x = x + y.reshape(count, -1) @ w["attn_output.weight"].T
        h = normalise(x, w["post_attention_norm.weight"], EPS)
        x = x + (silu(h @ w["ffn_gate.weight"].T) * (h @ w["ffn_up.weight"].T)) @ w["ffn_down.weight"].T
        return normalise(x, w["nextn.shared_head_norm.weight"], EPS)

    def _rotate(self, x: np.ndarray) -> np.ndarray:
        half = ROTATED // 2
        angle = np.arange(len(x))[:, None] * 1e7 ** (-2 * np.arange(half) / ROTATED)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:ROTATED]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., ROTATED:]], axis=-1)


def test_drafts_equal_a_float64_derivation(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of several pages, a prefix hit and rejected drafts: the layer's keys and values are those of the
    sequence, computed anew."""
    compute = MtpDrafter._draft
    kept: list[tuple[int, int, int, np.ndarray]] = []

    def record(self: MtpDrafter, tasks: Any, drafts: Any, known: Any) -> Any:
        tokens, states = compute(self, tasks, drafts, known)
        kept.extend(
            (task.number, len(task.tokens), len(drafts[index]), state)
            for index, state in zip(known, states, strict=True)
            for task in (tasks[index],)
        )
        return tokens, states

    monkeypatch.setattr(MtpDrafter, "_draft", record)
    shared = [(37 * index) % 500 for index in range(40)]
    prompts = [shared, [*shared[:35], 3, 4], [7, 5]]
    with LLM(models["qwen35"], "t_cpu", slots=2, ctx=128, speculate="mtp:3") as llm:
        assert llm.scheduler.speculation is not None
        llm.scheduler.speculation.adaptive = False
        answers = [*llm.generate(prompts[:1], SAMPLINGS[0]), *llm.generate(prompts[1:], SAMPLINGS[0])]
        assert llm.usage()["prompt_tokens_cached"] >= 32
    derived = {
        number: DerivedMtp(models["qwen35"], prompt + list(answer.token_ids))
        for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), 1)
    }
    assert {number for number, *_ in kept} == set(derived) and len(kept) > 80
    for number, length, at, state in kept:
        want = derived[number].draft(length, at + 1)[at]
        assert np.abs(state - want).max() < 1e-3 * np.abs(want).max(), (number, length, at)


def test_graphs_of_drafts_are_built_in_advance(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM(models["echo"], "t_cpu_native", slots=3, ctx=128, speculate="mtp:2") as llm:
        llm.build_all()
        monkeypatch.setattr(llm.engine.variants, "_build_draft_graph", None)
        assert llm.scheduler.speculation is not None
        llm.scheduler.speculation.adaptive = False
        llm.generate(PROMPTS, Sampling(max_tokens=8, ignore_eos=True))
        assert llm.scheduler.speculation.drafted


def test_request_without_a_kept_state_gets_no_drafts() -> None:
    drafter = MtpDrafter()
    drafter.states[1, 0] = 5, np.zeros((2, 8), np.float32)
    tasks = [DraftTask(number, 0, np.zeros(5 + number, np.int32), 3) for number in (1, 2)]
    assert drafter.propose(tasks) == [[], []]
    drafter.forget(1, 0)
    assert not drafter.states


@pytest.mark.parametrize(
    ("architecture", "message"),
    [("qwen35", "the file has no layers for next-token prediction"), ("qwen3", "'qwen3'")],
)
def test_file_without_the_layer_is_refused(tmp_path: Path, architecture: str, message: str) -> None:
    write_tiny(tmp_path / "plain.gguf", architecture)
    with pytest.raises(ZincError, match=message):
        LLM(tmp_path / "plain.gguf", "t_cpu", slots=1, ctx=64, speculate="mtp")
