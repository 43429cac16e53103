"""A log of a run that draws has every submission: it replays from the file alone, on any tier, and a fault in what
draws, in what it is given, or in a copy is named."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from fake_masks import MS, FakeMask, ManualPool
from planted import Code, PlantedBackend, PlantedFault
from support import Counts

from zinc_rt.engine import row_sampler
from zinc_rt.engine.answering import Answering, SubmittedPrompt
from zinc_rt.engine.devices import ORACLE, choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.model_runner import PageCopier
from zinc_rt.engine.output_ring import RingError
from zinc_rt.engine.row_sampler import RowSampler
from zinc_rt.engine.runner import StepBlock
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError
from zinc_rt.ir.slot_record import find_column
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.sample_graph import COUNTS, RING
from zinc_rt.replay import command
from zinc_rt.replay.bisect import bisect
from zinc_rt.replay.run import replay
from zinc_rt.sched import planning
from zinc_rt.sched.checks.drafters import ScriptedDrafter
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.sampling import Sampling
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.recorder import record
from zinc_rt.trace.tape import Tape, read_tape
from zinc_rt.trace.writer import LogWriter

PENALISED = {"presence_penalty": 0.4, "frequency_penalty": 0.3, "repetition_penalty": 1.2}


class EveryThirdTokenMask(FakeMask):
    """Permits ids that are congruent to the number of tokens modulo 3."""

    def fill(self, words: np.ndarray) -> None:
        super().fill(words)
        bits = np.arange(32 * len(words)) % 3 == len(self.tokens) % 3
        words[:] = np.packbits(bits, bitorder="little").view(np.int32)


def serve(
    path: Path, model: str, tier: str, drafter: ScriptedDrafter | None = None
) -> tuple[list[list[int]], int]:
    """A recorded run with penalties, biases, masks (in time and late), forks that copy pages, and greedy requests.
    Return the tokens of all answers, and the submissions."""
    limits = SequenceLimits(ctx=96, slots=4, step_tokens=40, rows=16 if drafter else 4, state_rows=12)
    device = "sim" if tier in ("t1", "t2") else "auto"
    backend = open_backend(choose_tier(tier, device), "canonical-1")
    gguf = read_gguf(FOLDER / f"{model}.gguf")
    with Engine(gguf, backend, limits=limits) as engine, record(engine, path, warn=lambda line: None):
        llm = Answering(engine, drafter=drafter, drafts=3 if drafter else 0)
        if llm.scheduler.speculation is not None:
            llm.scheduler.speculation.adaptive = False
        pool = ManualPool(llm.scheduler.fills, lambda: 0)
        drawn = Sampling(max_tokens=6, temperature=0.9, seed=3, ignore_eos=True)
        asked = [
            llm.submit(list(range(1, 22)), Sampling(max_tokens=5, temperature=1.1, seed=9, n=2, ignore_eos=True)),
            llm.submit([5, 6], Sampling(max_tokens=7, temperature=0.7, seed=1, ignore_eos=True, **PENALISED)),
            llm.submit([7, 8, 9], drawn, grammar=EveryThirdTokenMask()),
            llm.submit([7, 8], Sampling(max_tokens=5, ignore_eos=True)),
            llm.submit([4], Sampling(max_tokens=5, logit_bias={3: 5.0, 8: -9.0}, logprobs=2, ignore_eos=True)),
        ]
        step = 0
        while not all(item.done for item in asked):
            step += 1
            pool.held = 3 <= step < 9
            llm.step()
            if step == 5 or not pool.held:
                pool.release()
        assert llm.scheduler.counts.masks_late
        answers = [answer.token_ids for item in asked for answer in item.answers]
        return answers, engine.runner.steps


def tape_of(path: Path) -> Tape:
    with LogReader(path) as log:
        return read_tape(log)


@pytest.fixture(scope="module")
def recorded_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("drawn") / "run.zlog"
    serve(path, "qwen3-q", "t_cpu")
    yield path


@pytest.mark.parametrize("model", ["qwen3-q", "qwen35moe-q", "gemma4-q"])
@pytest.mark.rest(keep=1)
def test_log_has_every_submission(model: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zlog"
    _, steps = serve(path, model, "t_cpu")
    tape = tape_of(path)
    assert len(tape.steps) == steps and not tape.unused
    names = [tape.graphs[step.graph].graph.name for step in tape.steps]
    architecture = names[0].partition("-")[0]
    for wanted in ("copy-0", "late-sample", f"{architecture}-decode-sample", f"{architecture}-prefill-sample"):
        assert any(name.startswith(wanted) for name in names), wanted
    outcome = replay(path, tier="t_cpu")
    assert outcome.equal and outcome.steps == steps and not outcome.problems


@pytest.mark.parametrize("tier", ["t_cpu_native", "t1"])
@pytest.mark.rest(keep=1)
def test_drafts_are_recorded_and_replayed(tmp_path: Path, tier: str) -> None:
    """Masks along the drafts, late ones too: the answers are those of plain decoding."""
    plain, steps = serve(tmp_path / "plain.zlog", "qwen3-q", tier)
    prompts = {1: 21, 2: 2, 3: 3, 4: 2, 5: 1}
    answers = dict(zip([(1, 0), (1, 1), (2, 0), (3, 0), (4, 0), (5, 0)], plain, strict=True))

    def find_target(number: int, choice: int, position: int) -> int | None:
        known = answers[number, choice][position - prompts[number] :]
        return known[0] if known else None

    drafter = ScriptedDrafter(find_target, 512, "share", acceptance=0.8)
    drafted, fewer = serve(tmp_path / "run.zlog", "qwen3-q", tier, drafter)
    assert drafted == plain and drafter.drafted > 9 and fewer < steps
    outcome = replay(tmp_path / "run.zlog", tier="t_cpu")
    assert outcome.equal and outcome.steps == fewer and not outcome.problems


@pytest.mark.parametrize("tier", ["t_cpu_native", "vulkan", "t1", "t2"])
@pytest.mark.rest(keep=1)
def test_draws_replay_on_another_tier(recorded_log: Path, tier: str) -> None:
    outcome = replay(recorded_log, tier=tier)
    assert outcome.equal, outcome.text


@pytest.mark.parametrize("tier", ["t_cpu_native", "t1"])
@pytest.mark.rest
def test_draws_of_a_fast_tier_replay_on_the_oracle_in_another_process(tmp_path: Path, tier: str) -> None:
    path = tmp_path / "run.zlog"
    answers, _ = serve(path, "qwen3-q", tier)
    assert answers == serve(tmp_path / "other.zlog", "qwen3-q", "t_cpu")[0]
    for other in ("t_cpu", "t_cpu_native"):
        code = "import sys; from zinc_rt.replay.command import main; sys.exit(main(sys.argv[1:]))"
        words = [sys.executable, "-c", code, str(path), "--tiers", other]
        result = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0 and "PASS" in result.stdout, result.stdout + result.stderr


def serve_in_virtual_time(path: Path, tier: str, seconds: int) -> tuple[int, int, list[list[int]]]:
    """Record a server with steps of 20 ms and a request of a random kind every five seconds, with masks that are
    sometimes late. Return the submissions, the late masks, and all answers.
    """
    random = Random(seconds)
    limits = SequenceLimits(ctx=96, slots=4, step_tokens=24, rows=4, pages=(20,))
    backend = open_backend(choose_tier(tier), "canonical-1")
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    with Engine(gguf, backend, limits=limits) as engine, record(engine, path, warn=lambda line: None):
        llm = Answering(engine)
        now, pool = [llm.scheduler.now_ns], ManualPool(llm.scheduler.fills, lambda: 0)
        end = now[0] + seconds * 10**9
        llm.scheduler.clock_ns = lambda: now[0]
        asked, arrives = list[SubmittedPrompt](), now[0]
        while now[0] < end or not all(item.done for item in asked):
            if arrives <= now[0] < end:
                prompt, sampling = any_request(random)
                mask = EveryThirdTokenMask() if random.random() < 0.4 else None
                asked.append(llm.submit(prompt, sampling, grammar=mask))
                arrives += int(random.expovariate(0.2) * 1e9)
            elif all(item.done for item in asked):
                now[0] = arrives  # nobody asks for anything until then
                continue
            pool.held = random.random() < 0.2
            if not pool.held:
                pool.release()
            llm.step()
            now[0] += 20 * MS
        assert llm.scheduler.counts.failed_steps == 0 and not llm.scheduler.check()
        answers = [answer.token_ids for item in asked for answer in item.answers]
        return engine.runner.steps, llm.scheduler.counts.masks_late, answers


def any_request(random: Random) -> tuple[list[int], Sampling]:
    prompt = [random.randrange(256) for _ in range(random.choice([1, 3, 20, 40]))]
    ways: list[dict[str, Any]] = [
        {}, {"temperature": 1.0, **PENALISED}, {"temperature": 0.8, "top_k": 20, "logprobs": 2},
        {"temperature": 1.2, "n": 2}, {"logit_bias": {3: 5.0, 8: -9.0}, "temperature": 0.5},
    ]  # fmt: skip
    sampling = Sampling(random.randint(1, 20), seed=random.randrange(99), ignore_eos=True, **random.choice(ways))
    return prompt, sampling


@pytest.mark.rest
def test_thousand_seconds_of_serving_replay(tmp_path: Path, slow_counts: Counts) -> None:
    path = tmp_path / "run.zlog"
    steps, late, answers = serve_in_virtual_time(path, "t_cpu_native", slow_counts(60, 1000))
    assert late and len(answers) > slow_counts(8, 150)
    for tier in ("t_cpu", "t_cpu_native", "t1", "t2")[: slow_counts(2, 4)]:
        outcome = replay(path, tier=tier)
        assert outcome.equal and outcome.steps == steps, outcome.text


# --- what is missing, and what is wrong


def drop_records(tape: Tape, log: Path, target: Path, dropped: Callable[[Any], bool]) -> Path:
    """Write the same log without some of its records."""
    with LogReader(log) as source:
        writer = LogWriter(target, source.header, warn=lambda line: None)
        for kind in source:
            for name in ("ir", "blob"):
                if digest := getattr(kind, name, ""):
                    writer.write_blob(source.read_blob(digest))
            if not dropped(kind):
                writer.write(kind)
        writer.close()
    return target


def is_block_of(tape: Tape, number: int) -> Callable[[Any], bool]:
    """Return whether a record is the write of a step block."""
    step = tape.steps[number]
    blocks = [write for write in step.writes if (write.graph, write.key) == (step.graph, step.key)]
    return lambda kind: kind in blocks


def is_write_of_counts(kind: Any) -> bool:
    return getattr(kind, "buffer", "") == COUNTS


def find_first_step(tape: Tape, name: str) -> int:
    return next(step.number for step in tape.steps if name in tape.graphs[step.graph].graph.name)


@pytest.mark.parametrize("fault", ["counts", "block", "late block"])
def test_log_without_an_input_of_a_draw_is_rejected(recorded_log: Path, tmp_path: Path, fault: str) -> None:
    tape = tape_of(recorded_log)
    if fault == "counts":
        gone = is_write_of_counts
        text = "step \\d+ delivers tokens, and the token counts of slot \\d were not recorded"
    else:
        number = find_first_step(tape, "late-sample" if fault == "late block" else "decode-sample")
        gone = is_block_of(tape, number)
        text = f"step {number} delivers tokens, and .* was not recorded"
    cut = drop_records(tape, recorded_log, tmp_path / "cut.zlog", gone)
    assert len(tape_of(cut).steps) == len(tape.steps)
    for run in (partial(replay, tier="t_cpu"), partial(bisect, choice=ORACLE)):
        with pytest.raises(InputError, match=text):
            run(cut)


def change_one_row(result: np.ndarray) -> np.ndarray:
    result[-1] = (result[-1] + 1) % 50
    return result


def forget_seed(code: Code) -> Code:
    """The store of the records omits the seed."""

    def store_changed(math: Any, value: np.ndarray, slot: np.ndarray, table: np.ndarray) -> None:
        value = value.copy()
        value[:, find_column("seed")] = 0
        code(math, value, slot, table)

    return store_changed


def ignore_mask(code: Code) -> Code:
    def adjust_changed(*operands: Any) -> Any:
        return code(*operands[:-2], None, None)

    return adjust_changed


def ignore_penalties(code: Code) -> Code:
    def adjust_changed(
        math: Any, logits: Any, slot: Any, position: Any, record: Any, counts: Any, *more: Any
    ) -> Any:
        return code(math, logits, slot, position, record, np.zeros_like(counts), *more)

    return adjust_changed


def omit_first_row(code: Code) -> Code:
    def store_changed(math: Any, value: np.ndarray, slot: np.ndarray, table: np.ndarray) -> None:
        code(math, value[1:], slot[1:], table)

    return store_changed


def shift_slot(code: Code) -> Code:
    def load_shifted(math: Any, table: np.ndarray, slot: np.ndarray) -> Any:
        return code(math, table, slot ^ 1)

    return load_shifted


def change_tokens(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """With other tokens."""
    return *parts[:-1], parts[-1] ^ 1


def deliver_to_next_slot(code: Code) -> Code:
    def deliver_changed(math: Any, token: Any, slot: np.ndarray, *more: Any) -> None:
        code(math, token, (slot + 1) % 4, *more)

    return deliver_changed


NODES = {  # what is planted: the node that bisect names
    "sampler": (
        "token",
        PlantedFault("token", code=lambda code: lambda *argument: change_one_row(code(*argument))),
    ),
    "logprob": (
        "logprob",
        PlantedFault(
            "logprob", code=lambda code: lambda *argument, **own: code(*argument[:2], argument[2] ^ 1, **own)
        ),
    ),
    "seed": ("record", PlantedFault("record", code=forget_seed)),
    "mask": ("logits_adjusted", PlantedFault("logits_adjusted", code=ignore_mask)),
    "penalties": ("logits_adjusted", PlantedFault("logits_adjusted", code=ignore_penalties)),
    "copy": ("store-1", PlantedFault("store-1", code=omit_first_row)),
    "kept logits": ("kept_logits", PlantedFault("kept_logits", op="STORE_REQUEST_STATE", code=omit_first_row)),
    "delivery": ("stream_out", PlantedFault("stream_out", code=deliver_to_next_slot)),
    "late draw": ("kept_logits", PlantedFault("kept_logits", op="LOAD_REQUEST_STATE", code=shift_slot)),
}


@pytest.mark.parametrize("fault", NODES)
@pytest.mark.rest(keep=1)
def test_bisect_names_the_faulty_node(recorded_log: Path, fault: str) -> None:
    label, plant = NODES[fault]
    result = bisect(recorded_log, lambda ordering: PlantedBackend(ordering, plant))
    assert result.where is not None and result.where.label == label, result.lines
    assert result.where.op == (plant.op or result.where.op) and result.replays <= result.allowed


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "drawn"])
@pytest.mark.rest(keep=1)
def test_token_in_the_wrong_slot_is_an_error_and_found_in_the_log(tmp_path: Path, temperature: float) -> None:
    """The run stops at the step, whose log then differs from a correct device in the ring alone."""
    path, plant = tmp_path / "run.zlog", NODES["delivery"][1]
    gguf, limits = read_gguf(FOLDER / "qwen3-q.gguf"), SequenceLimits(ctx=64, slots=4, step_tokens=16, rows=4)
    backend = PlantedBackend("canonical-1", plant)
    with Engine(gguf, backend, limits=limits) as engine, record(engine, path, warn=lambda line: None):
        llm = Answering(engine)
        asked = llm.submit([1, 2], Sampling(max_tokens=3, temperature=temperature))
        with pytest.raises(RingError, match=r"output ring contains row 0 of slot 1 .*, expected row 0 of slot 0"):
            llm.step()
        assert not asked.answers[0].token_ids
    outcome = replay(path, tier="t_cpu")
    assert {difference.buffer for difference in outcome.differences} == {RING} and not outcome.equal
    assert replay(path, lambda ordering: PlantedBackend(ordering, plant)).equal
    result = bisect(path, lambda ordering: PlantedBackend(ordering, plant))
    assert result.where is not None and result.where.label == "stream_out", result.lines


def swap_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host seals a record after it changed the seed."""
    fill = RowSampler._fill_records

    def fill_changed(self: RowSampler, views: dict[str, np.ndarray], plan: StepPlan) -> None:
        fill(self, views, plan)
        records = views["sample.record"][: plan.sequences]
        records[:, find_column("seed")] ^= 8
        records[:, find_column("check")] ^= 8

    monkeypatch.setattr(RowSampler, "_fill_records", fill_changed)


def flip_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sampler, "seal_records", lambda records: None)


def swap_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = RowSampler._fill_masks

    def fill_changed(self: RowSampler, views: dict[str, np.ndarray], rows: np.ndarray, plan: StepPlan) -> None:
        fill(self, views, rows, plan)
        views["sample.mask"][0] ^= 1

    monkeypatch.setattr(RowSampler, "_fill_masks", fill_changed)


def copy_wrong_page(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = PageCopier._list_rows
    monkeypatch.setattr(PageCopier, "_list_rows", lambda self, page, tokens: rows(self, page + 1, tokens))


def delay_position(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = StepBlock.fill

    def fill_changed(self: StepBlock, plan: StepPlan) -> None:
        fill(self, plan)
        if plan.number == 4:
            self.views["request[slot].position"][0] += 1

    monkeypatch.setattr(StepBlock, "fill", fill_changed)


def use_wrong_page(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = StepBlock.fill

    def fill_changed(self: StepBlock, plan: StepPlan) -> None:
        fill(self, plan)
        self.views["step.table_value"][:1] ^= 1

    monkeypatch.setattr(StepBlock, "fill", fill_changed)


def plan_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler plans a decode one position too far."""
    plan_decodes = planning._plan_decodes

    def fill_changed(s: Any, plan: StepPlan, decodes: Any, drafts: Any) -> None:
        plan_decodes(s, plan, decodes, drafts)
        if plan.number == 4:
            plan.position[: plan.decodes] += 1

    monkeypatch.setattr(planning, "_plan_decodes", fill_changed)


GIVEN = {
    "seed": (swap_seed, "draws for slot \\d with seed"),
    "record": (flip_record, "the checksum of the record of slot \\d is wrong"),
    "mask": (swap_mask, "the mask of slot \\d "),
    "copy": (copy_wrong_page, "the plan copies rows"),
    "position": (delay_position, "the plan has positions"),
    "page": (use_wrong_page, "the changes of page table 0"),
    "plan": (plan_twice, "the plan computes position \\d+ of request"),
}


@pytest.mark.parametrize("fault", GIVEN)
@pytest.mark.rest(keep=1)
def test_step_with_inputs_other_than_planned_is_reported(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant, output = GIVEN[fault]
    path = tmp_path / "run.zlog"
    with monkeypatch.context() as planted:
        plant(planted)
        serve(path, "qwen3-q", "t_cpu")
    outcome = replay(path, tier="t_cpu")
    assert outcome.compared and not outcome.differences and not outcome.equal
    step, text = min(outcome.departures.items())
    assert re.search(output, text), text
    assert f"step {step} was not given what was planned: {text}" in outcome.text
    result = bisect(path, ORACLE)
    assert (result.step, result.where) == (step, None) and text in result.text
    assert command.main([str(path), "--tiers", "t_cpu"]) == 1
    assert f"step {step} was not given what was planned" in capsys.readouterr().out
