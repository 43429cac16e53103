"""Serve a simulated AMD GPU over a local socket, until its last client is gone."""

from __future__ import annotations

from zinc_rt import cli
from zinc_rt.sim.serve import server


def main(argv: list[str] | None = None) -> int:
    return cli.run("sim", server.parser(), server.run, argv)
