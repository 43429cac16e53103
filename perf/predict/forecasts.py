"""Write the sealed forecasts: perf/predict/forecasts.json and docs/forecasts.md.

    python -m zinc_rt.perf.predict.forecasts --date 2026-11-29     compute all (minutes), write both files
    python -m zinc_rt.perf.predict.forecasts --check               compare the seal with the committed rows

The seal is the SHA-256 of the rows and the date. A measurement is compared with the forecast that was sealed
before it. Forecasts are not updated after a measurement; a new model of cost gets a new date and a new seal.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from zinc_rt.cli.command import Command
from zinc_rt.cli.progress import show_progress
from zinc_rt.cost.dispatch import compute_cost
from zinc_rt.host.arguments import Parser
from zinc_rt.host.devices import DeviceRow
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.files import write_atomically
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.predict.ceilings import dispatch_counts
from zinc_rt.perf.predict.devices import DeviceTable, load_table
from zinc_rt.perf.predict.forecasts_page import format_page
from zinc_rt.perf.predict.host_experts import place_host_experts
from zinc_rt.perf.predict.roofline import compute_parts, predict
from zinc_rt.perf.predict.sealed import FILE, MODELS, SCHEMA, Forecast, compute_seal, read_committed
from zinc_rt.perf.predict.token_work import TokenWork, compute_work
from zinc_rt.perf.synthetic import SHAPES, write_synthetic

PAGE = Path(__file__).resolve().parents[2] / "docs" / "forecasts.md"
DEVICES = ("R9700", "RX 9070 XT", "7900 XTX", "Strix Halo")
CTX, POSITION, PROMPT = 4096, 4095, 512
LOADS = {  # tokens of a prompt, sequences, position
    "decode": (1, 1, POSITION),
    "prompt of 512": (PROMPT, 1, PROMPT - 1),
    "4 slots": (1, 4, POSITION),
    "16 slots": (1, 16, POSITION),
}


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of time for a decoded token, and the speed if only this loss were removed."""

    name: str
    microseconds: float
    tokens_per_second: float


def make_forecasts(works: Mapping[tuple[str, str], TokenWork], known: DeviceTable) -> Iterator[Forecast]:
    for (model, load), work in works.items():
        for key in DEVICES:
            yield _make_forecast(model, load, work, known.device(key), known)


def _make_forecast(model: str, load: str, work: TokenWork, device: DeviceRow, known: DeviceTable) -> Forecast:
    prediction = predict(work, device, known)
    speeds: list[float | None] = [prediction.case_speed(case) for case in ("likely", "pessimistic", "optimistic")]
    note = "" if device.arch == DEFAULT_ARCH else f"instructions of {DEFAULT_ARCH}'s kernels"
    try:
        placed = place_host_experts(
            work.weights, device, "auto", read_efficiency=known.case("likely")["read_efficiency"]
        )
    except InputError:
        speeds, note = [None] * 3, "does not fit in memory"
    else:
        if placed.residency.host:
            speeds, note = [None] * 3, "experts in host memory: no forecast"
    likely, low, high = speeds
    return Forecast(
        device.key, model, load, likely, low, high, prediction.ceiling, prediction.flops_ceiling, work.dispatches,
        work.barriers, note,
    )  # fmt: skip


def compute_losses(work: TokenWork, device: DeviceRow, known: DeviceTable) -> tuple[list[Loss], float, float]:
    """Return the losses of a step compared with its bytes at the specified bandwidth, its seconds, and the seconds
    of its bytes.
    """
    assumed = known.case("likely")
    parts = compute_parts(work, device, assumed)
    costs = [compute_cost(dispatch_counts(item), device, assumed) for item in work.each]
    peak = device.memory_gbps * 1e9
    cache = sum(row.read_bytes + row.written_bytes for row in work.traffic if row.kind == "kv")
    memory = sum(cost.memory for cost in costs)
    ideal = sum(cost.ideal for cost in costs)
    result = {
        f"{work.barriers} barriers, {assumed['barrier_us']:g} µs each": parts.barrier,
        f"{work.dispatches} dispatches, {assumed['dispatch_us']:g} µs each": parts.dispatch,
        f"reads at {assumed['read_efficiency']:.0%} of the bandwidth": memory - ideal,
        "dispatches that run longer than their bytes take": sum(cost.running for cost in costs) - memory,
        "keys and values in f32 instead of f16": cache / 2 / peak / assumed["read_efficiency"],
        "submission, host and its reads": parts.submit + parts.host + parts.readback,
    }
    rows = [Loss(name, 1e6 * lost, work.tokens / (parts.seconds - lost)) for name, lost in result.items()]
    return sorted(rows, key=lambda row: -row.microseconds), parts.seconds, ideal


def compute(day: str) -> dict[str, Any]:
    """Compute every forecast."""
    known = load_table()
    works: dict[tuple[str, str], TokenWork] = {}
    with TemporaryDirectory() as folder, show_progress(len(MODELS) * len(LOADS), "forecasts", "") as advance:
        for model, shape in MODELS.items():
            path = write_synthetic(Path(folder) / f"{shape}.gguf", SHAPES[shape], header_only=True)
            for load, (tokens, sequences, position) in LOADS.items():
                works[model, load] = compute_work(
                    read_gguf(str(path)), ctx=CTX, position=position, tokens=tokens, sequences=sequences
                )
                advance(1)
    rows = [_round_row(asdict(forecast)) for forecast in make_forecasts(works, known)]
    lost, seconds, ideal = compute_losses(works["35B-A3B", "decode"], known.device("R9700"), known)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "date": day,
        "rows": rows,
        "losses": {
            "microseconds": round(1e6 * seconds, 1),
            "bytes_microseconds": round(1e6 * ideal, 1),
            "rows": [_round_row(asdict(item)) for item in lost],
        },
        "assumptions": {name: list(item.value) for name, item in known.assumptions.items()},
    }
    return document | {"seal": compute_seal(document)}


def _round_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()}


def parser() -> argparse.ArgumentParser:
    parser = Parser("python -m zinc_rt.perf.predict.forecasts", description=__doc__)
    parser.add_argument("--date", metavar="YYYY-MM-DD", help="compute every forecast and seal it with this date")
    parser.add_argument("--check", action="store_true", help="check the seal of the committed rows")
    return parser


def _main(arguments: argparse.Namespace) -> int:
    if arguments.check:
        document = read_committed()
        print(f"{document['date']}  {document['seal']}  {len(document['rows'])} forecasts")
        return 0
    try:
        day = date.fromisoformat(arguments.date or "").isoformat()
    except ValueError:
        raise UsageError(f"--date {arguments.date}: expected YYYY-MM-DD, or --check") from None
    document = compute(day)
    for path, text in ((FILE, json.dumps(document, indent=1) + "\n"), (PAGE, format_page(document))):
        write_atomically(path, partial(_write, text))
    print(f"{document['date']}  {document['seal']}  {len(document['rows'])} forecasts")
    return 0


def _write(text: str, file: BinaryIO) -> None:
    file.write(text.encode())


main = Command("forecasts", parser, _main)

if __name__ == "__main__":
    sys.exit(main())
