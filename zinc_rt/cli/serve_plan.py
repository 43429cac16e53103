"""Show a configuration's memory, the guarantees of its tenants, or a new key, without serving."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from zinc_rt.cli.output import format_size
from zinc_rt.host import terminal
from zinc_rt.host.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.serve.config.settings import Config


def show_plan(config: Config, *, tenants: bool) -> int:
    """Show the memory of each model and, with `tenants`, the guarantees of each tenant. Raise ZincError for an
    invalid configuration, InputError if it does not fit the device."""
    from zinc_rt.serve.config.memory_plan import check_fits, list_tenant_shares, make_memory_plan

    plans = [make_memory_plan(model, config.device) for model in config.models if model.loaded]
    models, memories = [plan for plan, _ in plans], [memory for _, memory in plans]
    number = terminal.number_column
    for model in models:
        terminal.show(f"{model.id} on {model.tier}: {model.slots} requests at once, context {model.ctx:,}")
        rows = [(name, f"{size:,}") for name, size in model.parts.items() if size]
        terminal.show_table(["what", number("bytes")], [*rows, ("together", f"{model.total_bytes:,}")])
        pools = [
            (pool.name, f"{pool.pages:,}", f"{pool.page_bytes:,}", f"{pool.pages * model.page_tokens:,}")
            for pool in model.pools
        ]
        terminal.show_table(
            ["pages", number("count"), number(f"bytes of one ({model.page_tokens} tokens)"), number("tokens")],
            pools,
        )
        terminal.show(f"{model.contexts} of {model.slots} requests may be as long as the context at once\n")
    for settings in config.models:
        if settings.graphs:
            _show_graph_file(settings.graphs)
    check_fits(models, memories[0])
    if tenants:
        tenants_by_id = {tenant.id: tenant for tenant in config.tenants}
        terminal.show_table(
            ["tenant", "class", "model", number("slots, sure"), number("at most"), number("KV tokens guaranteed"),
             number("at most"), number("keys")],
            [
                (share.tenant, tenants_by_id[share.tenant].priority.name.lower(), share.model, share.slots,
                 share.most_slots, f"{share.tokens:,}", f"{share.most_tokens:,}",
                 len(tenants_by_id[share.tenant].keys))
                for share in list_tenant_shares(config, models)
            ],
        )  # fmt: skip
    total_bytes, memory = sum(model.total_bytes for model in models), memories[0]
    of = f" of {format_size(memory.total_bytes)}" if memory.total_bytes else ""
    names = ", ".join(model.id for model in models)
    terminal.show(f"PASS  {names}: {format_size(total_bytes)}{of}, {memory.where}")
    return 0


def _show_graph_file(path: str) -> None:
    from zinc_rt.engine.graph_file import open_graph_file

    saved = open_graph_file(path)
    kinds = Counter(content for content, _, _ in saved.contents)
    entries = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))
    rows = [("saved by", saved.saved_by), ("model", saved.model), ("entries", entries), *saved.requires.items()]
    terminal.show(f"{path}: graph file, {format_size(saved.size_bytes)}")
    terminal.show_table(["property", "value"], [(name, value.strip("'")) for name, value in rows])
    terminal.show("")


def save_graphs(config: Config, path: str) -> int:
    """Plan the model's steps into a graph file. Raise UsageError for several models, and for a tier without saved
    plans; InputError and OutputError."""
    from zinc_rt.engine.opening import make_engine_opener
    from zinc_rt.host.files import check_writable
    from zinc_rt.serve.config.memory_plan import make_options

    if len(config.models) != 1:
        raise UsageError(
            f"--save-graphs: the configuration has {len(config.models)} models, a graph file has one",
            next="use one model, with its options",
        )
    (model,) = config.models
    if model.graphs:
        raise UsageError("--save-graphs cannot be combined with --graphs", next="remove one of them")
    check_writable(path)
    opener = make_engine_opener(model.path, make_options(model, config.device))
    size_bytes = opener.save_graphs(path)
    limits = opener.limits
    terminal.show(
        f"saved     {path}: {model.id} on {opener.choice.tier}, {limits.slots} requests at once, context "
        f"{limits.ctx:,}, {format_size(size_bytes)}"
    )
    if opener.choice.shortcut:
        terminal.show(f"shortcut  {opener.choice.shortcut}")
    return 0


def create_and_show_key(arguments: argparse.Namespace) -> int:
    """Create a key and print its entry for the configuration file. The key is not stored."""
    from typing import get_args

    from zinc_rt.serve.config.settings import Scope
    from zinc_rt.serve.tenants.keys import new_key

    scopes = tuple(arguments.scopes.split(","))
    if unknown := [scope for scope in scopes if scope not in get_args(Scope)]:
        raise UsageError(
            f"--scopes: unknown scope {unknown[0]!r}",
            next=f"use any of {', '.join(get_args(Scope))}, separated by commas",
        )
    key, kept = new_key(scopes=scopes)
    print(key, flush=True)
    terminal.show("", "the key is shown only once; add this entry to its tenant in the configuration file:", "")
    terminal.show(f"  - id: {arguments.new_key}")
    terminal.show(f"    keys: [{{id: '{kept.id}', sha256: '{kept.sha256}', scopes: [{', '.join(scopes)}]}}]")
    return 0
