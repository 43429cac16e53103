"""What was recorded runs again to the bit: on its tier, on others, elsewhere, later; what cannot says why."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from replay_runs import MODELS, PROMPT, cpu_backend, record_run, run_steps
from support import Counts

from zinc_rt.engine.devices import ORACLE, Choice, choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.replay.run import replay
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.recorder import record
from zinc_rt.trace.records import LEVELS
from zinc_rt.trace.tape import read_tape
from zinc_rt.trace.writer import LogWriter

STEPS = 6  # of replay_runs.run


def simulated_tier(tier: str) -> Choice:
    return choose_tier(tier, "sim", sanitizer="fast")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.rest
def test_every_level_records_all_steps_and_replays_where_possible(model: str, tmp_path: Path) -> None:
    for level in LEVELS:
        path = record_run(tmp_path / f"{level}.zlog", model, level)
        with LogReader(path) as log:
            tape = read_tape(log)
            assert log.closed and not log.problems
        assert len(tape.steps) == STEPS and all(step.seconds is not None for step in tape.steps)
        assert all(step.outputs for step in tape.steps)
        if level == "digest":
            with pytest.raises(InputError, match="level digest"):
                replay(path, ORACLE)
            continue
        outcome = replay(path, ORACLE)
        assert outcome.equal and outcome.steps == STEPS
        assert outcome.compared == sum(len(step.outputs) for step in tape.steps)


def test_recording_changes_only_the_log(tmp_path: Path) -> None:
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    with Engine(gguf, cpu_backend(), ctx=32) as engine:
        plain = engine.forward(PROMPT)
        for level in LEVELS:
            with record(engine, tmp_path / f"{level}.zlog", level):
                assert engine.forward(PROMPT).tobytes() == plain.tobytes()
        assert engine.forward(PROMPT).tobytes() == plain.tobytes()


def test_used_engine_is_recorded_from_its_next_sequence(tmp_path: Path) -> None:
    with Engine(read_gguf(FOLDER / "qwen35moe-q.gguf"), cpu_backend(), ctx=32) as engine:
        engine.forward(PROMPT)
        half = engine.open()
        engine.extend(half, PROMPT)
        with (
            pytest.raises(UsageError, match="tokens from before the recording"),
            record(engine, tmp_path / "never.zlog"),
        ):
            pass
        engine.release(half)
        with record(engine, tmp_path / "a.zlog") as log:
            run_steps(engine)
            with pytest.raises(UsageError, match="already being recorded"), record(engine, tmp_path / "b.zlog"):
                pass
        assert log.steps == STEPS
    assert replay(tmp_path / "a.zlog", ORACLE).equal


def test_recording_replays_on_a_named_tier() -> None:
    with Engine(read_gguf(FOLDER / "qwen3-q.gguf"), cpu_backend(), ctx=32) as engine, record(engine) as log:
        run_steps(engine)
    assert replay(log, tier="t_cpu").equal and replay(log).tier == "t_cpu"


def test_part_of_a_log_can_be_replayed_and_compared(tmp_path: Path) -> None:
    path = record_run(tmp_path / "a.zlog", "qwen3-q")
    whole = replay(path, ORACLE)
    part = replay(path, ORACLE, until=3, start=2)
    assert part.equal and (part.steps, part.compared) == (4, whole.compared // STEPS * 2)
    for until, start in ((STEPS, 0), (-1, 0), (2, 3)):
        with pytest.raises(UsageError, match=r"--(until|from)"):
            replay(path, ORACLE, until=until, start=start)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.rest(keep=1)
def test_log_with_weights_needs_no_model(model: str, tmp_path: Path) -> None:
    moved = tmp_path / "m.gguf"
    shutil.copy(FOLDER / f"{model}.gguf", moved)
    with Engine(read_gguf(moved), cpu_backend(), ctx=32) as engine:
        with record(engine, tmp_path / "held.zlog", embed_weights=True):
            run_steps(engine)
        with record(engine, tmp_path / "bare.zlog"):
            run_steps(engine)
    moved.unlink()
    assert replay(tmp_path / "held.zlog", ORACLE).equal
    with pytest.raises(InputError, match="does not exist"):
        replay(tmp_path / "bare.zlog", ORACLE)
    assert replay(tmp_path / "bare.zlog", ORACLE, model=FOLDER / f"{model}.gguf").equal


def test_changed_weight_or_model_is_rejected_by_name(tmp_path: Path) -> None:
    path = record_run(tmp_path / "a.zlog", "qwen3-q")
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    tensor = gguf.tensors["blk.1.attn_q.weight"]
    content = bytearray(gguf.path.read_bytes())
    index = bytes(content).index(tensor.data.tobytes())
    content[index + 5] ^= 4
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(content)
    with pytest.raises(InputError) as refused:
        replay(path, ORACLE, model=changed)
    with LogReader(path) as log:
        want = read_tape(log).weights["model.attn.q_weight[1]"].sha256
    assert "the bytes of model.attn.q_weight[1] differ" in str(refused.value) and want in str(refused.value)
    with pytest.raises(InputError, match="recorded"):
        replay(path, ORACLE, model=FOLDER / "gemma4-q.gguf")


def test_output_differing_from_the_recording_is_named(tmp_path: Path) -> None:
    path = record_run(tmp_path / "a.zlog", "qwen3-q", "full", embed_weights=True)
    other = record_run(tmp_path / "b.zlog", "qwen3-q", "full")
    with LogReader(other) as log:
        kept = list(log)
        blobs = {item.blob: log.read_blob(item.blob) for item in kept if getattr(item, "blob", "")}
        irs = {item.ir: log.read_blob(item.ir) for item in kept if isinstance(item, records.GraphCreated)}
        header = log.header
    with LogWriter(path, header) as writer:
        for content in (blobs | irs).values():
            writer.write_blob(content)
        for text in kept:
            if isinstance(text, records.Output) and (text.step, text.label) == (2, "ffn_norm-1"):
                text = replace(text, sha256="0" * 64)
            writer.write(text)
    outcome = replay(path, ORACLE)
    assert [(difference.step, difference.label) for difference in outcome.differences] == [(2, "ffn_norm-1")]
    assert "ffn_norm-1" in outcome.text and not outcome.equal


def test_truncated_log_replays_its_complete_steps(tmp_path: Path) -> None:
    path = record_run(tmp_path / "a.zlog", "qwen3-q")
    data = path.read_bytes()
    with LogReader(path) as log:
        steps = read_tape(log).steps
    path.write_bytes(data[: len(data) * 19 // 20])
    outcome = replay(path, ORACLE)
    assert outcome.compared > 0 and outcome.equal and outcome.steps < len(steps) + 1
    assert any("not closed" in problem for problem in outcome.problems)


def test_log_damaged_before_its_end_is_rejected(tmp_path: Path) -> None:
    path = record_run(tmp_path / "a.zlog", "qwen3-q")
    whole = bytearray(path.read_bytes())
    index = whole.rindex(b'"buffer":"request[slot].token_id"')
    whole[index + 12] ^= 1
    path.write_bytes(whole)
    with pytest.raises(InputError, match=r"damaged and was skipped, and a step may need the missing data"):
        replay(path, ORACLE)


@pytest.mark.rest
def test_fresh_process_replays_the_log(tmp_path: Path) -> None:
    path = record_run(tmp_path / "a.zlog", "qwen3-q")
    code = "import sys; from zinc_rt.replay.command import main; sys.exit(main(sys.argv[1:]))"
    result = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and result.stdout.splitlines()[-1].startswith("PASS"), result.stderr


@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.rest(keep=1)
def test_logs_replay_across_tiers(tier: str, tmp_path: Path) -> None:
    from_cpu = record_run(tmp_path / "cpu.zlog", "qwen3-q")
    outcome = replay(from_cpu, simulated_tier(tier))
    assert outcome.equal and (outcome.tier, outcome.recorded_tier) == (tier, "t_cpu")
    backend = open_backend(simulated_tier(tier), "canonical-1")
    from_gpu = record_run(tmp_path / "gpu.zlog", "qwen3-q", "full", backend=backend)
    with LogReader(from_gpu) as log:
        tape = read_tape(log)
        assert "rms_norm" in tape.kernels and log.read_blob(tape.kernels["rms_norm"].blob)
    for choice in (ORACLE, simulated_tier(tier)):
        outcome = replay(from_gpu, choice)
        assert outcome.equal and not outcome.problems and not outcome.findings


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tier", ["t1", "t2"])
def test_every_model_round_trips_on_every_tier(tier: str, model: str, tmp_path: Path, slow_counts: Counts) -> None:
    backend = open_backend(simulated_tier(tier), "canonical-1")
    path = record_run(tmp_path / "gpu.zlog", model, "full", backend=backend)
    for choice in (ORACLE, simulated_tier("t1"), simulated_tier("t2")):
        outcome = replay(path, choice)
        assert outcome.equal, outcome.text
