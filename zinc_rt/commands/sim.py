"""Serve a simulated AMD GPU over a local socket; with `-- PROGRAM ARGS`, to that program as /dev/kfd."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from zinc_rt.cli import Command
from zinc_rt.sim.serve import server


def _body(arguments: argparse.Namespace) -> int:
    wrapped: list[str] | None = arguments.wrapped
    if wrapped is None:
        return server.run(arguments)
    return _program(arguments, wrapped)


def _program(arguments: argparse.Namespace, words: list[str]) -> int:
    import os
    import secrets
    from dataclasses import fields

    from zinc_rt.errors import UsageError
    from zinc_rt.sim.machine_options import MachineOptions
    from zinc_rt.sim.serve.client import SimClient
    from zinc_rt.sim.serve.program import run_program

    if not words:
        raise UsageError("--: no program behind it")
    usual = {each.dest: each.default for each in server.parser()._actions}
    names = {each.name for each in fields(MachineOptions)}
    options = {name: value for name, value in vars(arguments).items() if name in names and value != usual[name]}
    client = SimClient(name=f"program-{os.getpid()}-{secrets.token_hex(4)}", **options)  # no device but its own
    try:
        code = run_program(words, client)
        findings = client.findings()
        for rule, count in Counter(each.rule for each in findings).items():
            first = next(each for each in findings if each.rule == rule)
            print(f"zinc-rt sim: {count} x {rule}: {first.sentence}", file=sys.stderr)
        return code
    finally:
        client.close_all()


main = Command("sim", server.parser, _body, before_another=("--",))
