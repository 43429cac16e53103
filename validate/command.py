"""Compare tiers layer by layer with an independent reference, and name where they first part."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zinc_rt import cli
from zinc_rt.commands import options
from zinc_rt.errors import InputError, UsageError

if TYPE_CHECKING:
    from zinc_rt.golden.format import Golden
    from zinc_rt.model.gguf import GGUFFile
    from zinc_rt.report import Report
    from zinc_rt.settings import Settings
    from zinc_rt.validate.layers import Input, Layers
    from zinc_rt.validate.run import Job

DEFAULT_TOKENS = 8
DEFAULT_STEPS = 2

EPILOG = """\
examples:
  zinc-rt validate --tiers t_cpu                       the embedded models against llama.cpp
  zinc-rt validate --model M.gguf --tiers t_cpu        one pass against token by token, canonical-1 against BLAS
  zinc-rt validate --model M.gguf --golden G.npz       against recorded values, from llama.cpp or your own engine
  zinc-rt validate --model M.gguf --tiers t_cpu,t_cpu:float32-dequant --layers 3:5 --input random:7

Exit code: 0 everything compared is within its limit, 1 something is not, 2 unusable input, 77 nothing to compare.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_model(made, required=False)
    made.add_argument(
        "--tiers",
        default="t_cpu",
        metavar="A,B",
        help="tiers to judge, each NAME or NAME:ORDERING (default t_cpu)",
    )
    what = made.add_argument_group("what runs")
    prompt = what.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="tokenised with the model's own tokenizer")
    prompt.add_argument("--tokens", type=options.token_list, metavar="1,2,3", help="token ids, as they are")
    what.add_argument(
        "--steps", type=int, metavar="N", help=f"greedy tokens after the prompt (default {DEFAULT_STEPS})"
    )
    what.add_argument(
        "--layers", default="all", metavar="I:J", help="only these layers, the first fed by --input (default all)"
    )
    what.add_argument(
        "--input",
        default="random:0",
        metavar="WHAT",
        help="what enters layer I: oracle, random:SEED or an .npz with `input` or `l_out` (default random:0)",
    )
    what.add_argument(
        "--nodes", action="append", default=[], metavar="GLOB", help="compare these nodes too, e.g. 'attn_norm-*'"
    )
    against = made.add_argument_group("against what")
    against.add_argument("--golden", metavar="F.npz", help="recorded values, docs/golden.md")
    against.add_argument(
        "--reference",
        metavar="TIER",
        help="the tier to compare with (default: --golden, else t_cpu, else the last)",
    )
    against.add_argument(
        "--resync",
        action="store_true",
        help="also run with each layer's input reset from the reference: a layer's own error, without drift",
    )
    options.add_engine(made, tier=False)
    out = made.add_argument_group("results")
    out.add_argument("--json", metavar="F", help="the whole report (- for standard output)")
    out.add_argument("--junit", metavar="F", help="JUnit XML for CI")
    out.add_argument("--html", metavar="F", help="a page to look at and pass on")
    out.add_argument("--strict", action="store_true", help="a skipped check fails")
    out.add_argument("--no-cache", action="store_true", help="compute T-CPU results again")
    return made


def main(argv: list[str] | None = None) -> int:
    return cli.run("validate", parser(), _body, argv)


def _body(arguments: argparse.Namespace) -> int:
    from zinc_rt.report import Report, to_json, write_text
    from zinc_rt.validate import html, junit
    from zinc_rt.validate.run import validate
    from zinc_rt.validate.table import agreement_line, table, verdict

    settings = options.settings()
    report = Report("validate", ordering=arguments.ordering, shortcuts=settings.clamps())
    quiet = arguments.json == "-"
    show = (lambda text: None) if quiet else (lambda text: print(text, flush=True))
    jobs = _jobs(arguments, settings)
    for gguf, golden in jobs:
        job = _job(gguf, golden, arguments, settings, report, show)
        progress = _Progress()
        results = []
        for result in validate(job, progress.say):
            results.append(result)
        progress.clear()
        report.results += results
        for spec_text in dict.fromkeys(result.tier for result in results):
            for reference in dict.fromkeys(r.reference for r in results if r.tier == spec_text):
                group = [r for r in results if (r.tier, r.reference) == (spec_text, reference)]
                show(f"\n{spec_text} against {'itself' if reference == spec_text else reference}")
                show(table(group))
                if line := agreement_line(group):
                    show(line)
        for shortcut in report.shortcuts:
            show(f"shortcut  {shortcut}")
        show("")
    failed = next((result for result in report.results if result.status == "fail"), None)
    if failed is not None:
        show(f"repro  {failed.repro}")
    show(verdict(report, len(jobs), strict=arguments.strict))
    if arguments.json == "-":
        print(to_json(report, strict=arguments.strict))
    elif arguments.json:
        write_text(arguments.json, to_json(report, strict=arguments.strict))
    if arguments.junit:
        write_text(arguments.junit, junit.to_junit(report))
    if arguments.html:
        write_text(arguments.html, html.to_html(report, strict=arguments.strict))
    return report.exit_code(strict=arguments.strict)


def _jobs(arguments: argparse.Namespace, settings: Settings) -> list[tuple[GGUFFile, Golden | None]]:
    from zinc_rt.golden.embedded import embedded
    from zinc_rt.golden.format import read_golden
    from zinc_rt.model.gguf import read_gguf

    if arguments.model:
        golden = read_golden(arguments.golden) if arguments.golden else None
        return [(read_gguf(arguments.model), golden)]
    for flag in ("golden", "prompt", "tokens"):
        if getattr(arguments, flag):
            raise UsageError(
                f"--{flag} goes with a --model", next="name the model, or leave it out for the embedded ones"
            )
    return [(read_gguf(pair.model), read_golden(pair.golden)) for pair in embedded()]


def _job(
    gguf: GGUFFile,
    golden: Golden | None,
    arguments: argparse.Namespace,
    settings: Settings,
    report: Report,
    show: object,
) -> Job:
    from zinc_rt.engine import default_ctx
    from zinc_rt.validate.capture import Selection
    from zinc_rt.validate.layers import parse_layers
    from zinc_rt.validate.run import Job, TierSpec, model_name, parse_tiers

    assert callable(show)
    tiers = parse_tiers(arguments.tiers, arguments.ordering, options.ORDERING_CHOICES)
    ctx = arguments.ctx
    if ctx is None and golden is not None and isinstance(golden.meta.get("n_ctx", None) or _n_ctx(golden), int):
        ctx = min(default_ctx(gguf, None), int(golden.meta.get("n_ctx") or _n_ctx(golden) or 4096))
    ctx = default_ctx(gguf, ctx)
    total = _layer_count(gguf)
    layers = parse_layers(arguments.layers, total)
    tokens = _tokens(gguf, golden, arguments)
    if len(tokens) > ctx:
        raise UsageError(f"{len(tokens)} tokens do not fit the context of {ctx}", next="give a larger --ctx")
    first_input = _first_input(gguf, golden, layers, tokens, ctx, arguments, settings)
    if first_input is not None and not first_input.true:
        golden = None
        if arguments.golden:
            raise UsageError(
                "--golden holds the model's own values, and --input random is not one", next="--input F.npz"
            )
    same_tokens = golden is not None and tokens == [int(token) for token in golden.ids]
    if golden is not None and not same_tokens:
        raise UsageError(f"{golden.path.name} was made for other tokens", next="leave out --tokens and --prompt")
    steps = arguments.steps
    if steps is None:
        recorded = 0 if golden is None or golden.greedy_tokens is None else len(golden.greedy_tokens)
        steps = recorded if golden is not None else DEFAULT_STEPS
    steps = min(steps, ctx - len(tokens)) if layers.whole else 0
    reference: TierSpec | None = None
    if golden is None and (arguments.reference or len(tiers) > 1):
        named = arguments.reference
        if named:
            reference = parse_tiers(named, arguments.ordering, options.ORDERING_CHOICES)[0]
        else:
            reference = next((spec for spec in tiers if spec.text == "t_cpu"), tiers[-1])
    job = Job(
        gguf=gguf,
        name=model_name(gguf.path),
        tiers=tuple(tiers),
        tokens=tokens,
        steps=steps,
        ctx=ctx,
        layers=layers,
        selection=Selection(("l_out-*", "ffn_moe_topk-*", *arguments.nodes), layers.first, layers.last),
        golden=golden,
        reference=reference,
        first_input=first_input,
        resync=arguments.resync,
        threads=options.threads(arguments, settings),
        settings=settings,
        use_cache=not arguments.no_cache,
        repro=_repro(gguf, arguments),
    )
    _announce(job, report, show)
    return job


def _announce(job: Job, report: Report, show: object) -> None:
    """Say what will run and what it will cost, before it does; fill the report's header."""
    from dataclasses import asdict

    from zinc_rt.model.gguf import digest
    from zinc_rt.tiers import available_cores
    from zinc_rt.validate.estimate import LONG_SECONDS, estimate
    from zinc_rt.validate.run import Runner

    assert callable(show)
    with Runner(job, lambda text: None) as runner:
        engine = runner.engine(job.tiers[0])
        report.device = asdict(engine.backend.device)
        report.model_execution = f"every node on {job.tiers[0].tier.value}"
        graph = engine.graph("prefill", (job.layers.feed,) if job.layers.feed else ())
        capacity = {"tokens": len(job.tokens), "sequences": 1, "rows": len(job.tokens)}
        from zinc_rt.mem.plan import plan_memory

        cost = estimate(
            engine.model,
            graph,
            plan_memory(graph, capacity=capacity, tap=True),
            job.tiers[0].ordering,
            tokens=len(job.tokens),
            steps=job.steps,
            passes=len(job.tiers) + (3 if len(job.tiers) == 1 else 0) + int(job.resync),
            threads=job.threads or available_cores(),
        )
    sha = digest(job.gguf)
    report.ctx = job.ctx
    described = {"path": str(job.gguf.path), "digest": sha, "architecture": job.gguf.architecture}
    report.model = (
        described if not report.model else {"models": [*report.model.get("models", [report.model]), described]}
    )
    span = "" if job.layers.whole else f" {job.layers.first}:{job.layers.last}"
    show(
        f"{job.gguf.path.name}  {job.gguf.architecture}, layers{span or ' all'} of {job.layers.total}, "
        f"sha256 {sha[:12]}, ctx {job.ctx}, {job.tiers[0].ordering}"
    )
    show(f"  {len(job.tokens)} prompt tokens + {job.steps} steps; {cost}")
    if job.first_input is not None:
        show(f"  layer {job.layers.first} is fed by {job.first_input.origin}")
        report.details.setdefault("inputs", {})[job.name] = job.first_input.origin
    if job.golden is not None:
        arrays = f" {job.golden.variant}" if job.golden.variant else ""
        show(f"  reference: {job.golden.path.name}{arrays}, {job.golden.source}")
    if cost.seconds is not None and cost.seconds > LONG_SECONDS:
        show(f"  that is long; cheaper: {job.repro} --layers 0:1 --steps 0, or --ordering float32-dequant")


def _layer_count(gguf: GGUFFile) -> int:
    from zinc_rt.model.hyper import Hyper

    hyper = Hyper(gguf.architecture, gguf.metadata, str(gguf.path))
    return hyper.positive("block_count") - hyper.integer("nextn_predict_layers", 0)


def _tokens(gguf: GGUFFile, golden: Golden | None, arguments: argparse.Namespace) -> list[int]:
    if arguments.tokens or arguments.prompt:
        return options.model_tokens(gguf, arguments.tokens, arguments.prompt)
    if golden is not None:
        return [int(token) for token in golden.ids]
    tensor = gguf.tensors.get("token_embd.weight")
    if tensor is None:
        raise InputError(f"{gguf.path}: no token_embd.weight: a vocabulary without weights cannot be validated")
    return [(7 * index + 1) % tensor.shape[0] for index in range(DEFAULT_TOKENS)]


def _first_input(
    gguf: GGUFFile,
    golden: Golden | None,
    layers: Layers,
    tokens: list[int],
    ctx: int,
    arguments: argparse.Namespace,
    settings: Settings,
) -> Input | None:
    from zinc_rt.validate.layers import Input, file_input, random_input

    if not layers.first:
        return None
    width = int(gguf.tensors["token_embd.weight"].shape[-1])
    what = arguments.input
    if what == "oracle":
        from zinc_rt.engine import Engine
        from zinc_rt.ring.base import Tier
        from zinc_rt.tiers import open_backend
        from zinc_rt.validate.capture import Selection, capture
        from zinc_rt.validate.layers import Layers, transform

        before = Layers(0, layers.first, layers.total)
        backend = open_backend(Tier.T_CPU, arguments.ordering, threads=options.threads(arguments, settings))
        with Engine(gguf, backend, ctx=ctx, transform=transform(before), settings=settings) as engine:
            run = capture(engine, tokens, Selection((layers.feed,)))
        return Input(run.values[layers.feed], f"the oracle's {layers.feed}", true=True)
    if what.startswith("random:"):
        seed = what.removeprefix("random:")
        if not seed.isdigit():
            raise UsageError(f"--input {what}: wanted random:SEED with a whole number")
        return random_input(int(seed), len(tokens), width)
    return file_input(what, layers, len(tokens), width)


def _n_ctx(golden: Golden) -> int | None:
    """llama.cpp's context length, from the settings text of goldens that have no field for it."""
    _, found, rest = str(golden.meta.get("settings", "")).partition("n_ctx=")
    digits = rest.partition(",")[0]
    return int(digits) if found and digits.isdigit() else None


def _repro(gguf: GGUFFile, arguments: argparse.Namespace) -> str:
    parts: list[str] = ["zinc-rt", "validate", "--model", str(gguf.path), "--tiers", arguments.tiers]
    for flag in ("golden", "layers", "input", "ordering", "ctx", "steps", "reference"):
        value = getattr(arguments, flag)
        if value is not None and value != parser().get_default(flag):
            parts += [f"--{flag}", str(value)]
    if arguments.tokens:
        parts += ["--tokens", ",".join(map(str, arguments.tokens))]
    if arguments.prompt:
        parts += ["--prompt", arguments.prompt]
    return shlex.join(parts)


class _Progress:
    """One line on a terminal, overwritten; nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def say(self, text: str) -> None:
        if self._shown:
            print(f"\r\x1b[K  {text} ...", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


__all__: Sequence[str] = ("main", "parser")
