"""Build jobs from the command line: models, goldens, tokens, layers, tiers. Contradictory options are rejected
here.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

from zinc_rt.cli import options
from zinc_rt.cli.observer import make_observer
from zinc_rt.engine.devices import ORACLE, Choice, choose_tier, open_backend
from zinc_rt.engine.engine import Engine, choose_default_ctx, read_trained_ctx
from zinc_rt.engine.variants import BIT_DEFINED, EngineOptions
from zinc_rt.golden.capture import Selection, capture_run, list_labels
from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.golden.format import Golden, read_golden
from zinc_rt.golden.odd_models import list_quick_pairs
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.settings import Settings
from zinc_rt.model.gguf import GGUFFile, digest_model, read_gguf
from zinc_rt.model.hyper import HyperParameters
from zinc_rt.model.pooling import find_pooling
from zinc_rt.model.registry import require_architecture
from zinc_rt.replay.bisect import bisect
from zinc_rt.replay.one_node_log import emit_repro
from zinc_rt.trace.recorder import record
from zinc_rt.validate.check_result import CheckResult
from zinc_rt.validate.layers import LayerInput, Layers, make_random_input, parse_layers, read_input_file, transform
from zinc_rt.validate.runner import Smallest, ValidationJob, ValidationRunner
from zinc_rt.validate.tiers import TierSpec, parse_tiers


def add_repro(
    runner: ValidationRunner, spec: TierSpec, follow: list[int], result: CheckResult, *, folder: Path
) -> CheckResult:
    """Return `result` with a folder for it: run.zlog, and node.zlog with its test if one node is at fault. Raise
    OutputError if the folder is not writable.
    """
    job = runner.job
    here = folder / job.name / spec.text.replace(":", "-")
    here.mkdir(parents=True, exist_ok=True)
    runner.say(f"{spec.text}: the run recorded and bisected")
    log = here / "run.zlog"
    with record(runner.engine(spec), log):
        capture_run(runner.engine(spec), job.tokens, None, steps=job.steps, follow=follow, inject=runner.inject())
    bisected = bisect(log, spec.choice, threads=job.threads)
    artifacts, repro = [str(log)], f"zinc-rt-replay {log} --tiers {spec.name} --bisect"
    if bisected.where is not None:
        emitted = emit_repro(log, bisected, here, spec.choice)
        artifacts, repro = [*artifacts, *map(str, emitted.paths)], emitted.command
    return replace(result, artifacts=artifacts, repro=repro, cause=bisected.text)


DEFAULT_TOKENS = 8
DEFAULT_STEPS = 2
# What changes a run, for the command that shows it again; the rest is about how results are shown.
REPEATED = (
    "layers",
    "input",
    "ordering",
    "ctx",
    "kv_type",
    "prefill_ordering",
    "steps",
    "reference",
    *options.ORDER,
)


def prepare_jobs(arguments: argparse.Namespace, settings: Settings) -> list[ValidationJob]:
    """Return one job per model: the named one, else the embedded ones and, unless requests are mixed, the quick
    odd ones. Raise UsageError or InputError for impossible requests before anything runs.
    """
    if arguments.model is not None:
        golden = read_golden(arguments.golden) if arguments.golden else None
        return [_make_job(options.read_model(arguments.model), golden, arguments, settings)]
    for flag in ("golden", "prompt", "tokens"):
        if getattr(arguments, flag) is not None:
            raise UsageError(
                f"--{flag} needs --model", next="name the model, or omit --{flag} for the embedded models"
            )
    return [
        _make_job(read_gguf(pair.model), read_golden(pair.golden), arguments, settings)
        for pair in (*list_embedded_pairs(), *([] if arguments.isolation else list_quick_pairs()))
    ]


def _make_job(
    gguf: GGUFFile, golden: Golden | None, arguments: argparse.Namespace, settings: Settings
) -> ValidationJob:
    tiers = [
        replace(spec, choice=_choose_tier(spec, arguments))
        for spec in parse_tiers(arguments.tiers, arguments.ordering, options.ORDERING_CHOICES)
    ]
    layers = parse_layers(arguments.layers, count_layers(gguf))
    prefill = arguments.prefill_ordering or ""
    if prefill and (other := next((spec for spec in tiers if spec.ordering not in BIT_DEFINED), None)):
        raise UsageError(
            f"--prefill-ordering {prefill} has defined bits, and {other.text} computes in {other.ordering}",
            next="--ordering canonical-1",
        )
    if golden is not None:
        check_model_matches(golden, gguf, layers)
    ctx = _choose_ctx(gguf, golden, arguments.ctx)
    tokens = _choose_tokens(gguf, golden, arguments)
    if len(tokens) > ctx:
        raise UsageError(f"{len(tokens)} tokens do not fit the context of {ctx}", next="use a larger --ctx")
    dropped = False  # an embedded golden, whose tokens run all the same
    first_input = _make_first_input(gguf, layers, tokens, ctx, arguments, settings)
    if first_input is not None and not first_input.true:
        if arguments.golden:
            raise UsageError(
                "--golden cannot be combined with --input: it contains values for the model's own input",
                next="--input F.npz",
            )
        golden, dropped = None, golden is not None
    if golden is not None and golden.kv_type != arguments.kv_type:
        if arguments.golden:
            raise UsageError(
                f"{golden.path.name} was computed with --kv-type {golden.kv_type}, not {arguments.kv_type}",
                next=f"--kv-type {golden.kv_type}",
            )
        golden, dropped = None, True
    if golden is not None and prefill:
        if arguments.golden:
            raise UsageError(
                f"{golden.path.name} was computed without --prefill-ordering",
                next="remove --golden or the ordering",
            )
        golden, dropped = None, True
    if golden is not None and tokens != [int(token) for token in golden.ids]:
        raise UsageError(
            f"{golden.path.name} was created for a different prompt", next="remove --tokens and --prompt"
        )
    reference = _choose_reference(tiers, golden, arguments)
    oracle = arguments.input == "oracle" or (len(tiers) == 1 and golden is None)  # judges, or feeds the layers
    run = [spec.choice for spec in (*tiers, *([reference] if reference is not None else []))]
    options.check_options_used([*run, ORACLE] if oracle else run, arguments)
    selection = Selection(("l_out-*", "ffn_moe_topk-*", *arguments.nodes), layers.first, layers.last)
    if arguments.nodes:
        _check_node_names(gguf, layers, ctx, arguments)
    return ValidationJob(
        gguf=gguf,
        name=gguf.name,
        tiers=tuple(tiers),
        tokens=tokens,
        kv_type=arguments.kv_type,
        prefill_ordering=prefill,
        steps=_choose_steps(gguf, arguments.steps, golden, layers, room=ctx - len(tokens)),
        ctx=ctx,
        layers=layers,
        selection=selection,
        golden=golden,
        reference=reference,
        first_input=first_input,
        resync=arguments.resync,
        threads=options.choose_threads(arguments, settings),
        timeout_seconds=options.parse_timeout(arguments),
        settings=settings,
        observer=make_observer(arguments),
        use_cache=not arguments.no_cache,
        smallest=_find_smallest(arguments.emit_repro),
        repro=_make_repro(
            gguf, golden, tokens if dropped else arguments.tokens, ctx if dropped else None, arguments
        ),
    )


def _find_smallest(folder: str | None) -> Smallest | None:
    if folder is None:
        return None

    return partial(add_repro, folder=Path(folder))


def _choose_tier(spec: TierSpec, arguments: argparse.Namespace) -> Choice:
    """Choose the tier. It is simulated if there is no AMD GPU (design §4.11). Raise UnsupportedError with the
    reason if that is impossible.
    """
    simulator = options.simulation_options(arguments)
    return choose_tier(spec.name, arguments.device, simulate=True, unchecked=arguments.unchecked, **simulator)


def _choose_steps(gguf: GGUFFile, asked: int | None, golden: Golden | None, layers: Layers, *, room: int) -> int:
    """Return the requested number of steps, else that of the golden or a few, limited by the context."""
    if asked is None:
        if find_pooling(gguf):
            return 0
        recorded = 0 if golden is None or golden.greedy_tokens is None else len(golden.greedy_tokens)
        return min(DEFAULT_STEPS if golden is None else recorded, room) if layers.whole else 0
    if asked < 0:
        raise UsageError(f"--steps {asked}: expected 0 or more")
    check_generates(gguf, asked)
    if asked and not layers.whole:
        raise UsageError(f"--steps {asked}: greedy tokens require all layers", next="remove --layers or --steps")
    if asked > room:
        raise UsageError(
            f"--steps {asked}: the context has room for only {room} more tokens",
            next="use fewer steps or a larger --ctx",
        )
    return asked


def check_generates(gguf: GGUFFile, steps: int) -> None:
    """Raise UsageError for greedy steps of an embedding model, which generates no tokens."""
    if steps and find_pooling(gguf):
        raise UsageError(f"--steps {steps}: an embedding model generates no tokens", next="remove --steps")


def _check_node_names(gguf: GGUFFile, layers: Layers, ctx: int, arguments: argparse.Namespace) -> None:
    """Check the patterns of --nodes. Raise UsageError for a pattern that matches no value of these layers, because
    an empty comparison must not pass.
    """
    backend = open_backend(ORACLE, "canonical-1", threads=1)
    around = make_observer(arguments).around_engine
    with Engine(
        gguf,
        backend,
        ctx=ctx,
        kv_type=arguments.kv_type,
        options=EngineOptions(transform=transform(layers), around=around),
    ) as engine:
        graph = engine.graph("prefill", (layers.feed,) if layers.feed else ())
    labels = {(label, node.layer) for node in graph.nodes for label in list_labels(node)}
    for glob in arguments.nodes:
        only = Selection((glob,), layers.first, layers.last)
        if not any(only.is_selected(label, layer) for label, layer in labels):
            raise UsageError(
                f"--nodes {glob}: no node of these layers matches", next="zinc-rt inspect --graph lists them"
            )


def count_layers(gguf: GGUFFile) -> int:
    """Return the number of layers of a plain forward pass, without the layers for next-token prediction at the
    end.
    """
    require_architecture(gguf)
    hyper = HyperParameters(gguf.architecture, gguf.metadata, str(gguf.path))
    return hyper.read_positive("block_count") - hyper.read_integer("nextn_predict_layers", 0)


def check_model_matches(golden: Golden, gguf: GGUFFile, layers: Layers) -> None:
    """Check that the golden belongs to the model. Raise InputError if it cannot."""
    table = gguf.tensors.get("token_embd.weight")
    vocab, width = (0, 0) if table is None else table.shape
    for what, recorded, item in (
        ("architecture", golden.meta.get("arch"), gguf.architecture),
        ("embedding", golden.logits.shape[1], width)
        if find_pooling(gguf)  # whose results are hidden states
        else ("vocabulary", golden.logits.shape[1], vocab),
        ("number of layers", None if golden.l_out is None else len(golden.l_out), layers.total),
        ("width", None if golden.l_out is None else golden.l_out.shape[2], width),
    ):
        if recorded is not None and recorded != item:
            raise InputError(
                f"{golden.path}: was created for another model: its {what} is {recorded}, but {gguf.path.name} "
                f"has {item}"
            )
    recorded_digest = golden.meta.get("model_digest")
    if recorded_digest and recorded_digest != digest_model(gguf):
        named = golden.meta.get("model") or "the model it was made for"
        remake = (
            "" if golden.foreign else f"; or make it again: {golden.meta.get('command', 'zinc-rt golden make')}"
        )
        raise InputError(
            f"{golden.path}: was created for a file with digest {str(recorded_digest)[:12]}, but "
            f"{gguf.path.name} has {digest_model(gguf)[:12]}",
            next=f"--model {named}{remake}",
        )


def _choose_ctx(gguf: GGUFFile, golden: Golden | None, asked: int | None) -> int:
    """Return the requested context, else the golden's, else the default."""
    if asked is None and golden is not None and golden.ctx is not None:
        return min(choose_default_ctx(gguf, None), golden.ctx)
    ctx = choose_default_ctx(gguf, asked)
    if ctx > read_trained_ctx(gguf):  # nobody's values are known there
        raise UsageError(f"--ctx {ctx}: expected 1 to {read_trained_ctx(gguf)} tokens for this model")
    return ctx


def _choose_reference(
    tiers: list[TierSpec], golden: Golden | None, arguments: argparse.Namespace
) -> TierSpec | None:
    """Return --reference, else t_cpu, else the last tier; None if only one tier runs."""
    if arguments.reference:
        spec = parse_tiers(arguments.reference, arguments.ordering, options.ORDERING_CHOICES)[0]
        return replace(spec, choice=_choose_tier(spec, arguments))
    if len(tiers) == 1:
        return None
    return next((spec for spec in tiers if spec.text == ORACLE.tier), tiers[-1])


def _choose_tokens(gguf: GGUFFile, golden: Golden | None, arguments: argparse.Namespace) -> list[int]:
    if arguments.tokens is not None or arguments.prompt is not None:
        return options.choose_model_tokens(gguf, arguments.tokens, arguments.prompt)
    if golden is not None:
        return [int(token) for token in golden.ids]
    tensor = gguf.tensors.get("token_embd.weight")
    if tensor is None:
        raise InputError(f"{gguf.path}: no token_embd.weight: a tokenizer without weights cannot be validated")
    return [(7 * index + 1) % tensor.shape[0] for index in range(DEFAULT_TOKENS)]


def _make_first_input(
    gguf: GGUFFile, layers: Layers, tokens: list[int], ctx: int, arguments: argparse.Namespace, settings: Settings
) -> LayerInput | None:
    """Return the input of the first layer, if it is not layer 0."""
    if not layers.first:
        if arguments.input not in (arguments.defaults["input"], "oracle"):
            raise UsageError(
                f"--input {arguments.input}: layer 0 takes its input from the prompt",
                next="start at a later layer: --layers 1:",
            )
        return None
    width = int(gguf.tensors["token_embd.weight"].shape[-1])
    what: str = arguments.input
    if what == "oracle":
        before = Layers(0, layers.first, layers.total)
        backend = open_backend(ORACLE, arguments.ordering, threads=options.choose_threads(arguments, settings))
        with Engine(
            gguf,
            backend,
            ctx=ctx,
            kv_type=arguments.kv_type,
            options=EngineOptions(
                transform=transform(before), settings=settings, around=make_observer(arguments).around_engine
            ),
        ) as engine:
            run = capture_run(engine, tokens, Selection((layers.feed,)))
        return LayerInput(run.values[layers.feed], f"the oracle's {layers.feed}", true=True)
    if what.startswith("random:"):
        seed = what.removeprefix("random:")
        if not seed.isdigit():
            raise UsageError(f"--input {what}: expected random:SEED with an integer seed")
        return make_random_input(int(seed), len(tokens), width)
    return read_input_file(what, layers, len(tokens), width)


def _make_repro(
    gguf: GGUFFile, golden: Golden | None, tokens: list[int] | None, ctx: int | None, arguments: argparse.Namespace
) -> str:
    """Return the command that repeats this run. `tokens`, `ctx`: values to include if they do not follow from the
    rest.
    """
    parts = ["zinc-rt", "validate", "--model", str(gguf.path), "--tiers", arguments.tiers]
    if golden is not None:
        parts += ["--golden", str(golden.path)]
    for flag in REPEATED:
        value = getattr(arguments, flag)
        if value is not None and value != arguments.defaults[flag]:
            parts += [f"--{flag.replace('_', '-')}", str(value)]
    if arguments.device == "sim" and (name := options.find_simulated_chip(vars(arguments))) != "sim":
        parts += ["--device", name]
    for glob in arguments.nodes:
        parts += ["--nodes", glob]
    parts += ["--resync"] if arguments.resync else []
    parts += ["--unchecked"] if arguments.unchecked else []
    if ctx is not None and arguments.ctx is None:
        parts += ["--ctx", str(ctx)]
    if tokens is not None:
        parts += ["--tokens", ",".join(map(str, tokens))]
    if arguments.prompt:
        parts += ["--prompt", arguments.prompt]
    return shlex.join(parts)
