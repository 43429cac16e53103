"""The model as a Python object: answers that do not depend on who else asks, and a sentence for a mistake."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_kernel import UNINITIALISED, FakeSanitizer, plant_store_out_of_bounds

from zinc_rt import LLM, FindingError, Sampling
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.runner import Runner, StepOutput
from zinc_rt.exec import DeadlineMissed
from zinc_rt.golden.draws import draw_reference_token as draw
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, OutputError, UnsupportedError, UsageError, ZincError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.tenant import Tenant
from zinc_rt.sched.usage.database import open_to_read
from zinc_rt.sched.usage.query import find_usage

PROMPTS = [[5, 6, 7], [8, 9], [1] * 40, [5, 6, 7, 8]]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("qwen3-q", tier="t_cpu", slots=3, threads=1) as opened:
        yield opened


def generate_alone(
    model: str | Path, prompt: list[int], sampling: Sampling, *, choice: int = 0
) -> tuple[int, ...]:
    """The simplest method: a separate sequence, one token at a time, sampled on the host."""
    path = model if isinstance(model, Path) else FOLDER / f"{model}.gguf"
    with Engine(read_gguf(path), CpuBackend("canonical-1", threads=1)) as engine:
        sequence, result, fed = engine.open(), list[int](), list(prompt)
        while len(result) < sampling.max_tokens:
            logits = engine.extend(sequence, fed, rows="last")[0]
            fed = [draw(sampling, logits, choice=choice, position=sequence.position)]
            result += fed
    return tuple(result)


def is_drained(llm: LLM) -> bool:
    return not llm.scheduler.check() and not llm.scheduler.live and not any(llm.scheduler.bound)


# --- answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.rest(keep=1)
def test_batched_answers_match_solo_runs(llm: LLM, temperature: float) -> None:
    sampling = Sampling(max_tokens=9, temperature=temperature, seed=11, ignore_eos=True)
    answers = llm.generate(PROMPTS, sampling)
    assert [answer.token_ids for answer in answers] == [
        generate_alone("qwen3-q", prompt, sampling) for prompt in PROMPTS
    ]
    assert {(answer.finish_reason, answer.seed, answer.index) for answer in answers} == {("length", 11, 0)}
    assert is_drained(llm)


@pytest.mark.parametrize("architecture", ["mamba", "deepseek2", "llama"])
@pytest.mark.rest(keep=1)
def test_cacheless_and_latent_architectures_match_solo_runs(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, architecture, hidden=32)
    sampling = Sampling(max_tokens=5, temperature=0.9, seed=2, n=2, ignore_eos=True)
    prompts = [[5, 6, 7], [1] * 21]
    with LLM(path, tier="t_cpu", slots=2, threads=1) as llm:
        answers = llm.generate(prompts, sampling)
        assert is_drained(llm)
    for answer, prompt in zip(answers, [prompts[0]] * 2 + [prompts[1]] * 2, strict=True):
        assert answer.token_ids == generate_alone(path, prompt, sampling, choice=answer.index)


def test_each_prompt_can_have_separate_sampling(llm: LLM) -> None:
    item = [
        Sampling(max_tokens=3, ignore_eos=True),
        Sampling(max_tokens=5, temperature=1.0, seed=2, ignore_eos=True),
    ]
    answers = llm.generate(PROMPTS[:2], item)
    assert [len(answer.token_ids) for answer in answers] == [3, 5]
    assert answers[1].token_ids == generate_alone("qwen3-q", PROMPTS[1], item[1])


@pytest.mark.rest
def test_choices_are_returned_in_order_and_sampled_independently(llm: LLM) -> None:
    sampling = Sampling(n=3, max_tokens=6, temperature=1.3, seed=4, ignore_eos=True)
    answers = llm.generate([[1] * 21, [2, 3]], sampling)
    assert [answer.index for answer in answers] == [0, 1, 2, 0, 1, 2]
    for index, prompt in enumerate(([1] * 21, [2, 3])):
        for choice in range(3):
            assert answers[3 * index + choice].token_ids == generate_alone(
                "qwen3-q", prompt, sampling, choice=choice
            )
    assert is_drained(llm)


def test_text_prompt_matches_its_token_prompt(llm: LLM) -> None:
    assert llm.tokenizer is not None
    (answer,) = llm.generate("the cat", Sampling(max_tokens=6, ignore_eos=True))
    (same,) = llm.generate([llm.tokenizer.encode("the cat")], Sampling(max_tokens=6, ignore_eos=True))
    assert answer.text == same.text and answer.token_ids == same.token_ids and answer.text


def test_returned_seed_reproduces_an_unseeded_answer(llm: LLM) -> None:
    sampling = Sampling(max_tokens=8, temperature=1.5)
    first, second = llm.generate([[5, 6], [5, 6]], sampling)
    assert first.seed != second.seed
    (again,) = llm.generate([[5, 6]], Sampling(max_tokens=8, temperature=1.5, seed=first.seed))
    assert again.token_ids == first.token_ids


def test_stop_string_ends_generation_and_is_excluded(llm: LLM) -> None:
    whole = llm.generate(["the"], Sampling(max_tokens=24, ignore_eos=True))[0]
    stop = whole.text[5:7]
    (cut,) = llm.generate(["the"], Sampling(max_tokens=24, ignore_eos=True, stop=stop))
    assert (cut.finish_reason, cut.stop) == ("stop", stop)
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)] and len(cut.token_ids) < 24
    assert is_drained(llm)


def test_nan_fails_only_its_request(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a broken layer would give; who shares the step has the tokens of before."""
    result, seen = StepOutput.nonfinite, iter(range(100))

    def corrupt_output(output: StepOutput) -> np.ndarray:
        nonfinite: np.ndarray = result.fget(output)  # type: ignore[attr-defined]
        if next(seen) == 2:
            nonfinite[0] = 7
            logits = np.where(np.eye(2, 512)[:, :1], np.nan, output.logits())
            monkeypatch.setattr(StepOutput, "logits", lambda output: logits)
        return nonfinite

    sampling = Sampling(max_tokens=6, ignore_eos=True)
    wanted = llm.generate(PROMPTS[:2], sampling)
    monkeypatch.setattr(StepOutput, "nonfinite", property(corrupt_output))
    pairs = list(zip(llm.generate(PROMPTS[:2], sampling), wanted, strict=True))
    assert sorted(got.finish_reason for got, _ in pairs) == ["length", "logits_not_finite"]
    for got, alone in pairs:
        assert got.token_ids == alone.token_ids[: 6 if got.finish_reason == "length" else 2]
    assert is_drained(llm)


def test_stop_token_ends_generation(llm: LLM) -> None:
    token_ids = llm.generate([[5, 6, 7]], Sampling(max_tokens=8, ignore_eos=True))[0].token_ids
    (cut,) = llm.generate([[5, 6, 7]], Sampling(max_tokens=8, ignore_eos=True, stop_token_ids=[token_ids[3]]))
    assert cut.token_ids == token_ids[: token_ids.index(token_ids[3]) + 1] and cut.finish_reason == "stop"


@pytest.mark.rest
def test_generation_ends_at_context_end(llm: LLM) -> None:
    (answer,) = llm.generate([[1] * 250], Sampling(max_tokens=100, ignore_eos=True))
    assert len(answer.token_ids) == 256 + 1 - 250 and answer.finish_reason == "length"


def test_repeated_prompt_hits_the_prefix_cache(llm: LLM) -> None:
    prompt = [9, 8, 7] * 20
    first, second = (llm.generate([prompt], Sampling(max_tokens=4, ignore_eos=True))[0] for _ in range(2))
    assert first.token_ids == second.token_ids and first.cached_tokens == 0
    assert second.cached_tokens == 48 and second.prompt_tokens == 60


def test_hung_step_costs_time_but_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is opened again, and computed again from its tokens."""
    sampling, steps = (
        Sampling(max_tokens=8, temperature=0.9, seed=5, presence_penalty=0.5, ignore_eos=True),
        iter(range(100)),
    )
    with LLM("qwen35moe-q", tier="t_cpu", slots=2, threads=1) as llm:
        wanted = llm.generate(PROMPTS, sampling)
        first, collect = llm.engine, Runner.collect

        def miss_deadline(runner: Runner, *handle: Any) -> Any:
            output = collect(runner, *handle)
            if next(steps) == 5:
                raise DeadlineMissed("fence 5 not reached")
            return output

        monkeypatch.setattr(Runner, "collect", miss_deadline)
        assert [item.token_ids for item in llm.generate(PROMPTS, sampling)] == [item.token_ids for item in wanted]
        assert llm.engine is not first and llm.scheduler.counts.failed_steps == 1 and is_drained(llm)


def test_logprobs_are_computed_before_logit_processing(llm: LLM) -> None:
    sampling = Sampling(max_tokens=4, temperature=1.0, seed=9, logit_bias={3: 5.0}, logprobs=3, ignore_eos=True)
    (answer,) = llm.generate([[5, 6, 7]], sampling)
    assert answer.logprobs is not None and [logprob.token_id for logprob in answer.logprobs] == list(
        answer.token_ids
    )
    with Engine(read_gguf(FOLDER / "qwen3-q.gguf"), CpuBackend("canonical-1", threads=1)) as engine:
        logits = engine.forward([5, 6, 7, *answer.token_ids[:-1]])[2:].astype(np.float64)
    for row, logprob in zip(logits - np.log(np.exp(logits).sum(1, keepdims=True)), answer.logprobs, strict=True):
        assert abs(logprob.logprob - row[logprob.token_id]) < 1e-4
        assert [token for token, _ in logprob.top] == np.argsort(-row, kind="stable")[:3].tolist()
        assert max(abs(value - row[token]) for token, value in logprob.top) < 1e-4


def test_min_tokens_suppresses_end_tokens(llm: LLM) -> None:
    assert llm.tokenizer is not None
    end = min(llm.tokenizer.eog_ids)
    (early,) = llm.generate([[5]], Sampling(logit_bias={end: 100.0}))
    (late,) = llm.generate([[5]], Sampling(logit_bias={end: 100.0}, min_tokens=6))
    assert early.token_ids == (end,) and early.text == ""
    assert len(late.token_ids) == 7 and late.token_ids[-1] == end and end not in late.token_ids[:-1]


# --- as they come -----------------------------------------------------------------------------------------------


def test_ledger_records_usage_of_each_answer_and_balances() -> None:
    with LLM("qwen3-q", tier="t_cpu", slots=3, threads=1, tenants=[Tenant("ada"), Tenant("bob")]) as llm:
        ones = llm.generate(PROMPTS, Sampling(max_tokens=5, seed=3, n=2))
        (other,) = llm.generate([PROMPTS[2]], Sampling(max_tokens=9, stop=(ones[0].text[:1],)), tenant="bob")
        usage, theirs = llm.usage(), llm.usage("bob")
        assert not llm.ledger.find_problems() and is_drained(llm)
    assert usage["requests_accepted"] == 2 * len(PROMPTS) and usage["tokens_recomputed"] == 0
    computed = usage["prompt_tokens_computed"] + usage["prompt_tokens_cached"]
    assert computed >= sum(map(len, PROMPTS))
    assert usage["tokens_generated"] == usage["tokens_delivered"] == sum(len(item.token_ids) for item in ones)
    assert theirs["tokens_generated"] == theirs["tokens_delivered"] >= len(other.token_ids)


@pytest.mark.rest
def test_usage_persists_across_restarts(tmp_path: Path) -> None:
    path = tmp_path / "usage.sqlite"
    for _ in range(2):
        with LLM("qwen3-q", tier="t_cpu", slots=2, threads=1, usage=path) as llm:
            llm.generate(PROMPTS, Sampling(max_tokens=3, ignore_eos=True))
            with pytest.raises(OutputError, match="is writing to this file"):
                LLM("qwen3-q", tier="t_cpu", usage=path)
    with closing(open_to_read(path)) as database:
        (group,) = (
            group for group in find_usage(database, group_by=["tenant", "model"]).groups if group.key[0][0] != ":"
        )
    assert group.key == ("default", "qwen3-q")
    assert group.counters["tokens_delivered"] == group.counters["tokens_generated"] == 2 * 3 * len(PROMPTS)


def test_stream_concatenates_to_the_answer(llm: LLM) -> None:
    sampling = Sampling(max_tokens=10, temperature=0.7, seed=3, n=2)
    whole = llm.generate(["the"], sampling)
    pieces = list(llm.stream("the", sampling))
    for answer in whole:
        mine = [piece for piece in pieces if piece.index == answer.index]
        assert "".join(piece.text for piece in mine) == answer.text
        assert sum((piece.token_ids for piece in mine), ()) == answer.token_ids
        assert [piece.finish_reason for piece in mine] == [None] * (len(mine) - 1) + [answer.finish_reason]


def test_concurrent_streams_are_independent(llm: LLM) -> None:
    sampling = Sampling(max_tokens=6, ignore_eos=True)
    one, other = llm.stream([5, 6, 7], sampling), llm.stream([8, 9], sampling)
    result: tuple[list[int], list[int]] = ([], [])
    for first, second in zip_longest(one, other):  # each drives the other, and may find several tokens ready
        for ids, piece in zip(result, (first, second), strict=True):
            ids += piece.token_ids if piece is not None else ()
    assert tuple(result[0]) == generate_alone("qwen3-q", [5, 6, 7], sampling)
    assert tuple(result[1]) == generate_alone("qwen3-q", [8, 9], sampling)


@pytest.mark.rest
def test_abandoned_stream_releases_everything(llm: LLM) -> None:
    pieces = llm.stream([5, 6, 7], Sampling(max_tokens=50, ignore_eos=True, n=2))
    next(pieces)
    assert not is_drained(llm)
    del pieces
    gc.collect()
    assert is_drained(llm)


def test_unread_stream_never_starts(llm: LLM) -> None:
    llm.stream([5, 6, 7])
    assert is_drained(llm)


def test_ctrl_c_releases_everything_and_next_answer_is_correct(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling, steps = Sampling(max_tokens=8, ignore_eos=True), iter(range(100))
    collect = llm.engine.runner.collect

    def interrupt_collect(*handle: Any) -> Any:
        if next(steps) == 3:
            raise KeyboardInterrupt
        return collect(*handle)

    monkeypatch.setattr(llm.engine.runner, "collect", interrupt_collect)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS, sampling)
    monkeypatch.undo()
    assert is_drained(llm)
    assert llm.generate([PROMPTS[0]], sampling)[0].token_ids == generate_alone("qwen3-q", PROMPTS[0], sampling)


def test_chat_applies_the_template(llm: LLM) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the cat"}]
    (answer,) = llm.chat(messages, Sampling(max_tokens=3))
    tokens = llm.tokenize_chat(messages)
    assert llm.tokenizer is not None and "<|im_start|>user\nthe cat" in llm.tokenizer.decode(tokens)
    assert answer.token_ids == llm.generate([tokens], Sampling(max_tokens=3))[0].token_ids


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "sampling", "message"),
    [
        ([[1] * 257], Sampling(), "the prompt's 257 tokens do not fit the context of 256"),
        ([[]], Sampling(), "the prompt has no tokens"),
        ([[1, 999999]], Sampling(), "token id 999999 is outside the vocabulary"),
        ([[1]], Sampling(logit_bias={999999: 1.0}), "logit_bias: token id 999999 is outside the vocabulary"),
        ([[1]], Sampling(stop_token_ids=[999999]), "stop_token_ids: token id 999999 is outside the vocabulary"),
        ([[1, 2.5]], Sampling(), r"token id 2\.5 is outside"),
        ([None], Sampling(), "prompt None; expected a string or a list of token ids"),
        (["the"], [{"max_tokens": 3}], "sampling .*; expected a Sampling"),
        ([[1], [2]], [Sampling()], "2 prompts, but 1 sampling parameters"),
        ([[1]], Sampling(n=4), "n 4: each choice needs a slot, but there are only 3"),
        ([[1]], Sampling(top_p=2), "top_p 2: expected more than 0"),
    ],
)
def test_invalid_argument_prints_one_line_and_starts_nothing(
    llm: LLM, prompts: Any, sampling: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        llm.generate(prompts, sampling)
    assert is_drained(llm)


def test_unknown_tenant_is_rejected_by_name(llm: LLM) -> None:
    with pytest.raises(UsageError, match="unknown tenant 'them'"):
        llm.generate([[1]], tenant="them")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "qwen3-q", "tier": "t9"}, ZincError, "t9"),
        ({"model": "qwen3-q", "slots": 0}, UsageError, "slots 0: expected 1 to"),
        ({"model": "qwen3-q", "timeout": 0}, UsageError, "timeout 0: expected more than 0 seconds"),
        ({"model": "qwen3-q", "ctx": -1}, UsageError, "-1"),
        ({"model": "nowhere.gguf"}, InputError, "nowhere.gguf"),
        ({"model": "sentencepiece"}, InputError, "a tokenizer but no tensors"),
        ({"model": "qwen3-q", "device": "hw"}, UnsupportedError, "no AMD GPU"),
        ({"model": "qwen3-q", "slots": 2, "tenants": [Tenant("a", slots_guaranteed=3)]}, UsageError, "guaranteed"),
    ],
)
def test_unopenable_model_reports_the_reason(
    options: dict[str, Any], error: type[ZincError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zinc_rt.engine.devices.find_amd_gpus", tuple)
    with pytest.raises(error, match=message):
        LLM(**options)


def test_close_is_idempotent_and_final() -> None:
    llm = LLM("qwen3-q", tier="t_cpu", slots=1, threads=1)
    llm.close()
    llm.close()
    with pytest.raises(UsageError, match="this LLM is closed"):
        llm.generate([[1]])


def test_token_ids_are_accepted_without_a_tokenizer(tmp_path: Path) -> None:
    data = (FOLDER / "qwen3-q.gguf").read_bytes()
    path = tmp_path / "mute.gguf"
    path.write_bytes(data.replace(b"tokenizer.ggml.model", b"tokenizer.ggml.xxxxx"))
    with LLM(path, tier="t_cpu", slots=1, threads=1) as llm:
        (answer,) = llm.generate([[5, 6, 7]], Sampling(max_tokens=3))
        assert answer.text == "" and answer.token_ids == generate_alone(
            "qwen3-q", [5, 6, 7], Sampling(max_tokens=3)
        )
        for ask in (lambda: llm.generate("the"), lambda: llm.generate([[1]], Sampling(stop="x"))):
            with pytest.raises(UsageError, match=r"needs a tokenizer: .*tokenizer\.ggml\.model"):
                ask()


def test_importing_the_package_loads_no_heavy_module() -> None:
    import subprocess
    import sys

    asked = "import sys, zinc_rt; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout == "False\n"


# --- findings of a simulated device ---------------------------------------------------------------------------


def test_finding_raises_an_error_with_the_answers_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "instrument", sanitizer := FakeSanitizer())
    sampling = Sampling(max_tokens=3, ignore_eos=True)
    with LLM("qwen3-q", tier="t_cpu", slots=2, threads=1) as llm:
        wanted = llm.generate(PROMPTS, sampling)
        sanitizer.found.append(UNINITIALISED)
        with pytest.raises(
            FindingError, match="reported 1 error, the first: uninitialised-memory: swiglu"
        ) as raised:
            llm.generate(PROMPTS, sampling)
        assert [item.token_ids for item in raised.value.answers] == [item.token_ids for item in wanted]
        assert raised.value.findings == (UNINITIALISED,) and raised.value.exit_code == 1
        assert "zinc-rt validate --model" in raised.value.next and "--tiers t_cpu" in raised.value.next
        pieces = []
        with pytest.raises(FindingError) as raised:
            pieces.extend(llm.stream(PROMPTS[0], sampling))
        assert tuple(token for piece in pieces for token in piece.token_ids) == wanted[0].token_ids
        assert raised.value.answers[0].token_ids == wanted[0].token_ids
        assert is_drained(llm)
    with LLM("qwen3-q", tier="t_cpu", slots=2, threads=1, check_findings=False) as llm:
        assert [item.token_ids for item in llm.generate(PROMPTS, sampling)] == [item.token_ids for item in wanted]
        assert llm.findings() == (UNINITIALISED,)
    assert llm.findings() == (UNINITIALISED,)


def test_finding_that_no_call_raised_is_raised_by_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "instrument", FakeSanitizer(UNINITIALISED))
    with pytest.raises(FindingError) as raised, LLM("qwen3-q", tier="t_cpu", slots=1, threads=1) as llm:
        asked = llm.submit([5, 6], Sampling(max_tokens=1))
        while not asked.done:
            llm.step()
    assert raised.value.answers == () and llm.closed
    llm.close()
    with pytest.raises(KeyError, match="another"), LLM("qwen3-q", tier="t_cpu", slots=1, threads=1):
        raise KeyError("another")


@pytest.mark.rest
def test_store_out_of_bounds_on_a_simulated_device_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_store_out_of_bounds(monkeypatch)
    with LLM("qwen3-q", tier="t1", device="sim", slots=1) as llm:
        with pytest.raises(
            FindingError, match=r"out-of-bounds.* argmax.*argmax\.s:\d+.*global_store_b32"
        ) as raised:
            llm.generate([5, 6], Sampling(max_tokens=1))
        assert len(raised.value.answers) == 1 and raised.value.findings[0].kernel == "argmax"
