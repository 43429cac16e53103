"""The commands that a digest advises: what goes wrong once more, alone, or beside a judge."""

from __future__ import annotations

import shlex
from pathlib import Path

from zinc_rt import kernels
from zinc_rt.cli.options import order_words, simulated_name
from zinc_rt.engine.devices import ORACLE
from zinc_rt.kernels.assemble import BUILT
from zinc_rt.validate.run import SECOND_OPINION
from zinc_rt.validate.runner import ValidationJob
from zinc_rt.validate.tiers import TierSpec

DEFAULT_ORDERING = "canonical-1"


def kernel_file(kernel: str, job: ValidationJob) -> str:
    """The file of a simulated device's kernel, of a set that a tier names before any other's; "" for one that is
    none of ours."""
    named = {spec.kernel_set for spec in job.tiers if spec.choice.simulated}
    found = sorted(Path(kernels.__file__).parent.glob(f"*/{BUILT}/{kernel}.zrt")) if kernel else []
    return str(min(found, key=lambda path: path.parent.parent.name not in named, default=""))


def run_again(job: ValidationJob, spec: TierSpec) -> list[str]:
    """The command in which the tier goes wrong once more, with nothing else running: to be recorded."""
    tokens = ["--tokens", ",".join(map(str, job.tokens)), "--ctx", str(job.ctx)]
    ordering = ["--ordering", spec.ordering] if spec.ordering != DEFAULT_ORDERING else []
    asked = spec.choice.options
    ordering += ["--device", simulated_name(asked), *order_words(asked)] if spec.choice.simulated else []
    if job.layers.whole:
        few = ["--max-tokens", str(job.steps + 1), "--ignore-eos"]
        return ["run", "--model", str(job.gguf.path), *tokens, *few, "--tier", spec.name, *ordering]
    layers = ["--layers", f"{job.layers.first}:{job.layers.last}", *_input(job)]
    return ["validate", "--model", str(job.gguf.path), *tokens, *layers, "--tiers", spec.name, *ordering]


def resynced(job: ValidationJob, layer: str) -> str:
    """Every layer on the reference's own input; where that was so already, all of the layer that is off."""
    return f"{job.repro} --nodes '*-{layer}'" if job.resync else f"{job.repro} --resync"


def with_oracle(job: ValidationJob) -> str:
    """The same again, the oracle beside it."""
    words = shlex.split(job.repro)
    words[words.index("--tiers") + 1] += f",{ORACLE.tier}"
    return shlex.join(words)


def stepwise(job: ValidationJob, spec: TierSpec) -> list[str]:
    """The prompt and what the golden goes on with, in one pass and token by token."""
    golden = job.golden
    more = [] if golden is None or golden.greedy_tokens is None else [int(token) for token in golden.greedy_tokens]
    tokens = ",".join(map(str, [*job.tokens, *more]))
    return ["zinc-rt", "validate", "--model", str(job.gguf.path), "--tiers", spec.text, "--tokens", tokens]


def judged(job: ValidationJob) -> list[str]:
    """The oracle against its own second opinion, which another library computes."""
    tokens = ["--tokens", ",".join(map(str, job.tokens)), "--ctx", str(job.ctx)]
    layers = [] if job.layers.whole else ["--layers", f"{job.layers.first}:{job.layers.last}", *_input(job)]
    tiers = f"{ORACLE.tier},{ORACLE.tier}:{SECOND_OPINION}"
    return ["zinc-rt", "validate", "--model", str(job.gguf.path), "--tiers", tiers, *tokens, *layers]


def _input(job: ValidationJob) -> list[str]:
    """The --input that was asked for."""
    words = shlex.split(job.repro)
    return ["--input", words[words.index("--input") + 1]] if "--input" in words else []
