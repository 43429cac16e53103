"""Checks without a tier: a golden's tokenizer, and its random draws, repeated here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zinc_rt.golden.capture import CapturedRun
from zinc_rt.golden.draws import Draw, draw_reference_token, read_draws
from zinc_rt.golden.embedded import VOCABULARY
from zinc_rt.golden.format import Golden
from zinc_rt.host.errors import InputError, UnsupportedError, error_first_line
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.sched.sampling import Sampling
from zinc_rt.validate.check_result import CheckResult, ReportFigures
from zinc_rt.validate.checks import CheckedPair
from zinc_rt.validate.limits import BIT_EXACT

HOST = "host"
FILTERS = ("temperature", "top_k", "top_p", "min_p", "seed")
WAYS = {"plain": "as it is", "special": "with special tokens added", "detok_plain": "and back"}


def check_vocabulary(repro: str) -> CheckResult:
    """Check a SentencePiece vocabulary, which no embedded model has, against the results of that library. Raise
    InputError if it is missing from the installation.
    """
    try:
        texts = json.loads(VOCABULARY.golden.read_text(encoding="utf-8"))["tokenizer"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{VOCABULARY.golden}: {error}", next="install the package again") from error
    subject = CheckedPair(VOCABULARY.model.stem, HOST, VOCABULARY.golden.name, BIT_EXACT, repro)
    return check_tokenizer(subject, texts, read_gguf(VOCABULARY.model))


def check_tokenizer(subject: CheckedPair, texts: Sequence[Mapping[str, Any]], gguf: GGUFFile) -> CheckResult:
    """Encode and decode every text, and compare with the results of another tokenizer."""
    try:
        tokenizer = Tokenizer.from_metadata(gguf.metadata)
    except UnsupportedError as error:
        return subject.make_skip("tokenizer", "tokenizer", error_first_line(error))
    bad: dict[str, Any] = {}
    cause = advice = ""
    for index, row in enumerate(texts):
        got = {
            "plain": tokenizer.encode(row["text"], add_special=False),
            "special": tokenizer.encode(row["text"]),
            "detok_plain": tokenizer.decode(row["plain"]),
        }
        way = next((way for way in WAYS if way in row and got[way] != row[way]), None)
        if way is not None:
            cause = f"{row['text']!r}, {WAYS[way]}: {_shorten_value(got[way])}, not {_shorten_value(row[way])}"
            bad = {"node": "tokenizer", "text": index, "way": way}
            advice = shlex.join(["zinc-rt", "tokenize", "--model", str(gguf.path), f"--text={row['text']}"])
            break
    return _make_result(subject, "tokenizer", ReportFigures(texts=len(texts)), bad, cause, advice)


def _make_result(
    subject: CheckedPair, what: str, measure: ReportFigures, bad: dict[str, Any], cause: str, advice: str
) -> CheckResult:
    return subject.result(
        what, what, passed=not bad, measure=measure, limit=BIT_EXACT, first_bad=bad, cause=cause, advice=advice
    )


def _shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_draws(subject: CheckedPair, golden: Golden, gguf: GGUFFile, run: CapturedRun) -> CheckResult | None:
    """Repeat the golden's draws from this run's logits; none is close enough to another token to depend on
    rounding. Return None if the golden has no draws.
    """
    finite = [bool(np.isfinite(row).all()) for row in run.logits]
    recorded = read_draws(golden.meta, str(golden.path))
    draws = [draw for draw in recorded if draw.row < len(finite) and finite[draw.row]]
    if not draws:  # too few rows, or values that are no numbers, are failures of their own
        return None
    bad: dict[str, Any] = {}
    cause = advice = ""
    for draw in draws:
        asked = {name: getattr(draw, name) for name in FILTERS}
        got = draw_reference_token(
            Sampling(**asked), run.logits[draw.row], choice=draw.choice, position=draw.position
        )
        if got != draw.token:
            bad = {"node": "draws", "token": draw.row, "got": got, "want": draw.token}
            cause = f"{_describe_draw(draw)}: token {got}, not {draw.token}"
            advice = shlex.join(_run_prompt(golden, gguf, draw))
            break
    return _make_result(subject, "draws", ReportFigures(draws=len(draws)), bad, cause, advice)


def _describe_draw(draw: Draw) -> str:
    asked = {name.replace("_", "-"): value for name, value in draw.as_dict().items() if name != "token"}
    return ", ".join(f"{name} {value}" for name, value in asked.items())


def _run_prompt(golden: Golden, gguf: GGUFFile, draw: Draw) -> list[str]:
    """Return the command that repeats the draw after the same tokens, for choice 0."""
    tokens = ",".join(str(token) for token in golden.ids[: draw.row + 1])
    filters = [f"--{name.replace('_', '-')}={getattr(draw, name)}" for name in FILTERS]
    return ["zinc-rt", "run", "--model", str(gguf.path), "--tokens", tokens, "--max-tokens=1", *filters]
