"""Perplexity and KL divergence: against sums of our own in float64, llama.cpp's logits, and llama.cpp itself."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER, list_embedded_pairs
from zinc_rt.golden.format import read_golden
from zinc_rt.host.errors import CheckFailed, InputError, OutputError, UsageError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.perf.perplexity.base_file import BaseLogits, open_writer
from zinc_rt.perf.perplexity.command import CORPUS, main
from zinc_rt.perf.perplexity.scoring import (
    PIECE,
    QUANTILES,
    TokenScores,
    compare_with_base,
    compute_mean_error,
    compute_perplexity,
    count_scored_tokens,
    iterate_rows,
    score_chunks,
    split_chunks,
)

MODEL = str(FOLDER / "qwen3-q.gguf")
CTX = 32
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(read_gguf(MODEL), CpuBackend("canonical-1"), ctx=CTX) as engine:
        yield engine


def random_text(engine: Engine, count: int, seed: int = 7) -> list[int]:
    return np.random.default_rng(seed).integers(0, engine.model.vocab, count).tolist()


def test_text_is_split_like_llama_perplexity() -> None:
    result = split_chunks(list(range(100, 135)), 10, bos=1)
    assert [chunk.tokens[:2] for chunk in result] == [(1, 101), (1, 111), (1, 121)]  # 5 tokens are left over
    assert {len(chunk.tokens) for chunk in result} == {10} and result[0].first == 5
    assert result[1].targets.tolist() == [116, 117, 118, 119] and count_scored_tokens(10) == 4
    assert count_scored_tokens(511) == 255 and count_scored_tokens(512) == 255
    assert (
        len(split_chunks(list(range(100)), 10, maximum=3)) == 3 and split_chunks([5, 6, 7, 8], 4)[0].tokens[0] == 5
    )
    for wrong, message in (((list(range(9)), 10), "has 9 tokens"), (([1] * 9, 3), "--ctx 3")):
        with pytest.raises(UsageError, match=message):
            split_chunks(*wrong)
    with pytest.raises(UsageError, match="--chunks 0"):
        split_chunks([1] * 20, 10, maximum=0)


def expected_perplexity(engine: Engine, tokens: list[int], ctx: int) -> list[float]:
    """Negative log-probabilities from every row's logits, one token at a time, summed exactly."""
    result = []
    for start in range(0, len(tokens) - ctx + 1, ctx):
        part = tokens[start : start + ctx]
        sequence = engine.open()
        logits = np.concatenate([engine.extend(sequence, [token]) for token in part])
        engine.release(sequence)
        for row in range(ctx // 2, ctx - 1):
            wide = [float(value) for value in logits[row]]
            largest = max(wide)
            total = math.fsum(math.exp(value - largest) for value in wide)
            result.append(largest + math.log(total) - wide[part[row + 1]])
    return result


@pytest.mark.rest
def test_perplexity_matches_sum_over_logits(engine: Engine) -> None:
    tokens = random_text(engine, 2 * 12 + 5)
    result = compute_perplexity(score_chunks(engine, split_chunks(tokens, 12)).nll)
    wanted = expected_perplexity(engine, tokens, 12)
    assert len(wanted) == 2 * count_scored_tokens(12)
    mean = math.fsum(wanted) / len(wanted)
    error = math.sqrt((math.fsum(v * v for v in wanted) / len(wanted) - mean * mean) / (len(wanted) - 1))
    assert result.value == pytest.approx(math.exp(mean), rel=1e-12)
    assert result.error == pytest.approx(math.exp(mean) * error, rel=1e-9) and result.error > 0


def test_chunk_longer_than_one_step_has_same_rows_as_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(read_gguf(MODEL), CpuBackend("float32-dequant"), ctx=PIECE + 40) as engine:
        (chunk,) = split_chunks(random_text(engine, PIECE + 40), PIECE + 40)
        pieces = list(iterate_rows(engine, chunk))
        assert len(pieces) == 2 and sum(map(len, pieces)) == count_scored_tokens(PIECE + 40) == len(chunk.targets)
        assert engine.sequences == ()


def expected_divergence(base: np.ndarray, own: np.ndarray) -> float:
    p, q = ([float(value) for value in row] for row in (base, own))

    def log_probabilities(row: list[float]) -> list[float]:
        largest = max(row)
        total = math.log(math.fsum(math.exp(value - largest) for value in row))
        return [value - largest - total for value in row]

    lp, lq = log_probabilities(p), log_probabilities(q)
    return math.fsum(math.exp(a) * (a - b) for a, b in zip(lp, lq, strict=True))


def test_divergence_top_1_and_differences_match_hand_computation() -> None:
    random = np.random.default_rng(3)
    base = random.standard_normal((150, 40)).astype(np.float32) * 3
    own = base + random.standard_normal((150, 40)).astype(np.float32)
    own[7] = base[7]
    targets = random.integers(0, 40, 150).astype(np.int32)
    scores = TokenScores()
    scores.add(own, targets, base)
    divergences = [expected_divergence(one, two) for one, two in zip(base, own, strict=True)]
    assert scores.kl == pytest.approx(divergences, rel=1e-10, abs=1e-14) and scores.kl[7] == 0.0
    result = compare_with_base(scores)
    assert result.same_bits == 1 and 0 < result.same_top.value < 1
    assert result.same_top.value == np.mean(base.argmax(1) == own.argmax(1))
    ordered = sorted(divergences)
    assert result.kl_quantiles[1.0] == pytest.approx(ordered[-1])
    assert result.kl_quantiles[0.5] == pytest.approx((ordered[74] + ordered[75]) / 2)
    assert tuple(result.kl_quantiles) == QUANTILES
    location = 0.9 * 149  # as llama-perplexity interpolates
    between = ordered[int(location)] + (location - int(location)) * (
        ordered[int(location) + 1] - ordered[int(location)]
    )
    assert result.kl_quantiles[0.9] == pytest.approx(between)
    ratios = np.array(scores.nll) - np.array(scores.base_nll)
    mean, error = compute_mean_error(
        ratios.tolist()
    )  # of the differences: what the covariance makes of both errors
    assert result.log_ratio.value == pytest.approx(mean) and result.log_ratio.error == pytest.approx(error)
    differences = np.array(scores.p_diff)
    assert result.p_diff_rms.value == pytest.approx(np.sqrt((differences**2).mean()))
    assert math.exp(compute_mean_error(scores.base_nll)[0]) == pytest.approx(result.base.value)


def test_kl_ignores_tokens_impossible_in_base_and_is_infinite_in_reverse() -> None:
    base, own = (np.zeros((1, 3), np.float32) for _ in range(2))
    base[0, 2] = -np.inf
    one, two = TokenScores(), TokenScores()
    one.add(own, np.array([0], np.int32), base)
    two.add(base, np.array([0], np.int32), own)
    assert one.kl[0] == pytest.approx(math.log(1.5)) and two.kl[0] == math.inf


WHOLE = [
    pair for pair in list_embedded_pairs() if read_golden(pair.golden).rows is None
]  # every position's logits are there


@pytest.mark.parametrize("pair", WHOLE, ids=lambda pair: pair.model.stem)
def test_perplexity_on_llama_cpp_logits_matches_within_their_difference(pair: object) -> None:
    """What llama.cpp computed for a prompt lies in the embedded goldens: its rows as a base, ours beside it."""
    golden = read_golden(pair.golden)  # type: ignore[attr-defined]
    theirs = np.asarray(golden.logits, np.float32)
    ids = [int(token) for token in golden.ids][: len(theirs)]
    (chunk,) = split_chunks(ids, len(ids))
    rows = theirs[chunk.first : len(ids) - 1]
    with Engine(read_gguf(pair.model), CpuBackend("canonical-1"), ctx=len(ids)) as engine:  # type: ignore[attr-defined]
        result = compare_with_base(score_chunks(engine, [chunk], base=lambda count: rows[:count]))
    assert result.base.value > 10 and abs(result.log_ratio.value) < 1e-4
    assert 0 < result.kl.value < 1e-8 and result.same_top.value == 1


def test_llama_cpp_gives_same_perplexity_for_same_tokens() -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    gguf, words = read_gguf(MODEL), CORPUS.read_text(encoding="utf-8")
    tokens = Tokenizer.from_metadata(gguf.metadata).encode(words, parse_special=False)
    model = llama_cpp.Llama(MODEL, n_ctx=CTX, logits_all=True, verbose=False)
    assert model.tokenize(words.encode(), add_bos=True, special=False) == tokens
    theirs, result = TokenScores(), split_chunks(tokens, CTX, maximum=4)
    for chunk in result:
        model.reset()
        model.eval(list(chunk.tokens))
        theirs.add(np.array(model.scores[chunk.first : CTX - 1], np.float32), chunk.targets)
    with Engine(gguf, CpuBackend("canonical-1"), ctx=CTX) as engine:
        ours = compute_perplexity(score_chunks(engine, result).nll)
    # it quantises activations, canonical-1 does not: 0.1 % over 6 chunks of 64
    assert ours.value == pytest.approx(compute_perplexity(theirs.nll).value, rel=0.01)


def test_non_finite_logit_aborts_with_its_position(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    (chunk,) = split_chunks(random_text(engine, CTX), CTX)
    real = engine.step

    def return_nan(*given: object, **named: object) -> np.ndarray:
        logits = real(*given, **named)  # type: ignore[arg-type]
        logits[2, 5] = np.nan
        return logits

    monkeypatch.setattr(engine, "step", return_nan)
    with pytest.raises(CheckFailed, match=f"position {CTX // 2 + 2}: logit 5 is not a number"):
        list(iterate_rows(engine, chunk))
    assert engine.sequences == ()


# --- the base file ------------------------------------------------------------------------------------------


META = {"ctx": 4, "chunks": 1}


def write_base(path: Path, rows: np.ndarray, *, declared: int | None = None) -> Path:
    with open_writer(str(path), META, [1, 2, 3, 4], declared or len(rows), rows.shape[1]) as keep:
        keep(rows[:1])
        keep(rows[1:])
    return path


def test_base_is_an_npz_and_is_read_row_by_row(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((3, 50)).astype(np.float32)
    path = write_base(tmp_path / "b.npz", rows)
    with BaseLogits(str(path)) as base:
        assert base.tokens == [1, 2, 3, 4] and (base.rows, base.vocab) == (3, 50) and base.meta["ctx"] == 4
        assert base(2).tobytes() == rows[:2].tobytes() and base(1).tobytes() == rows[2:].tobytes()
        with pytest.raises(InputError, match="truncated"):
            base(1)
    with np.load(path) as file:
        assert file["logits"].tobytes() == rows.tobytes()


def test_unfinished_base_leaves_no_file(tmp_path: Path) -> None:
    rows = np.zeros((2, 8), np.float32)
    with pytest.raises(OutputError, match="2 of 5 rows"):
        write_base(tmp_path / "b.npz", rows, declared=5)
    with pytest.raises(KeyError), open_writer(str(tmp_path / "c.npz"), META, [], 1, 1):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_invalid_base_is_rejected_with_its_actual_type(tmp_path: Path) -> None:
    whole = write_base(tmp_path / "b.npz", np.zeros((2, 8), np.float32)).read_bytes()
    cut, other, foreign = (tmp_path / name for name in ("cut.npz", "other.npz", "foreign.npz"))
    cut.write_bytes(whole[: len(whole) // 2])
    np.savez(other, tokens=np.zeros(3))
    with zipfile.ZipFile(tmp_path / "b.npz") as source, zipfile.ZipFile(foreign, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, data.replace(b"p\0\0\0e\0\0\0r\0\0\0p", b"p\0\0\0a\0\0\0r\0\0\0p"))
    for path, message in (
        (cut, "not a perplexity base"),
        (other, "not a perplexity base"),
        (foreign, "format"),
        (tmp_path / "none", "no such"),
    ):
        with pytest.raises(InputError, match=message):
            BaseLogits(str(path))


# --- the command --------------------------------------------------------------------------------------------


ON_CPU = ["--model", MODEL, "--tier", "t_cpu", "--ctx", str(CTX)]


@pytest.mark.rest
def test_command_against_own_base_is_bit_exact(tmp_path: Path, capsys: Capture) -> None:
    base, report = str(tmp_path / "b.npz"), tmp_path / "r.json"
    assert main([*ON_CPU, "--chunks", "2", "--save-base", base]) == 0
    first = capsys.readouterr().out
    assert "corpus.txt" in first and "2 chunks of 32, 30 predictions" in first and "of 162 chunks" in first
    assert main([*ON_CPU, "--kl-base", base, "--max-kl", "0", "--json", str(report)]) == 0
    shown = capsys.readouterr().out
    assert "30 of 30 rows of logits" in shown and shown.splitlines()[-1] == first.splitlines()[-2]
    body = json.loads(report.read_text())
    measure = body["results"][0]["measure"]
    assert measure["against"]["kl"] == {"value": 0.0, "error": 0.0} and measure["scored"] == 30
    assert measure["against"]["same_top"]["value"] == 1.0 and body["direct_compute_ops"] > 10
    assert body["results"][0]["reference"] == "qwen3-q.gguf on t_cpu, canonical-1"
    assert main([*ON_CPU, "--kl-base", base, "--ordering", "canonical-1-q8", "--max-kl", "1e-9"]) == 1
    assert "FAIL      a mean KL divergence of" in capsys.readouterr().out


@pytest.mark.rest
def test_simulated_tier_is_bit_exact_with_oracle(capsys: Capture) -> None:
    words = ["--model", MODEL, "--tier", "t1", "--device", "sim", "--against", "t_cpu", "--ctx", "16"]
    assert main([*words, "--chunks", "1", "--max-kl", "0"]) == 0
    shown = capsys.readouterr().out
    assert "7 of 7 rows of logits" in shown and "t1 (simulated)" in shown.splitlines()[-1]


@pytest.mark.rest
def test_prompts_on_matrix_cores_are_bit_exact_on_all_their_tiers(tmp_path: Path, capsys: Capture) -> None:
    """T1 and native against the oracle in wmma-f16; canonical-1 is close, but has other bits."""
    base, report = str(tmp_path / "b.npz"), tmp_path / "r.json"
    of_prompts, words = ["--prefill-ordering", "wmma-f16"], ["--model", MODEL, "--chunks", "1", "--kl-base", base]
    assert main([*ON_CPU, "--ctx", "16", "--chunks", "1", *of_prompts, "--save-base", base]) == 0
    assert re.search(r"prompt: [1-9]\d* products in wmma-f16", capsys.readouterr().out)
    for tier in (["t1", "--device", "sim"], ["t_cpu_native"]):
        assert main([*words, "--tier", *tier, *of_prompts, "--max-kl", "0", "--json", str(report)]) == 0
        assert "7 of 7 rows of logits" in capsys.readouterr().out
        assert json.loads(report.read_text())["details"]["prefill"]["ordering"] == "wmma-f16"
    assert main([*words, "--tier", "t_cpu_native", "--max-kl", "1e-3"]) == 0
    shown = capsys.readouterr().out
    assert "0 of 7 rows of logits" in shown and "t_cpu, wmma-f16" in shown
    assert main([*ON_CPU, "--ordering", "float32-dequant", *of_prompts]) == 2
    assert "ordering float32-dequant has none" in capsys.readouterr().err


def test_custom_text_is_accepted_and_invalid_text_rejected(tmp_path: Path, capsys: Capture) -> None:
    own, bad, base = tmp_path / "t.txt", tmp_path / "bad.txt", str(tmp_path / "b.npz")
    own.write_text("The quick brown fox jumps over the lazy dog. " * 12, encoding="utf-8")
    bad.write_bytes(b"caf\xe9" * 200)
    assert main([*ON_CPU, "--text", str(own), "--chunks", "1", "--save-base", base]) == 0
    capsys.readouterr()
    for words, code, message in (
        ([*ON_CPU, "--text", str(bad)], 2, "not valid UTF-8"),
        ([*ON_CPU, "--text", str(tmp_path / "none")], 2, "no such file"),
        ([*ON_CPU, "--kl-base", base, "--text", str(CORPUS)], 2, "the tokens differ from token"),
        ([*ON_CPU[:-1], "64", "--kl-base", base], 2, "chunks of 32 tokens"),
        ([*ON_CPU, "--max-kl", "1"], 2, "--max-kl needs"),
        ([*ON_CPU, "--kl-base", base, "--max-kl", "nan"], 2, "--max-kl nan"),
        (["--model", str(FOLDER / "gemma4-q.gguf"), *ON_CPU[2:], "--kl-base", base], 2, "other texts"),
        ([*ON_CPU[:-1], "2"], 2, "--ctx 2"),
    ):
        assert main(words) == code, words
        assert message in capsys.readouterr().err, words
