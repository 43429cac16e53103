"""Options that several commands share, and the engine that they configure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.backends import registry
from zinc_rt.cli.command import read_environment
from zinc_rt.cli.observer import make_observer
from zinc_rt.cli.progress import show_stages
from zinc_rt.host import terminal
from zinc_rt.host.arguments import parse_context_length, suggest_word
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.engine.devices import Choice
    from zinc_rt.engine.engine import Engine
    from zinc_rt.engine.graph_file import GraphFile
    from zinc_rt.engine.variants import Transform
    from zinc_rt.host.settings import Settings
    from zinc_rt.model.gguf import GGUFFile
    from zinc_rt.sched.speculation import SpeculationOptions
    from zinc_rt.sched.tenant import Classes

DEFAULT_SANITIZER = "fast"
COHERENCE_CHOICES = ("bar", "direct", "caches")  # sim.machine_options.COHERENCE, without importing it for --help
ORDER = ("coherence", "reorder")
DEVICES = ("auto", "hw", "cpu", "sim")  # of --device, beside those that a tier lists
KV_TYPES = ("f32", "f16", "q8_0")  # ir.dtypes.CACHE_TYPES, likewise
PREFILL_ORDERINGS = ("wmma-f16", "wmma-bf16")  # ir.op.WMMA_FORMS, likewise
ORDERING_CHOICES = ("canonical-1", "canonical-1-q8", "float32-dequant")  # without importing NumPy for --help


def parse_device_name(text: str) -> str:
    """Parse --device, as argparse's `type`. Whether the device exists is checked later."""
    tiers = [row.tier for row in registry.built() if row.lists_devices]
    if text in DEVICES or text.partition(":")[0] in tiers:
        return text
    if text.startswith("sim:"):
        from zinc_rt.sim.chips import find_chip
        from zinc_rt.sim.profiles import find_profile

        name, _, version = text[4:].partition("@")
        try:
            if name:
                find_chip(name)
            if version:
                find_profile(version)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text
    near = suggest_word(text, [*DEVICES, *tiers])
    listed = ", ".join([*DEVICES, *(f"{tier}[:N|:NAME]" for tier in tiers)])
    raise argparse.ArgumentTypeError(f"no {text!r}{near or ':'} {f'({listed})' if near else f'one of {listed}'}")


class _DeviceAction(argparse.Action):
    """Split sim:CHIP@LINUX into the device sim, and the chip and the Linux version that it simulates."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        device, _, profile = str(values).partition(":")
        chip, _, linux = profile.partition("@")
        namespace.chip, namespace.linux = chip or None, linux or None
        namespace.device = "sim" if device == "sim" else values


def add_device(group: argparse._ArgumentGroup, text: str) -> None:
    """Add --device, with `text` as its help, --sanitizer and --unchecked."""
    group.add_argument(
        "--device", type=parse_device_name, action=_DeviceAction, metavar="WHICH", default="auto", help=text
    )
    group.add_argument(
        "--sanitizer",
        choices=("off", "fast", "full"),
        help="shader checks of the simulated device (default fast: bounds, alignment and initialisation)",
    )
    group.add_argument(
        "--unchecked",
        action="store_true",
        help="use the GPU even if pm4-test has not passed on it with this Linux kernel and driver; noted in the "
        "report",
    )


def add_budgets(group: argparse._ArgumentGroup) -> None:
    """Add --gap-budget and --first-token-budget."""
    group.add_argument(
        "--gap-budget",
        type=float,
        metavar="MS",
        help="maximum step time while an interactive or standard request decodes, reached by limiting prompt "
        "tokens and alternating batch decodes; 0: no limit (default: 30 ms for interactive requests)",
    )
    group.add_argument(
        "--first-token-budget",
        type=float,
        metavar="MS",
        help="target time to first token of an interactive or standard request, reached by limiting other "
        "prompts; 0: no limit (default: 100 ms for interactive requests)",
    )


def add_graphs(group: argparse._ActionsContainer) -> None:
    """Add --graphs."""
    group.add_argument(
        "--graphs", metavar="FILE", help="use the graphs of a file that serve --save-graphs wrote (docs/exec.md)"
    )


def add_speculation(group: argparse._ArgumentGroup) -> None:
    """Add --speculate."""
    group.add_argument(
        "--speculate",
        metavar="HOW",
        help="draft up to K tokens and verify them in one step, which changes no answer: ngram[:K] from the "
        "request's own tokens, mtp[:K] by the file's layer for next-token prediction, draft:FILE[:K] with a "
        "smaller model, or off (default off)",
    )


def make_classes(arguments: argparse.Namespace) -> Classes:
    """Return the scheduler's classes with the budgets of `add_budgets`. Raises UsageError."""
    from zinc_rt.sched.tenant import CLASSES, with_budgets

    return with_budgets(CLASSES, gap_ms=arguments.gap_budget, first_token_ms=arguments.first_token_budget)


def add_coherence(group: argparse._ArgumentGroup) -> None:
    """Add --coherence and --reorder."""
    group.add_argument(
        "--coherence",
        choices=COHERENCE_CHOICES,
        help="memory model of the simulated device: bar (CPU and GPU views of VRAM are separate copies), direct "
        "(one copy), caches (like bar, but caches of waves can be stale; slow) (default bar)",
    )
    group.add_argument(
        "--reorder",
        type=int,
        metavar="SEED",
        help="complete concurrent work and evict cache lines of the simulated device in a random order with "
        "this seed",
    )


def add_engine(parser: argparse.ArgumentParser, *, tier: bool = True) -> None:
    group = parser.add_argument_group("where and how it runs")
    if tier:
        group.add_argument(
            "--tier",
            metavar="TIER",
            help=f"{', '.join(row.tier for row in registry.built())} or auto (default: ZINC_RT_TIER, else auto)",
        )
    add_device(
        group,
        "device of the tier: auto, hw (never simulated), cpu, sim[:CHIP] (a simulated R9700 or CHIP; proves "
        "nothing about hardware), or vulkan[:N|:NAME] (zinc-rt devices lists them) (default auto)",
    )
    add_coherence(group)
    group.add_argument(
        "--facts",
        metavar="F",
        help="make the simulated device behave like the card measured with pm4-test --learn F",
    )
    add_computation(group)


def add_computation(group: argparse._ArgumentGroup) -> None:
    """Add what every tier has: --ordering, --ctx, --kv-type, --timeout and --threads."""
    group.add_argument(
        "--ordering",
        choices=ORDERING_CHOICES,
        metavar="NAME",
        default="canonical-1",
        help=f"order of arithmetic: {', '.join(ORDERING_CHOICES)} (fast); see docs/canonical-1.md (default: the "
        "first)",
    )
    group.add_argument(
        "-c",
        "--ctx",
        type=parse_context_length,
        metavar="N",
        help="context length; 0: the trained length (default: the trained length, but at most 4096)",
    )
    add_kv_type(group)
    add_timeout(group)
    group.add_argument(
        "--threads", type=int, metavar="N", help="CPU threads (default: all cores); does not change results"
    )


def add_kv_type(
    group: argparse.ArgumentParser | argparse._ArgumentGroup, default: str | None = KV_TYPES[0]
) -> None:
    group.add_argument(
        "--kv-type",
        choices=KV_TYPES,
        metavar="TYPE",
        default=default,
        help=f"type of cached keys and values: {', '.join(KV_TYPES)} (default: the first)",
    )


def add_prefill_ordering(parser: argparse.ArgumentParser | argparse._ArgumentGroup, text: str) -> None:
    """Add --prefill-ordering. `text`: what a command does with it."""
    parser.add_argument(
        "--prefill-ordering",
        choices=PREFILL_ORDERINGS,
        help=f"ordering of products with prompt tokens: {text} (default: as --ordering)",
    )


def add_timeout(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help="time limit of one step in seconds (default: at least 2 on a card; 60 on another GPU or a "
        "simulated card, 600 for the first step of a simulated card; none on t_cpu and software drivers)",
    )


def parse_tokens(text: str) -> list[int]:
    """Parse token ids like `1,2,3`, as argparse's `type`. An empty text is an empty list."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of token ids; expected for example 1,2,3"
        ) from error


def read_settings_once() -> Settings:
    return read_environment()


def choose_threads(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.threads is not None and arguments.threads < 1:
        raise UsageError(f"--threads {arguments.threads}: expected 1 or more")
    return arguments.threads or settings.cpu_workers


def simulation_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a simulated device from --sanitizer, --coherence, --reorder and --facts. Raise
    InputError or UsageError for a facts file that is invalid or of another chip."""
    asked: dict[str, Any] = {"sanitizer": arguments.sanitizer or DEFAULT_SANITIZER}
    asked |= {
        name: getattr(arguments, name)
        for name in ("chip", "linux", *ORDER)
        if getattr(arguments, name, None) is not None
    }
    if getattr(arguments, "facts", None):
        from zinc_rt.sim.chips import find_chip
        from zinc_rt.sim.facts import load

        load(Path(arguments.facts), chip=find_chip(asked.get("chip", DEFAULT_ARCH)).gfx)
        asked["facts"] = arguments.facts
    return asked


def find_simulated_chip(asked: Mapping[str, Any]) -> str:
    """Return the name of the simulated device for --device."""
    chip, linux = asked.get("chip") or "", asked.get("linux") or ""
    return f"sim:{chip}{'@' * bool(linux)}{linux}" if chip or linux else "sim"


def order_options(asked: Mapping[str, Any]) -> list[str]:
    """Return the options --coherence and --reorder that repeat these arguments."""
    return [word for name in ORDER if asked.get(name) is not None for word in (f"--{name}", str(asked[name]))]


def check_options_used(choices: Sequence[Choice], arguments: argparse.Namespace) -> None:
    """Raise UsageError for an option that neither the tiers nor their device accept."""
    tiers = ", ".join(dict.fromkeys(choice.tier for choice in choices))
    does = "do" if "," in tiers else "does"
    if arguments.threads and not any("threads" in choice.spec.options for choice in choices):
        takers = ", ".join(row.tier for row in registry.built() if "threads" in row.options)
        raise UsageError(f"tier {tiers} {does} not support --threads", next=f"remove it, or use {takers}")
    if getattr(arguments, "unchecked", False) and not any(choice.gpu is not None for choice in choices):
        raise UsageError(
            f"--unchecked needs a GPU of this machine, which {tiers} {does} not use",
            next="remove it",
        )
    of = str(getattr(arguments, "device", "auto")).partition(":")[0]
    if any(row.tier == of for row in registry.built()) and not any(choice.tier == of for choice in choices):
        raise UsageError(f"--device {arguments.device} is for {of}, which is not among {tiers}", next="remove it")
    for name in ("sanitizer", *ORDER, "facts"):
        if getattr(arguments, name, None) is not None and not any(choice.simulated for choice in choices):
            raise UsageError(
                f"--{name} needs a simulated device, which {tiers} {does} not use",
                next=f"add --device sim, or remove --{name}",
            )


def open_engine(
    gguf: GGUFFile,
    arguments: argparse.Namespace,
    settings: Settings,
    *,
    slots: int = 1,
    transform: Transform | None = None,
    stored: bool = False,
    speculation: SpeculationOptions | None = None,
) -> Engine:
    """Open the engine for --tier, --device, --ordering, --prefill-ordering, --ctx and --threads; `transform` is
    passed to it.
    `stored`: the engine may use graphs planned by an earlier run. `speculation`: its limits are those that drafts
    need.
    """
    from zinc_rt.engine.devices import choose_tier, open_backend
    from zinc_rt.engine.engine import Engine, choose_default_ctx, format_ctx_warning
    from zinc_rt.engine.graph_store import GraphStore
    from zinc_rt.engine.opening import count_state_rows
    from zinc_rt.engine.variants import EngineOptions
    from zinc_rt.host.version import digest_planning
    from zinc_rt.model.builder import SequenceLimits

    choice = choose_tier(
        arguments.tier or settings.tier,
        arguments.device,
        ordering=arguments.ordering,
        unchecked=arguments.unchecked,
        **simulation_options(arguments),
    )
    check_options_used([choice], arguments)
    saved = _open_saved_graphs(arguments, speculation)
    limits = (
        saved.limits
        if saved is not None
        else SequenceLimits(
            choose_default_ctx(gguf, arguments.ctx),
            slots,
            state_rows=None if speculation is None else count_state_rows(slots, speculation),
            kv_type=arguments.kv_type,
            mtp=speculation is not None and speculation.kind == "mtp",
        )
    )
    if warning := format_ctx_warning(gguf, arguments.ctx):
        print_status(f"warning   {warning}")
    with show_stages() as stage:
        stage.say(f"loading {Path(gguf.path).name} on {choice.tier}")
        backend = open_backend(
            choice, arguments.ordering, threads=choose_threads(arguments, settings), affinity=settings.cpu_affinity
        )
        try:
            return Engine(
                gguf,
                backend,
                limits=limits,
                options=EngineOptions(
                    settings=settings,
                    transform=transform,
                    prefill_ordering=getattr(arguments, "prefill_ordering", None) or "",
                    timeout_seconds=parse_timeout(arguments),
                    slow=lambda line: print_status(f"waiting   {line}"),
                    around=make_observer(arguments).around_engine,
                    store=saved
                    or (GraphStore(digest_planning()) if stored and settings.graph_cache == "on" else None),
                ),
            )
        except BaseException:
            backend.close()
            raise


def _open_saved_graphs(arguments: argparse.Namespace, speculation: SpeculationOptions | None) -> GraphFile | None:
    """Return the file of --graphs, whose limits the run takes over; None without the option. Raise UsageError for
    an option that asks for other limits."""
    from zinc_rt.engine.graph_file import open_graph_file

    if not getattr(arguments, "graphs", None):
        return None
    saved = open_graph_file(arguments.graphs)
    drafts, mtp = 0, False
    if speculation is not None:
        drafts, mtp = speculation.drafts, speculation.kind == "mtp"
    asked = replace(
        saved.limits,
        ctx=arguments.ctx or saved.limits.ctx,
        kv_type=arguments.kv_type,
        rows=saved.limits.slots * (1 + drafts),
        mtp=mtp,
    )
    saved.check_limits(asked)
    return saved


def print_status(line: str) -> None:
    terminal.show(line, out=sys.stderr)


def parse_timeout(arguments: argparse.Namespace) -> float | None:
    """Return --timeout in seconds, or None if it is not set. Raise UsageError unless it is positive."""
    seconds: float | None = arguments.timeout
    if seconds is not None and not 0 < seconds < float("inf"):
        raise UsageError(f"--timeout {seconds:g}: expected more than 0 seconds")
    return seconds


def read_model(path: str) -> GGUFFile:
    """Read the model file. Raise InputError for a file with only a vocabulary."""
    from zinc_rt.model.gguf import read_gguf

    gguf = read_gguf(path)
    if not gguf.tensors:
        raise InputError(
            f"{path}: the file contains a tokenizer but no tensors",
            next="use a whole model; zinc-rt tokenize and inspect take this one",
        )
    return gguf


def choose_model_tokens(gguf: GGUFFile, tokens: Sequence[int] | None, prompt: str | None) -> list[int]:
    """Return the ids of --tokens, or the ids of --prompt from the model's tokenizer."""
    if tokens:
        return list(tokens)
    if prompt is None:
        raise UsageError("no prompt was given", next="use --tokens 1,2,3 or --prompt TEXT")
    from zinc_rt.model.tokenizer import Tokenizer

    ids = Tokenizer.from_metadata(gguf.metadata).encode(prompt)
    if not ids:
        raise UsageError("the prompt has no tokens", next="use a longer --prompt, or --tokens 1,2,3")
    return ids
