"""Another program's speed: a peer that is none, or that did not print what is put down, is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_evidence import (
    add_peer,
    bench_report,
    decide_criterion,
    llama_bench_output,
    record_report,
    result_names,
    validation_report,
)

from zinc_rt.host.errors import InputError
from zinc_rt.perf.bench.peers import parse_llama_bench


def forge_peer_field(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda measure: measure["peer"].update({name: value})


def forge_outputs(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """llama-bench's own words with some of them changed."""

    def forge_peer(measure: dict[str, Any]) -> None:
        result = []
        for text in measure["peer"]["outputs"]:
            (row,) = json.loads(text)
            result.append(json.dumps([{**row, **changes}]))
        measure["peer"]["outputs"] = result

    return forge_peer


PEERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing of it kept": lambda measure: measure.pop("peer"),
    "a script": forge_peer_field("kind", "script"),
    "a program nobody knows": forge_peer_field("program", "slow-bench"),
    "no digest of the program": forge_peer_field("sha256", ""),
    "a program that was gone": forge_peer_field("kind", "missing"),
    "no output": forge_peer_field("outputs", []),
    "fewer outputs than runs": lambda measure: measure["peer"]["outputs"].pop(),
    "one output for all": forge_peer_field("outputs", [llama_bench_output(160.0)] * 5),
    "a table that looks like it": forge_peer_field("outputs", [f"| tg128 | {n} ± 0 |" for n in range(5)]),
    "no build": forge_outputs(build_commit=""),
    "another model": forge_outputs(model_n_params=8_000_000_000),
    "another quantisation": forge_outputs(model_size=60_000_000_000),
    "on the processor": forge_outputs(gpu_info="", backends="CPU"),
    "half of the layers on the card": forge_outputs(n_gpu_layers=20),
    "eight tokens": forge_outputs(n_gen=8),
    "behind a long prompt": forge_outputs(n_prompt=4000),
    "a slower run put down": lambda measure: measure.update(
        pairs=[[ours, 0.75 * theirs] for ours, theirs in measure["pairs"]], ratio=1.25, ratio_low=1.25
    ),
    "an average its samples deny": forge_outputs(avg_ts=100.0),
    "no speed": forge_outputs(avg_ts=0.0, samples_ts=[0.0]),
    "a ratio its pairs deny": lambda measure: measure.update(ratio=2.0),
    "a ratio that is no number": lambda measure: measure.update(ratio=math.nan),
}


@pytest.mark.rest(keep=10)
@pytest.mark.parametrize("forgery", PEERS)
def test_forged_peer_is_rejected(forgery: str, tmp_path: Path) -> None:
    bench = add_peer(bench_report())
    PEERS[forgery](bench["results"][1]["measure"])
    result = decide_criterion(record_report(tmp_path, bench, validation_report()), "against-peer")
    assert result.status == "blocked"
    assert result_names(result) & {"peer", "numbers"}, result.reason


def test_llama_bench_output_is_parsed() -> None:
    output = parse_llama_bench(llama_bench_output(160.0))
    assert (output.tokens_per_second, output.version, output.generated) == (160.0, "0c1e57098 (6900)", 128)
    with pytest.raises(InputError, match="one text generation test"):
        parse_llama_bench("[]")
