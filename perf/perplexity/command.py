"""Measure perplexity, and KL divergence from another run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt.cli import options
from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, add_models

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.engine.engine import Engine
    from zinc_rt.model.gguf import GGUFFile
    from zinc_rt.perf.perplexity.base_file import BaseLogits
    from zinc_rt.perf.perplexity.scoring import Comparison, Rows, TextChunk, TokenScores, ValueAndError

DEFAULT_CTX = 512
CORPUS = Path(__file__).resolve().parent / "corpus.txt"
EXAMPLES = """\
The definition is that of llama-perplexity: the text is split into chunks of --ctx tokens, each is evaluated with
an empty context, and the predictions of its second half are scored. `+-` is one standard error. With a base (a
file of an earlier run, or another tier in the same run), the full distribution of each token is also compared:
KL(base || this) in nats. It is 0 for two tiers with the same ordering, and above 0 for a quantised model against
its original.

examples:
  zinc-rt perplexity --model M.gguf                            the built-in text in chunks of 512
  zinc-rt perplexity --model M.gguf --text wiki.test.raw --chunks 16
  zinc-rt perplexity --model M-F16.gguf --text T.txt --save-base f16.npz
  zinc-rt perplexity --model M-Q4.gguf --kl-base f16.npz       uses the text of the base file
  zinc-rt perplexity --model M.gguf --tier t1 --device sim --against t_cpu --ctx 64 --chunks 1
  zinc-rt perplexity --model M-Q4.gguf --kl-base f16.npz --max-kl 0.02

exit codes: 0 measured, 1 a logit is NaN, the mean divergence exceeds --max-kl, or the simulated
device reported a finding, 2 unusable input.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EXAMPLES)
    add_models(parser)
    text = parser.add_argument_group("text")
    text.add_argument(
        "--text", metavar="FILE", help="UTF-8 text; - reads stdin (default: a built-in text of 9 kB)"
    )
    text.add_argument("--chunks", type=int, metavar="N", help="only score the first N chunks (default: all)")
    group = parser.add_argument_group("comparison").add_mutually_exclusive_group()
    group.add_argument(
        "--kl-base",
        metavar="B.npz",
        help="base file from --save-base; also used as the text, unless --text is given",
    )
    group.add_argument("--against", metavar="TIER", help="compare with another tier in the same run")
    parser.add_argument("--save-base", metavar="B.npz", help="write tokens and scored logits for --kl-base")
    parser.add_argument("--max-kl", type=float, metavar="NATS", help="fail if the mean divergence exceeds this")
    options.add_engine(parser)
    options.add_prefill_ordering(parser, "compute all tokens of the text in it; --against keeps --ordering")
    add_json(parser, tables=False)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.backends.base import read_findings
    from zinc_rt.cli.describe import (
        describe_executed,
        describe_model,
        describe_prefill,
        describe_run,
        fail_for_findings,
        format_prefill,
    )
    from zinc_rt.cli.progress import show_progress
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.devices import SIMULATED
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.perf.perplexity import scoring
    from zinc_rt.perf.perplexity.base_file import BaseLogits, open_writer

    check_writable(arguments.save_base, report=arguments.json)
    if arguments.max_kl is not None:
        if not (arguments.kl_base or arguments.against):
            raise UsageError("--max-kl needs --kl-base B.npz or --against TIER")
        if not arguments.max_kl >= 0:
            raise UsageError(f"--max-kl {arguments.max_kl:g}: expected 0 or more nats")
    knobs, out = options.read_settings_once(), choose_output_stream(arguments)
    report = start_report(Report("perplexity"), arguments)
    with ExitStack() as opened:
        base_file = opened.enter_context(BaseLogits(arguments.kl_base)) if arguments.kl_base else None
        gguf = options.read_model(arguments.model)
        ctx = _choose_ctx(arguments, gguf, base_file)
        tokens, bos, origin = _tokenize_text(arguments, gguf, base_file)
        parts = scoring.split_chunks(tokens, ctx, bos=bos, maximum=_choose_max_chunks(arguments, base_file))
        _check_base(base_file, tokens, ctx, parts)
        arguments.ctx = ctx
        engine = opened.enter_context(options.open_engine(gguf, arguments, knobs))
        if base_file is not None:
            _check_vocabulary(base_file, engine.model.vocab, gguf)
        base: Rows | None = base_file
        reference_name = _format_reference_name(base_file)
        if arguments.against:
            other = opened.enter_context(_open_other_engine(gguf, arguments, knobs))
            base, reference_name = scoring.make_row_source(other, parts), _engine_name(other)
        rows = scoring.count_scored_tokens(ctx) * len(parts)
        count = len(parts)
        terminal.show(
            f"{gguf.path.name}  {gguf.architecture} on {_engine_name(engine)}\n"
            f"  {origin}: {len(tokens)} tokens, {count} chunk{'s' * (count > 1)} of {ctx}, {rows} predictions",
            out=out,
        )
        if reference_name:
            terminal.show(f"  base: {reference_name}", out=out)
        if arguments.prefill_ordering:
            report.details["prefill"] = describe_prefill(engine.model.graph, arguments.prefill_ordering)
            terminal.show(f"  prompt: {format_prefill(report.details['prefill'])}", out=out)
        keep: Callable[[Any], None] = lambda rows: None  # noqa: E731
        if arguments.save_base:
            meta = {
                "model": gguf.path.name, "architecture": gguf.architecture, "ctx": ctx, "chunks": len(parts),
                "tier": engine.backend.spec.tier,
                "ordering": arguments.prefill_ordering or engine.backend.ordering,
                "simulated": engine.backend.device.simulated, "text": origin, "bos": bos,
                "vocabulary": _digest_vocabulary(gguf),
            }  # fmt: skip
            whole = tokens[: ctx * len(parts)]
            keep = opened.enter_context(open_writer(arguments.save_base, meta, whole, rows, engine.model.vocab))
        with show_progress(len(parts), "perplexity", "chunk") as advance:

            def show_chunk(number: int, scores: TokenScores) -> None:
                advance(1)
                terminal.show(_format_chunk(number, scores), out=out)

            scores = scoring.score_chunks(engine, parts, base=base, keep=keep, chunk_done=show_chunk)
        describe_run(report, engine)
        describe_executed(report, engine)
        findings = read_findings(engine.backend)
        simulated = [item for item in (engine.backend.device.simulated, "(simulated)" in reference_name) if item]
    if simulated:
        report.shortcuts.append(SIMULATED)
    if len(parts) < len(tokens) // ctx:
        report.shortcuts.append(f"{len(parts)} of {len(tokens) // ctx} chunks")
    report.model = describe_model(gguf)
    result = _make_result(arguments, scores, parts, reference_name, str(report.device["tier"]))
    report.results.append(result)
    report.details |= {"text": origin, "tokens": len(tokens), "ctx": ctx, "chunks": len(parts), "bos": bos}
    _show(scores, result, report, reference_name, out)
    if arguments.save_base:
        terminal.show(f"wrote     {arguments.save_base}: {rows} rows", out=out)
    fail_for_findings(report, findings, arguments.model)
    return finish_report(report, arguments)


def _choose_ctx(arguments: argparse.Namespace, gguf: GGUFFile, base: BaseLogits | None) -> int:
    """Return --ctx, else the base's, else 512 or the model's training context."""
    from zinc_rt.engine.engine import choose_default_ctx, read_trained_ctx
    from zinc_rt.host.errors import UsageError

    if base is not None:
        ctx = int(base.meta["ctx"])
        if arguments.ctx not in (None, ctx):
            raise UsageError(
                f"--ctx {arguments.ctx}: the base was computed with chunks of {ctx} tokens", next="omit --ctx"
            )
        return ctx
    if arguments.ctx is not None:
        return choose_default_ctx(gguf, arguments.ctx)
    return min(DEFAULT_CTX, read_trained_ctx(gguf))


def _tokenize_text(
    arguments: argparse.Namespace, gguf: GGUFFile, base: BaseLogits | None
) -> tuple[list[int], int | None, str]:
    """Return the text's tokens, the token that replaces the first of every chunk, and the source of the text."""
    from zinc_rt.cli.text_input import read_file, read_text
    from zinc_rt.model.tokenizer import Tokenizer

    if base is not None and arguments.text is None:
        bos = base.meta.get("bos")
        return base.tokens, bos, f"the text of {arguments.kl_base}"
    tokenizer = Tokenizer.from_metadata(gguf.metadata)
    for warning in tokenizer.warnings:
        options.print_status(f"tokenizer {warning}")
    path = arguments.text or str(CORPUS)
    text = read_text("-") if path == "-" else read_file(path)
    origin = "stdin" if path == "-" else Path(path).name
    return tokenizer.encode(text, parse_special=False), tokenizer.bos_id if tokenizer.add_bos else None, origin


def _choose_max_chunks(arguments: argparse.Namespace, base: BaseLogits | None) -> int | None:
    """Return the number of chunks to read, limited by the base."""
    if base is None:
        return None if arguments.chunks is None else int(arguments.chunks)
    held = int(base.meta["chunks"])
    return held if arguments.chunks is None else min(held, arguments.chunks)


def _check_base(base: BaseLogits | None, tokens: Sequence[int], ctx: int, parts: Sequence[TextChunk]) -> None:
    from zinc_rt.host.errors import UsageError

    if base is None:
        return
    count = ctx * len(parts)
    mine, theirs = list(tokens[:count]), base.tokens[:count]
    if mine != theirs:
        index = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), len(theirs))
        raise UsageError(
            f"{base.path}: the tokens differ from token {index} on, so the text or the tokenizer is different",
            next="omit --text to use the text of the base, or create the base again",
        )


def _digest_vocabulary(gguf: GGUFFile) -> str:
    """Return a digest of the texts of the tokens; "" if the file has none."""
    import hashlib

    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list | tuple):
        return ""
    return hashlib.sha256("\0".join(map(str, tokens)).encode("utf-8", "surrogateescape")).hexdigest()


def _check_vocabulary(base: BaseLogits, vocab: int, gguf: GGUFFile) -> None:
    from zinc_rt.host.errors import UsageError

    if base.vocab != vocab:
        wrong = f"rows of {base.vocab} logits, this model has {vocab}"
    elif base.meta.get("vocabulary") != _digest_vocabulary(gguf):
        wrong = "its tokens have other texts than this model's"
    else:
        return
    raise UsageError(f"{base.path}: {wrong}", next="create the base with a model of the same vocabulary")


def _format_reference_name(base: BaseLogits | None) -> str:
    if base is None:
        return ""
    simulated = " (simulated)" if base.meta.get("simulated") else ""
    return f"{base.meta.get('model')} on {base.meta.get('tier')}{simulated}, {base.meta.get('ordering')}"


def _open_other_engine(gguf: GGUFFile, arguments: argparse.Namespace, knobs: Any) -> Engine:
    """Open another tier at the same context. Options that only one of the two engines accepts apply to the
    first.
    """
    from zinc_rt.backends import registry

    row, _ = registry.parse(arguments.against)
    changed = {
        "tier": arguments.against,
        "facts": None,
        "sanitizer": None,
        "unchecked": False,
        "coherence": None,
        "reorder": None,
        "prefill_ordering": None,
    }
    if not row.simulable:
        changed["device"] = "auto"
    if "threads" not in row.options:
        changed["threads"] = None
    return options.open_engine(gguf, argparse.Namespace(**{**vars(arguments), **changed}), knobs)


def _engine_name(engine: Engine) -> str:
    device = engine.backend.device
    simulated = " (simulated)" if device.simulated else ""
    return f"{engine.backend.spec.tier}{simulated}, {device.name}, {engine.backend.ordering}"


def _make_result(
    arguments: argparse.Namespace, scores: TokenScores, parts: Sequence[TextChunk], beside: str, tier: str
) -> Result:
    from zinc_rt.cli.report import Result
    from zinc_rt.perf.perplexity.scoring import compare_with_base, compute_perplexity

    measure: dict[str, Any] = {"perplexity": asdict(compute_perplexity(scores.nll)), "scored": len(scores.nll)}
    failed = ""
    if beside:
        compared = compare_with_base(scores)
        measure["against"] = asdict(compared)
        if arguments.max_kl is not None and not compared.kl.value <= arguments.max_kl:
            failed = f"a mean KL divergence of {compared.kl.value:.6g} nats, above {arguments.max_kl:g}"
    return Result(
        "perplexity",
        "perplexity",
        "fail" if failed else "pass",
        tier=tier,
        reference=beside,
        reason=failed,
        measure=measure,
        limit={} if arguments.max_kl is None else {"kl": arguments.max_kl},
    )


def _format_chunk(number: int, scores: TokenScores) -> str:
    from zinc_rt.perf.perplexity.scoring import compute_mean_error, compute_perplexity

    so_far = compute_perplexity(scores.nll)
    text = f"  chunk {number + 1:<4} perplexity so far {so_far.value:12.4f} +- {so_far.error:.4f}"
    if scores.kl:
        kl, same = compute_mean_error(scores.kl)[0], sum(scores.same_top) / len(scores.same_top)
        text += f"   KL {kl:.6f}   top-1 {same:.2%}"
    return text


def _show(scores: TokenScores, result: Result, report: Report, beside: str, out: TextIO) -> None:
    from zinc_rt.perf.perplexity.scoring import compare_with_base, compute_perplexity

    for shortcut in report.shortcuts:
        terminal.show(f"shortcut  {shortcut}", out=out)
    if beside:
        for line in _format_comparison(compare_with_base(scores), len(scores.nll)):
            terminal.show(line, out=out)
    simulated = " (simulated)" if report.device["simulated"] else ""
    own = compute_perplexity(scores.nll)
    verdict = f"perplexity {own.value:.4f} +- {own.error:.4f} on {report.device['tier']}{simulated}"
    terminal.show(f"{'FAIL      ' + result.reason + '; ' if result.reason else ''}{verdict}", out=out)


def _format_comparison(compared: Comparison, count: int) -> list[str]:
    def format_figure(value: ValueAndError, scale: float = 1.0) -> str:
        return f"{scale * value.value:.6f} +- {scale * value.error:.6f}"

    quantiles = [
        f"  {_format_share(share):<8}{kl:14.6f}{100 * compared.p_diff_quantiles[share]:14.4f}"
        for share, kl in compared.kl_quantiles.items()
    ]
    return [
        f"base perplexity        {format_figure(compared.base)}",
        f"ln(PPL / PPL base)     {format_figure(compared.log_ratio)}   correlation {compared.correlation:.4f}",
        f"KL divergence, nats    {format_figure(compared.kl)}",
        f"Δp of the token, %     {format_figure(compared.p_diff, 100)}   rms "
        f"{format_figure(compared.p_diff_rms, 100)}",
        f"same top-1, %          {format_figure(compared.same_top, 100)}",
        f"same bits              {compared.same_bits} of {count} rows of logits",
        "  share             KL          Δp, %",
        *quantiles,
    ]


def _format_share(share: float) -> str:
    return {1.0: "largest", 0.5: "median", 0.0: "least"}.get(share, f"{100 * share:g} %")


main = Command("perplexity", parser, _run_command)


if __name__ == "__main__":
    sys.exit(main())
