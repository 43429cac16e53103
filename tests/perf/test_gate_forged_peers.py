"""Another program's speed: a peer that is none, or that did not print what is put down, is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_evidence import (
    bench_report,
    decided,
    llama_bench_output,
    names_of,
    put_forward,
    validation,
    with_peer,
)

from zinc_rt.host.errors import InputError
from zinc_rt.perf.bench.peers import llama_bench


def peer_field(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda measure: measure["peer"].update({name: value})


def outputs(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """llama-bench's own words with some of them changed."""

    def change(measure: dict[str, Any]) -> None:
        result = []
        for text in measure["peer"]["outputs"]:
            (row,) = json.loads(text)
            result.append(json.dumps([{**row, **changes}]))
        measure["peer"]["outputs"] = result

    return change


PEERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing of it kept": lambda measure: measure.pop("peer"),
    "a script": peer_field("kind", "script"),
    "a program nobody knows": peer_field("program", "slow-bench"),
    "no digest of the program": peer_field("sha256", ""),
    "a program that was gone": peer_field("kind", "missing"),
    "no output": peer_field("outputs", []),
    "fewer outputs than runs": lambda measure: measure["peer"]["outputs"].pop(),
    "one output for all": peer_field("outputs", [llama_bench_output(160.0)] * 5),
    "a table that looks like it": peer_field("outputs", [f"| tg128 | {n} ± 0 |" for n in range(5)]),
    "no build": outputs(build_commit=""),
    "another model": outputs(model_n_params=8_000_000_000),
    "another quantisation": outputs(model_size=60_000_000_000),
    "on the processor": outputs(gpu_info="", backends="CPU"),
    "half of the layers on the card": outputs(n_gpu_layers=20),
    "eight tokens": outputs(n_gen=8),
    "behind a long prompt": outputs(n_prompt=4000),
    "a slower run put down": lambda measure: measure.update(
        pairs=[[ours, 0.75 * theirs] for ours, theirs in measure["pairs"]], ratio=1.25, ratio_low=1.25
    ),
    "an average its samples deny": outputs(avg_ts=100.0),
    "no speed": outputs(avg_ts=0.0, samples_ts=[0.0]),
    "a ratio its pairs deny": lambda measure: measure.update(ratio=2.0),
    "a ratio that is no number": lambda measure: measure.update(ratio=math.nan),
}


@pytest.mark.rest(keep=10)
@pytest.mark.parametrize("forgery", PEERS)
def test_forged_peer_is_rejected(forgery: str, tmp_path: Path) -> None:
    bench = with_peer(bench_report())
    PEERS[forgery](bench["results"][1]["measure"])
    result = decided(put_forward(tmp_path, bench, validation()), "against-peer")
    assert result.status == "blocked"
    assert names_of(result) & {"peer", "numbers"}, result.reason


def test_llama_bench_output_is_parsed() -> None:
    output = llama_bench(llama_bench_output(160.0))
    assert (output.tokens_per_second, output.version, output.generated) == (160.0, "0c1e57098 (6900)", 128)
    with pytest.raises(InputError, match="one text generation test"):
        llama_bench("[]")
