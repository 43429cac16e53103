"""Show a configuration's memory, the guarantees of its tenants, or a new key, without serving."""

from __future__ import annotations

import argparse
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
