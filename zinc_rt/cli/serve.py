"""Serve models over HTTP with OpenAI's API, to one tenant or many."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import (
    add_budgets,
    add_device,
    add_graphs,
    add_kv_type,
    add_prefill_ordering,
    add_speculation,
    add_timeout,
    check_options_used,
    choose_threads,
    parse_timeout,
    print_status,
    read_settings_once,
    simulation_options,
)
from zinc_rt.cli.output import add_format
from zinc_rt.cli.serve_plan import create_and_show_key, save_graphs, show_plan
from zinc_rt.host.arguments import Parser, add_models, parse_context_length
from zinc_rt.host.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from zinc_rt.serve.config.settings import Config
    from zinc_rt.serve.engine.served_model import ServedModel
    from zinc_rt.serve.engine.server import InferenceServer

EMBEDDED = "qwen3-q"  # where no model is given: a small one that ships with the package
HOST, PORT, SLOTS = "127.0.0.1", 8080, 8
SWITCH_SECONDS = 0.0005  # threads take turns as often: a step's end is not to wait for an event loop's turn
EXAMPLES = """\
Without --config the server has one tenant, no keys, and listens on the loopback address only. See docs/serving.md.

examples:
  zinc-rt serve M.gguf
  zinc-rt serve --model M.gguf --port 8000 --ctx 32768 --slots 16
  zinc-rt serve --config serve.yaml
  zinc-rt serve --config serve.yaml --check           show the memory plan and each tenant's guarantees
  zinc-rt serve M.gguf --tier t1 --save-graphs M.zgf  plan every step once, on any machine
  zinc-rt serve M.gguf --tier t1 --graphs M.zgf       start from this plan
  zinc-rt serve --new-key alice                       create a key for the configuration file
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model": "M", "messages": [{"role": "user", "content": "Hello"}]}'

exit codes: 0 SIGTERM or Ctrl-C, after running requests have ended; 130 a second signal aborted them; 1 the device
was lost, or the simulated device reported an error; 2 an unusable file, option or address.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description="Serve models over HTTP with OpenAI's API.", epilog=EXAMPLES)
    add_models(parser, required=False)
    parser.checks_models = False  # an embedded model's name is accepted too
    where = parser.add_argument_group("server")
    where.add_argument("--config", metavar="F.yaml", help="models, tenants, keys and limits (docs/serving.md)")
    where.add_argument("--host", metavar="ADDRESS", help=f"address to listen on (default {HOST})")
    where.add_argument(
        "--port", type=int, metavar="N", help=f"port to listen on; 0: any free port (default {PORT})"
    )
    where.add_argument(
        "--ledger",
        metavar="F.sqlite",
        help="record usage in this database, for zinc-rt usage (default: none)",
    )
    where.add_argument(
        "--insecure",
        action="store_true",
        help="allow a server without keys on an address that other machines can reach",
    )
    first = parser.add_argument_group("instead of serving")
    first.add_argument("--plan", action="store_true", help="show the models' memory plan and exit")
    first.add_argument(
        "--check", action="store_true", help="show the memory plan and each tenant's guarantees and exit"
    )
    first.add_argument(
        "--save-graphs", metavar="FILE", help="plan all steps, write a graph file for --graphs and exit"
    )
    first.add_argument("--new-key", metavar="TENANT", help="create a key, print it once and exit")
    first.add_argument(
        "--scopes",
        metavar="WORDS",
        default="inference,usage",
        help="scopes of the new key: inference, usage, admin (default inference,usage)",
    )
    add_format(first)
    runs = parser.add_argument_group("model")
    runs.add_argument("--slots", type=int, metavar="N", help=f"concurrent requests (default {SLOTS})")
    runs.add_argument(
        "-c",
        "--ctx",
        type=parse_context_length,
        metavar="N",
        help="context length; 0: the trained length (default: the trained length, but at most 4096)",
    )
    add_kv_type(runs, None)
    runs.add_argument("--tier", metavar="TIER", help="tier, as in zinc-rt run (default: ZINC_RT_TIER, else auto)")
    add_device(runs, "device, as in zinc-rt run: auto, hw, cpu, sim or vulkan[:N|:NAME] (default auto)")
    runs.add_argument(
        "--facts", metavar="F", help="facts file of the card that the simulated device should behave like"
    )
    runs.add_argument("--ordering", metavar="NAME", help="order of arithmetic (default canonical-1)")
    add_prefill_ordering(runs, "decoded tokens keep --ordering")
    add_timeout(runs)
    add_budgets(runs)
    add_speculation(runs)
    add_graphs(runs)
    runs.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: all cores)")
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    _check_installed()
    from zinc_rt.serve.app import make_app
    from zinc_rt.serve.engine.server import InferenceServer
    from zinc_rt.serve.http.listening import bind, format_url, listen
    from zinc_rt.serve.observe.logs import ServerLog

    start = time.monotonic()
    if arguments.new_key is not None:
        return create_and_show_key(arguments)
    config = _make_config(arguments)
    if arguments.plan or arguments.check:
        return show_plan(config, tenants=arguments.check)
    if arguments.save_graphs is not None:
        return save_graphs(config, arguments.save_graphs)
    with bind(config.server.host, config.server.port) as bound, closing(ServerLog(config.log.level)):
        server = InferenceServer(config)
        sys.setswitchinterval(SWITCH_SECONDS)

        def show_ready() -> None:
            _describe(server)
            print(f"ready     {format_url(bound)} after {time.monotonic() - start:.1f} s", flush=True)

        return listen(server, make_app(server), bound, ready=show_ready, report=print_status)


def _check_installed() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            f"the server needs {error.name}, which is not installed", next="pip install 'zinc-rt[serve]'"
        ) from error


def _make_config(arguments: argparse.Namespace) -> Config:
    from zinc_rt.engine.devices import choose_tier
    from zinc_rt.serve.config.checks import check_exposure
    from zinc_rt.serve.config.settings import (
        ClassSettings,
        ClassTable,
        Config,
        DeviceSettings,
        KvSettings,
        LedgerSettings,
        ServerSettings,
    )

    if arguments.port is not None and not 0 <= arguments.port <= 65535:
        raise UsageError(f"--port {arguments.port}: expected 0 to 65535")
    if arguments.config is not None:
        return _read_config_file(arguments)
    knobs = read_settings_once()
    tier, simulated = arguments.tier or knobs.tier, simulation_options(arguments)
    ordering = arguments.ordering or "canonical-1"
    check_options_used(
        [choose_tier(tier, arguments.device, ordering=ordering, unchecked=arguments.unchecked, **simulated)],
        arguments,
    )
    model = arguments.model
    if model is None:
        model = EMBEDDED
        print_status(
            f"model     {EMBEDDED}, which ships with the package: its weights are random, so its text is "
            "meaningless"
        )
    asked: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("ctx", "slots", "speculate", "prefill_ordering", "graphs")
        if getattr(arguments, name) is not None
    }
    if arguments.kv_type is not None:
        asked["kv"] = KvSettings(arguments.kv_type)
    budgets = ClassSettings(gap_ms=arguments.gap_budget, first_token_ms=arguments.first_token_budget)
    config = Config.for_model(
        model,
        model=asked,
        classes=ClassTable(interactive=budgets, standard=budgets),
        server=ServerSettings(
            host=arguments.host or HOST,
            port=PORT if arguments.port is None else arguments.port,
            insecure=arguments.insecure,
        ),
        device=DeviceSettings(
            tier=tier,
            device=arguments.device,
            ordering=ordering,
            threads=choose_threads(arguments, knobs),
            step_timeout_s=parse_timeout(arguments),
            unchecked=arguments.unchecked,
            graph_cache=knobs.graph_cache == "on",
            experts=knobs.experts,
            **simulated,
        ),
        ledger=LedgerSettings(path=arguments.ledger),
    )
    check_exposure(config)
    return config


def _read_config_file(arguments: argparse.Namespace) -> Config:
    """Read the configuration file. Raise UsageError for options other than the address and the ledger."""
    from zinc_rt.serve.config.checks import check_exposure
    from zinc_rt.serve.config.file import read_config

    file_parser = parser()
    for name in (
        "model", "slots", "ctx", "tier", "device", "facts", "ordering", "timeout", "threads", "gap_budget",
        "first_token_budget", "kv_type", "prefill_ordering", "graphs",
    ):  # fmt: skip
        if getattr(arguments, name) != file_parser.get_default(name):
            name = name.replace("_", "-")
            raise UsageError(f"--{name} cannot be used with --config", next=f"set it in {arguments.config}")
    config = read_config(arguments.config)
    server, ledger = config.server, config.ledger
    if arguments.host is not None:
        server = replace(server, host=arguments.host)
    if arguments.port is not None:
        server = replace(server, port=arguments.port)
    if arguments.ledger is not None:
        ledger = replace(ledger, path=arguments.ledger)
    config = replace(config, server=replace(server, insecure=server.insecure or arguments.insecure), ledger=ledger)
    check_exposure(config)
    return config


def _describe(server: InferenceServer) -> None:
    from zinc_rt.cli.describe import describe_prefill, format_prefill

    for model in server.models.values():
        choice, limits = model.opener.choice, model.core.engine.limits
        print_status(f"tier      {choice.why}")
        if choice.shortcut:
            print_status(f"shortcut  {choice.shortcut}")
        if (stored := model.core.engine.variants.stored) is not None:
            print_status(f"graphs    {stored.starts.text}")
        if _has_faster_ordering(model):
            print_status("ordering  canonical-1; canonical-1-q8 is faster for this model on a CPU (other bits)")
        if prefill := model.core.engine.variants.prefill_ordering:
            print_status(f"prefill   {format_prefill(describe_prefill(model.core.engine.model.graph, prefill))}")
        print_status(f"serves    {model.id}: {limits.slots} requests at once, context {limits.ctx:,}")


def _has_faster_ordering(model: ServedModel) -> bool:
    """Return whether a CPU computes a model in canonical-1 that it could compute in integers."""
    from zinc_rt.kernels.rows.repack import Q8_BLOCKS

    opener = model.opener
    if opener.choice.spec.tier != "t_cpu_native" or opener.options.ordering != "canonical-1":
        return False
    return any(tensor.dtype in Q8_BLOCKS for tensor in opener.gguf.tensors.values())


main = Command("serve", parser, _run_command)
