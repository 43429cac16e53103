"""Any mix is alone: shown on T-CPU, and what a wrong row, a wrong token, a wrong plan and a crash are called."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Counts
from vulkan_driver import require_driver

from zinc_rt.engine.embedding import HiddenStates
from zinc_rt.engine.model_runner import ModelRunner
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import build_tiny, write_content, write_tiny
from zinc_rt.model.builder import Model
from zinc_rt.sched.checks.drafters import KINDS
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.planning import _plan_decodes as plan_decodes
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.state import SchedulerState
from zinc_rt.validate.command import main
from zinc_rt.validate.isolation.server import MixServer
from zinc_rt.validate.isolation.trial import MixTrial
from zinc_rt.validate.isolation.witness import StepWitness

QWEN3 = FOLDER / "qwen3-q.gguf"
Run = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """run(option, ...): exit code, words, report."""

    def run_isolation(*options: str, model: Path = QWEN3) -> tuple[int, str, dict[str, Any]]:
        path = tmp_path / "report.json"
        code = main(["--isolation", "--model", str(model), *options, "--json", str(path)])
        return code, capsys.readouterr().out, json.loads(path.read_text()) if path.exists() else {}

    return run_isolation


@pytest.fixture(autouse=True)
def cached_answers(shared_answers: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests alone are the same in every test."""
    real = MixTrial.__init__

    def begin_with_shared_answers(self: MixTrial, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        self._alone = shared_answers.setdefault((self.job.name, self.seed, self.count, self.mixes > 1), {})

    monkeypatch.setattr(MixTrial, "__init__", begin_with_shared_answers)


@pytest.fixture(scope="module")
def shared_answers() -> dict[Any, Any]:
    return {}


def test_mixed_requests_match_solo_runs(run: Run, slow_counts: Counts) -> None:
    code, output, report = run("--requests", str(slow_counts(6, 40)), "--seed", "5")
    assert code == 0, output
    assert "each equal to its solo run, to the bit" in output and output.splitlines()[-1].startswith("PASS")
    names = [result["id"].rpartition("/")[2] for result in report["results"]]
    assert names == ["rows", "deliveries", "invariants", "plans"]
    (mix,) = report["details"]["mixes"]
    assert mix["rows"] > 20 and mix["befell"]["hits"] and mix["befell"]["forks"]


@pytest.mark.rest
@pytest.mark.parametrize("drafts", [(), ("--drafts", "liar")])
def test_late_masks_change_nothing(run: Run, drafts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are late: they are sampled by later steps."""
    real = MixServer.__init__

    def begin_impatiently(self: MixServer, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        self.scheduler.fills.wait = lambda pending, seconds: None

    monkeypatch.setattr(MixServer, "__init__", begin_impatiently)
    code, output, _ = run("--requests", "24", "--seed", "4", "--tiers", "t_cpu_native", *drafts)
    assert code == 0, output


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["qwen3-q", "gemma4-q", "qwen35moe-q"])
@pytest.mark.parametrize("tier", ["t_cpu", "vulkan", "t1", "t2"])
def test_every_model_runs_on_every_tier(run: Run, stem: str, tier: str) -> None:
    """O1: 200 steps and more, the sanitizer at full."""
    if tier == "vulkan":
        require_driver()
    device = ["--device", "sim", "--sanitizer", "full"] if tier in ("t1", "t2") else []
    code, output, report = run("--tiers", tier, *device, "--requests", "90", model=FOLDER / f"{stem}.gguf")
    assert code == 0, output
    (mix,) = report["details"]["mixes"]
    assert mix["steps"] >= 200 and min(mix["befell"].values()) > 0, mix


@pytest.mark.rest
def test_drafted_requests_match_solo_runs_with_a_prefill_ordering(run: Run) -> None:
    """Draft rows have the ordering of decodes, in steps that also have tokens of prompts."""
    code, output, report = run(
        "--tiers", "t_cpu_native", "--requests", "4", "--seed", "5", "--drafts", "off_by_one",
        "--prefill-ordering", "wmma-bf16",
    )  # fmt: skip
    assert code == 0, output
    assert report["details"]["mixes"][0]["rows"] > 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.rest(keep=1)
def test_drafted_requests_match_solo_runs(run: Run, kind: str) -> None:
    code, output, report = run("--requests", "6", "--seed", "5", "--drafts", kind)
    assert code == 0, output
    assert f"drafts: {kind}, 3 a request in each step" in output
    (mix,) = report["details"]["mixes"]
    assert mix["rows"] > 20


def test_mixes_with_drafts_of_the_files_own_layer(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "mtp.gguf"
    write_tiny(model, "qwen35moe", quant="q", mtp=1)
    options = ("--tiers", "t_cpu_native", "--requests", "4", "--seed", "5", "--mixes", "4", "--kv-type", "f16")
    code, output, report = run(*options, "--drafts", "mtp", model=model)
    assert code == 0, output
    assert "qwen35moe, canonical-1-kv-f16; 4 requests" in output and "drafts: mtp, 3 a request" in output
    assert report["details"]["totals"]["t_cpu_native"]["rows"] > 40


def test_mixes_of_a_pool_run_on_one_engine(run: Run) -> None:
    options = ("--tiers", "t_cpu_native", "--requests", "2", "--seed", "5", "--drafts", "all", "--mixes", "6")
    code, output, report = run(*options)
    assert code == 0, output
    totals = report["details"]["totals"]["t_cpu_native"]
    assert totals["mixes"] == 6 and totals["failed"] == 0 and totals["rows"] > 40
    assert len(report["details"]["mixes"]) == 1 and "6 mixes, 0 failed" in output
    assert all(f"drafts: {kind}" in output for kind in KINDS)


def test_failed_mix_names_its_number(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.sched.commit._follow_committed", accept_every_draft)
    options = ("--tiers", "t_cpu_native", "--requests", "2", "--seed", "5", "--drafts", "all", "--mixes", "20")
    code, _, report = run(*options)
    assert code == 1 and report["details"]["totals"]["t_cpu_native"]["failed"] == 4
    failed = [result for result in report["results"] if result["status"] == "fail"]
    assert re.search(r"--drafts all --seed 5 --requests 2( --mixes \d+)?$", failed[0]["repro"])
    assert "--mixes" in failed[-1]["repro"]


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["qwen3-q", "gemma4-q", "qwen35moe-q"])
@pytest.mark.parametrize("kind", ["share", "liar"])
@pytest.mark.parametrize("tier", ["t_cpu", "t_cpu_native", "vulkan", "t1", "t2"])
def test_every_tier_decodes_speculatively(run: Run, stem: str, kind: str, tier: str) -> None:
    if tier == "vulkan":
        require_driver()
    device = ["--device", "sim", "--sanitizer", "full"] if tier in ("t1", "t2") else []
    model = FOLDER / f"{stem}.gguf"
    code, output, _ = run("--tiers", tier, *device, "--requests", "90", "--drafts", kind, model=model)
    assert code == 0, output


def accept_every_draft(s: SchedulerState, plan: StepPlan, rows: np.ndarray) -> np.ndarray:
    slots, inputs = plan.row_slot[rows], plan.logit_row[rows]
    follows: np.ndarray = s.slots.decoding[slots] & (s.slots.position[slots] == plan.position[inputs])
    return follows


def reuse_random_number(s: SchedulerState, plan: StepPlan, decodes: Any, drafts: Any) -> None:
    """Sample all rows of a decode at one position."""
    plan_decodes(s, plan, decodes, drafts)
    plan.row_position[: plan.rows] = s.slots.position[plan.row_slot[: plan.rows]] + 1


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("function", "fault", "kind", "message"),
    [
        ("commit._follow_committed", accept_every_draft, "wrong", "expected"),
        ("planning._plan_decodes", reuse_random_number, "right", "samples position"),
    ],
)
def test_fault_of_speculation_is_named(
    function: str, fault: Any, kind: str, message: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"zinc_rt.sched.{function}", fault)
    code, output, _ = run("--requests", "6", "--seed", "5", "--drafts", kind)
    assert code == 1 and message in output
    assert "suspect    the plans themselves are wrong: suspect the scheduler" in output
    assert f"--drafts {kind}" in output


def draw_other_token(change: Callable[[Drawn], None], index: int) -> Any:
    """Wrap ModelRunner.collect and change its result in the step with that number."""
    real, steps = ModelRunner.collect, [0]

    def collect_other_draw(self: ModelRunner, running: Any) -> Drawn:
        drawn = real(self, running)
        steps[0] += bool(len(drawn.tokens))
        if steps[0] == index and len(drawn.tokens):
            change(drawn)
        return drawn

    return collect_other_draw


@pytest.mark.rest
def test_different_token_from_equal_logits_suspects_the_sampler(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def change_drawn(drawn: Drawn) -> None:
        drawn.tokens[0] = (drawn.tokens[0] + 1) % 500

    monkeypatch.setattr(ModelRunner, "collect", draw_other_token(change_drawn, 4))
    code, output, report = run("--requests", "3", "--seed", "5")
    assert code == 1 and "from logits that are equal to the bit" in output
    assert "suspect    equal logits, another token: suspect the sampler" in output
    bad = next(result for result in report["results"] if result["id"].endswith("/rows"))["first_bad"]
    assert {"request", "step", "slot", "position", "befell", "beside"} <= bad.keys()
    assert "repro      zinc-rt validate --isolation --model" in output and "--seed 5 --requests 3" in output


@pytest.mark.rest
def test_different_logits_row_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real, steps = StepWitness.compare_step, [0]

    def observe_changed(self: StepWitness, plan: StepPlan, logits: np.ndarray) -> None:
        steps[0] += 1
        logits = logits.copy()
        logits[0, 7] += steps[0] == 5
        real(self, plan, logits)

    monkeypatch.setattr(StepWitness, "compare_step", observe_changed)
    code, output, _ = run("--requests", "3", "--seed", "5")
    assert code == 1 and "1 logits differ, the first is 7" in output and "\nbeside     " in output
    assert "suspect    the plans are right, but the results are not" in output


@pytest.mark.rest
def test_wrong_plan_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Scheduler.schedule

    def schedule_faulty(self: Scheduler) -> StepPlan:
        plan = real(self)
        if self.counts.steps == 6:
            plan.row_position[: plan.rows] += 1
        return plan

    monkeypatch.setattr(Scheduler, "schedule", schedule_faulty)
    code, output, _ = run("--requests", "3", "--seed", "5")
    assert code == 1 and "samples position" in output
    assert "suspect    the plans themselves are wrong: suspect the scheduler" in output


@pytest.mark.rest
def test_stalled_scheduler_is_a_finding(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Scheduler.schedule

    def schedule_faulty(self: Scheduler) -> StepPlan:
        assert self.counts.steps < 6, "a book that does not balance"
        return real(self)

    monkeypatch.setattr(Scheduler, "schedule", schedule_faulty)
    code, output, _ = run("--requests", "3", "--seed", "5")
    assert (
        code == 1 and "stopped in test_isolation.schedule" in output and "a book that does not balance" in output
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ordering", "float32-dequant"], "does not guarantee"),
        (["--requests", "0"], "--requests 0: expected 1 or more"),
        (["--tokens", "1,2"], "--tokens cannot be used with --isolation"),
    ],
)
def test_invalid_arguments_are_rejected(
    options: list[str], message: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--isolation", "--model", str(QWEN3), *options]) == 2
    assert message in capsys.readouterr().err


# --- embedding models ----------------------------------------------------------------------------------------


def write_embedder(path: Path, pooling: int) -> Path:
    content = build_tiny("qwen3", layers=1)
    write_content(path, replace(content, metadata={**content.metadata, "pooling_type": pooling}))
    return path


def test_embeddings_match_solo_runs(run: Run, tmp_path: Path) -> None:
    """A mean needs every row: prompts are split into steps, evicted and computed again."""
    model = write_embedder(tmp_path / "mean.gguf", 1)
    code, output, report = run("--tiers", "t_cpu", "--requests", "12", model=model)
    assert code == 0, output
    assert re.search(r"12 embeddings, each equal to its solo run", output)
    (mix,) = report["details"]["mixes"]
    assert mix["embeddings"] == 12 and mix["events"] and mix["befell"]["chunks"]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("architecture", ["bertrank", "bert", "nomicbert", "qwen3rank"])
def test_encoders_and_rerankers_match_solo_runs(architecture: str, run: Run, tmp_path: Path) -> None:
    model = tmp_path / f"{architecture}.gguf"  # a name for each, by which answers are kept
    write_tiny(model, architecture, layers=1)
    code, output, report = run("--tiers", "t_cpu,t_cpu_native", "--requests", "8", model=model)
    assert code == 0, output
    assert [mix["embeddings"] for mix in report["details"]["mixes"]] == [8, 8]


def test_lost_hidden_state_is_found(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of an earlier step are overwritten: the last row and the token are right, the mean is not."""
    real = HiddenStates.collect

    def collect_with_a_lost_row(self: HiddenStates, plan: StepPlan, hidden: np.ndarray) -> None:
        real(self, plan, hidden)
        for piece in plan.prompts:
            if not piece.draws:
                self._hidden[piece.request.number][piece.first] = 0.0

    monkeypatch.setattr(HiddenStates, "collect", collect_with_a_lost_row)
    model = write_embedder(tmp_path / "mean.gguf", 1)
    code, output, _ = run("--tiers", "t_cpu", "--requests", "12", model=model)
    assert code == 1
    assert re.search(r"first bad  mean, t_cpu: request \d+, step \d+, .* values of its embedding differ", output)


def test_prefix_cache_of_a_mean_is_found(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached tokens have no hidden states: a mean over them is wrong."""
    monkeypatch.setattr(Model, "caches_prompts", True)
    model = write_embedder(tmp_path / "mean.gguf", 1)
    code, output, _ = run("--tiers", "t_cpu", "--requests", "12", model=model)
    assert code == 1 and "values of its embedding differ" in output


def test_drafts_of_an_embedding_model_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_embedder(tmp_path / "embedder.gguf", 3)
    assert main(["--isolation", "--model", str(model), "--tiers", "t_cpu", "--drafts", "liar"]) == 2
    assert "--drafts liar: embedder is an embedding model, and generates no text" in capsys.readouterr().err
