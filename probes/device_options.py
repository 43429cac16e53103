"""The options --device and --inject, which several commands have."""

from __future__ import annotations

import argparse


def add_device_options(
    parser: argparse.ArgumentParser, *, inject: str = "inject a fault into the simulated device"
) -> None:
    """Add --device and --inject. `inject`: the help of --inject."""
    parser.add_argument(
        "--device",
        default="auto",
        metavar="WHICH",
        help="auto or hw (never simulated), /dev/dri/renderDN, sim or sim:CHIP[@LINUX] (default auto)",
    )
    parser.add_argument("--inject", action="append", default=[], metavar="NAME", help=inject)
