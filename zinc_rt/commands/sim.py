"""Serve a simulated AMD GPU over a local socket, until its last client is gone."""

from __future__ import annotations

from zinc_rt.cli import Command
from zinc_rt.sim.serve import server

main = Command("sim", server.parser, server.run)
