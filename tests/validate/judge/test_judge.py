"""Judging engines: healthy ones have no findings, lying ones are found, and each finding can be sent again."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "serve"))
from embedded_server import RunningServer, make_config, run_server
from lying_proxy import LIES, SAMPLER_LIES, ProxyFault, RecordedAnswers, lying_proxy
from patched_models import PATCHES

from zinc_rt.engine.opening import find_model_file
from zinc_rt.serve.config.settings import DeviceSettings, ModelSettings
from zinc_rt.validate.judge import command
from zinc_rt.validate.judge.answers import (
    AnswerJudge,
    JudgeLimits,
    NumericSample,
    compare_numerics,
    estimate_temperature,
)
from zinc_rt.validate.judge.command import main
from zinc_rt.validate.judge.distribution import SETTINGS
from zinc_rt.validate.judge.engine_client import EngineAnswer, EngineClient, EngineFeatures, ReportedToken
from zinc_rt.validate.judge.engines import ENGINES
from zinc_rt.validate.judge.judgement import EngineJudgement, JudgeOptions, judge_engine
from zinc_rt.validate.judge.oracle import NextToken, Oracle, open_oracle
from zinc_rt.validate.judge.questions import JudgeQuestion
from zinc_rt.validate.judge.report import make_results
from zinc_rt.validate.judge.reproduce import shows_defect
from zinc_rt.validate.judge.sampler_check import check_seeds, find_draw_distance, kolmogorov_probability
from zinc_rt.validate.judge.schedule import AskedQuestion
from zinc_rt.validate.judge.verdict import EngineDefect, mean_numerics

MODEL = "qwen3-q"
FEW = JudgeOptions(answers=8, distinct=20, positions=8, samples=0, ctx=160, threads=1)
OPTIONS = {  # of lies that show only in long prompts, or in many samples
    "context shifted": replace(FEW, ctx=256),
    "other temperature": replace(FEW, samples=200),
}
NAMED = {lie.name: lie for lie in LIES}


@pytest.fixture(scope="module")
def running_engine() -> Iterator[RunningServer]:
    models = (ModelSettings(MODEL, MODEL, ctx=256, slots=8),)
    yield from run_server(make_config(models=models, device=DeviceSettings("t_cpu_native", threads=1)))


@pytest.fixture(scope="module")
def reference() -> Iterator[Oracle]:
    """Yield the reference, which keeps what it computes for the tests after it."""
    with open_oracle(find_model_file(MODEL), 256, threads=1) as oracle:
        yield oracle


@pytest.fixture(scope="module")
def recorded() -> RecordedAnswers:
    """Return the engine's answers to earlier tests: it answers a request once alone and once beside others."""
    return RecordedAnswers(delay_seconds=0.0)


def judged(url: str, options: JudgeOptions = FEW, opened: Oracle | None = None) -> EngineJudgement:
    return judge_engine(EngineClient(url), find_model_file(MODEL), options, opened)


def test_our_engine_has_no_findings(running_engine: RunningServer) -> None:
    judgement = judged(running_engine.url)
    assert [finding.kind for finding in judgement.findings] == []
    assert judgement.numerics["max"] < 1e-9  # the bits of the reference, through JSON
    assert judgement.skipped == []
    assert min(judgement.answers.values()) >= 8


def assert_found(engine: RunningServer, fault: ProxyFault, reference: Oracle, recorded: RecordedAnswers) -> None:
    with lying_proxy(engine.url, fault, "always", recorded) as (url, proxy):
        judgement = judged(url, OPTIONS.get(fault.name, FEW), reference)
        assert proxy.lies > 0
        assert judgement.findings[0].kind == fault.kind, [finding.kind for finding in judgement.findings]
        reproducer = judgement.reproducers[0]
        if reproducer is None:
            return  # a distribution is not one request's
        assert reproducer.attempts > 0
        assert reproducer.got != reproducer.expected or fault.kind == "sampler"
        (row,) = (row for row in make_results(judgement, url, "") if row.id == fault.kind)
        assert shows_defect(row.first_bad, send_curl_lines(row.repro))
    correct = send_curl_lines(reproducer.format_curl(engine.url))
    assert not shows_defect(row.first_bad, correct) or reproducer.fault == "refused"


def send_curl_lines(lines: str) -> str:
    """Send the requests of curl lines without curl, which may not be installed. Return the last response."""
    text = ""
    for line in lines.splitlines():
        words = shlex.split(line)
        assert words[:2] == ["curl", "-s"]
        data = words[words.index("-d") + 1].encode()
        with urlopen(Request(words[2], data, {"content-type": "application/json"}), timeout=60) as response:
            text = response.read().decode()
    return text


def test_missing_system_message_is_found(
    running_engine: RunningServer, reference: Oracle, recorded: RecordedAnswers
) -> None:
    assert_found(running_engine, NAMED["template without system message"], reference, recorded)


@pytest.mark.rest
@pytest.mark.parametrize("name", sorted(NAMED.keys() - {"template without system message"}))
def test_every_proxy_fault_is_detected(
    running_engine: RunningServer, reference: Oracle, recorded: RecordedAnswers, name: str
) -> None:
    assert_found(running_engine, NAMED[name], reference, recorded)


FULL = replace(FEW, sampling=240, distinct=8)


@pytest.mark.rest
def test_our_sampler_has_no_findings(running_engine: RunningServer, reference: Oracle) -> None:
    judgement = judged(running_engine.url, FULL, reference)
    assert [finding.summary for finding in judgement.findings] == []
    assert len(judgement.sampling) == len(SETTINGS)
    assert min(test.samples for test in judgement.sampling) >= FULL.sampling // 2, judgement.sampling
    assert not any(test.outside for test in judgement.sampling)


@pytest.mark.rest
@pytest.mark.parametrize("fault", SAMPLER_LIES, ids=lambda fault: fault.name)
def test_wrong_sampler_setting_is_found(
    running_engine: RunningServer, reference: Oracle, recorded: RecordedAnswers, fault: ProxyFault
) -> None:
    with lying_proxy(running_engine.url, fault, "always", recorded) as (url, _):
        judgement = judged(url, FULL, reference)
    assert [finding.kind for finding in judgement.findings] == ["sampler"]
    assert fault.name.partition(" ")[0].removesuffix("s") in judgement.findings[0].summary


@pytest.mark.rest
@pytest.mark.parametrize("name", sorted(PATCHES))
def test_every_patched_model_is_found(name: str, tmp_path: Path, reference: Oracle) -> None:
    kind, patch = PATCHES[name]
    patched = tmp_path / "patched.gguf"
    patch(find_model_file(MODEL), patched)
    models = (ModelSettings(MODEL, str(patched), ctx=256, slots=8),)
    with contextmanager(run_server)(
        make_config(models=models, device=DeviceSettings("t_cpu_native", threads=1))
    ) as engine:
        judgement = judged(engine.url, replace(FEW, ctx=256, positions=24), reference)
    assert judgement.findings[0].kind == kind, [finding.summary for finding in judgement.findings]
    reproducer = judgement.reproducers[0]
    assert reproducer is None or reproducer.attempts == 1


def predict(logits: np.ndarray) -> NextToken:
    return NextToken(logits, float(np.log(np.exp(logits).sum())), int(logits.argmax()))


def test_divergence_of_reported_tokens_equals_its_definition() -> None:
    row = predict(np.log([0.5, 0.25, 0.125, 0.125]))
    reported = ReportedToken(0, "a", math.log(0.6), {0: math.log(0.6), 1: math.log(0.2)})
    rest = 0.25 * math.log(0.25 / 0.2)
    expected = 0.5 * math.log(0.5 / 0.6) + 0.25 * math.log(0.25 / 0.2) + rest
    sample = compare_numerics(7, row, reported)
    assert sample.kl == pytest.approx(expected, abs=1e-12)
    assert sample.error == pytest.approx(math.log(0.25 / 0.2))


def _samples(early: float, late: float) -> list[NumericSample]:
    """Return exact answers to one token, and divergences of longer prompts in nats."""
    positions = [(1, 0.0)] * 6 + [(n, early) for n in range(2, 65)] + [(n, late) for n in range(128, 190)]
    return [NumericSample(position, kl, kl) for position, kl in positions]


def test_small_divergence_that_rises_with_the_position_is_a_finding() -> None:
    (finding,) = mean_numerics(_samples(1e-4, 1e-3), 2e-3)
    assert finding.kind == "position"
    assert "RoPE" in finding.summary
    assert mean_numerics(_samples(1e-3, 1e-3), 2e-3) == []  # as quantised activations cause it
    assert mean_numerics(_samples(1e-7, 1e-6), 2e-3) == []  # as f32 causes it
    assert [item.kind for item in mean_numerics(_samples(5e-3, 4e-3), 2e-3)] == ["numerics"]


def test_temperature_is_recovered_from_log_probabilities() -> None:
    logits = np.array([3.0, 1.5, 0.2, -1.0, -2.0, -4.0])

    def log_softmax(values: np.ndarray) -> np.ndarray:
        shifted: np.ndarray = values - np.log(np.exp(values).sum())
        return shifted

    scaled = log_softmax(logits / 1.4)
    reported = ReportedToken(0, "", 0.0, {token: float(scaled[token]) for token in range(5)})
    assert estimate_temperature(predict(logits), reported) == pytest.approx(1.4, rel=1e-6)
    shaken = log_softmax(logits)[:5] + np.array([0, 0.4, -0.3, 0.2, -0.5])
    noise = {token: float(value) for token, value in enumerate(shaken)}
    assert estimate_temperature(predict(logits), ReportedToken(0, "", 0.0, noise)) is None


def test_kolmogorov_has_the_published_quantiles() -> None:
    assert kolmogorov_probability(1.3581) == pytest.approx(0.05, abs=1e-4)  # the quantile of 95 %
    assert kolmogorov_probability(1.6276) == pytest.approx(0.01, abs=1e-4)
    assert kolmogorov_probability(0.1) == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give the URL of a running engine, or --engine"),
        (["--engine", "nothing"], "--engine nothing: unknown"),
        (["http://127.0.0.1:1", "--sweep"], "need --engine"),
        (["http://127.0.0.1:1"], "the connection failed"),
        (["ftp://x"], "expected the address of a server"),
        (["http://127.0.0.1:1", "--answers", "0"], "expected 1 or more"),
        (["http://127.0.0.1:1", "--key-env", "NO_SUCH_KEY"], "the environment variable is not set"),
    ],
)
def test_usage_error_is_explained(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--model", str(find_model_file(MODEL))]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("is_rare", "right", "summary"),
    [
        (False, ["-fa", "off"], "right with -fa off"),
        (True, ["-fa", "off"], "right with -fa off"),
        (False, ["--nothing"], "no change makes it right"),
        (False, [], "the defect did not occur again without a change: run it with more --answers"),
    ],
)
def test_sweep_names_the_change_that_makes_the_engine_right(
    is_rare: bool, right: list[str], summary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect that few answers do not show is not taken for repaired by a change."""

    def judge(arguments: object, url: str, *, quick: bool) -> EngineJudgement:
        is_found = right != url.split()[-len(right) :] and bool(right) and not (quick and is_rare)
        return EngineJudgement(EngineFeatures(), [EngineDefect("numerics", "")] if is_found else [])

    monkeypatch.setattr(command, "_find_url", lambda arguments, stack, words: " ".join(words))
    monkeypatch.setattr(command, "_judge", judge)
    arguments = command.parser().parse_args(["--engine", "llama-server", "--model", "M.gguf", "--sweep"])
    arguments.wrapped = []
    outcome = command._sweep(arguments)
    assert command._summarise_sweep(outcome) == summary
    assert len(outcome) == (1 + len(ENGINES["llama-server"].settings) if right else 1)


@pytest.mark.rest
def test_command_writes_the_page_and_the_report(
    running_engine: RunningServer, recorded: RecordedAnswers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, report = tmp_path / "judge.html", tmp_path / "judge.json"
    few = ["--answers", "8", "--ctx", "256", "--budget", "1"]
    with lying_proxy(running_engine.url, NAMED["stop string leaks"], "always", recorded) as (url, _):
        words = [url, "--model", str(find_model_file(MODEL)), "--html", str(page), "--json", str(report), *few]
        assert main([*words, "--share"]) == 1
    out = capsys.readouterr().out
    assert "FAIL      stop strings" in out
    assert "crowd: 2 rounds, fewer than planned" in out
    failed = [row for row in json.loads(report.read_text())["results"] if row["status"] == "fail"]
    assert [row["id"] for row in failed] == ["stop strings"]
    assert failed[0]["repro"].startswith("curl -s ")
    assert failed[0]["first_bad"]["attempts"] > 0
    assert "stop strings" in page.read_text()
    for text in (out, page.read_text(), report.read_text()):
        assert url not in text
        assert str(find_model_file(MODEL).parent) not in text


def test_tokens_omitted_inside_a_character_are_not_a_fault() -> None:
    """llama-server reports one token for a character of two: the second, with the whole character as its text."""
    with open_oracle(find_model_file(MODEL), 64, threads=1) as oracle:
        byte_tokens = {oracle.tokenizer.piece_bytes(token): token for token in range(oracle.tokenizer.vocab_size)}
        expected = byte_tokens[b"\xd0"], byte_tokens[b"\x92"]
        question = JudgeQuestion("text/0", "text", {"max_tokens": 2}, (1, 2, 3), expected)
        last = ReportedToken(expected[1], "\u0412", -0.1, {expected[1]: -0.1})
        answer = EngineAnswer("\u0412", "length", (last,), 3, 2)
        judge = AnswerJudge(oracle, JudgeLimits())
        assert judge.find_faults(question, answer, "alone") == []
        assert judge.numerics == []  # the reported values belong to another position
        alone = replace(answer, tokens=(replace(last, text="\ufffd"),))
        assert judge.find_faults(question, alone, "alone")[0].kind == "token"


@pytest.mark.parametrize(
    ("first_bad", "response", "shown"),
    [
        ({"fault": "token", "expected": " a b"}, {"choices": [{"text": " a c"}]}, True),
        ({"fault": "token", "expected": " a b"}, {"choices": [{"message": {"content": "a b"}}]}, False),
        ({"fault": "token", "expected": " a b", "special": ["<x>"]}, {"choices": [{"text": " a<x> b"}]}, False),
        ({"fault": "token", "expected": " a b"}, {"error": {"message": "no"}}, False),
        ({"fault": "refused"}, {"error": {"message": "no"}}, True),
        ({"fault": "refused"}, {"choices": [{"text": ""}]}, False),
        ({"fault": "nucleus", "answer": " x"}, {"choices": [{"text": " x"}]}, True),
        (
            {"fault": "prompt length", "expected": "4 prompt tokens"},
            {"choices": [{"text": ""}], "usage": {"prompt_tokens": 5}},
            True,
        ),
        (
            {"fault": "scale", "index": 1, "logprobs": [[-0.1, -3.0], [-0.4, -1.2]]},
            {"choices": [{"text": "", "logprobs": {"top_logprobs": [{"a": -9.0}, {"a": -0.1, "b": -3.01}]}}]},
            False,
        ),
    ],
)
def test_response_is_compared_with_the_reproducer(
    first_bad: dict[str, Any], response: dict[str, Any], shown: bool
) -> None:
    assert shows_defect(first_bad, json.dumps(response)) == shown


def test_streamed_response_is_compared_by_its_whole_text() -> None:
    events = [json.dumps({"choices": [{"text": text}]}) for text in (" a", " b")]
    lines = "\n\n".join(f"data: {event}" for event in [*events, "[DONE]"])
    assert not shows_defect({"fault": "text", "expected": " a b"}, lines)
    assert shows_defect({"fault": "text", "expected": " a"}, lines)


@pytest.mark.parametrize(
    ("changed", "divergence", "is_fault"),
    [(5, 0.0, True), (5, 0.0018, False), (10, 0.0018, True), (0, 0.0, False)],
)
def test_arithmetic_explains_some_changed_samples(changed: int, divergence: float, is_fault: bool) -> None:
    asked = []
    for number in range(10):
        question = JudgeQuestion(f"sampled/{number}", "sampled", {"max_tokens": 8, "seed": number}, (1, 2, number))
        asked.append(AskedQuestion(question, "alone", EngineAnswer("one two", "length")))
        text = "one four" if number < changed else "one two"
        asked.append(AskedQuestion(question, "crowd", EngineAnswer(text, "length")))
    with open_oracle(find_model_file(MODEL), 64, threads=1) as oracle:
        faults = list(check_seeds(oracle, asked, lambda question, seed: "another", divergence))
    assert bool(faults) == is_fault


@pytest.mark.parametrize(("is_near", "divergence"), [(True, 0.0018), (False, 0.0018), (True, 0.0)])
def test_changed_sample_of_the_same_draw_is_explained(is_near: bool, divergence: float) -> None:
    """All answers change at their second token: to one next to it in the distribution, or to a distant one."""
    asked, prompt = [], (1, 2, 3)
    with open_oracle(find_model_file(MODEL), 64, threads=1) as oracle:
        after = oracle.predict((*prompt, 5))[0]
        first = after.best
        distances = [find_draw_distance(after, first, token) for token in range(len(after.logits))]
        distances[first] = 0.001  # not the same token
        other = int(np.argmin(distances) if is_near else np.argmax(distances))
        for number in range(10):
            question = JudgeQuestion(f"sampled/{number}", "sampled", {"seed": number}, prompt)
            for schedule, token in (("alone", first), ("crowd", other)):
                tokens = tuple(ReportedToken(n, "", -1.0) for n in (5, token))
                asked.append(
                    AskedQuestion(question, schedule, EngineAnswer(f"{number} {token}", "length", tokens))
                )
        faults = list(check_seeds(oracle, asked, lambda question, seed: "another", divergence))
    assert bool(faults) == (not is_near or not divergence)
