"""One model's failures: which tiers differ, where, and the words used to report it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from zinc_rt import kernels
from zinc_rt.cli.options import find_simulated_chip, order_options
from zinc_rt.engine.devices import ORACLE
from zinc_rt.kernels.assemble import BUILT
from zinc_rt.validate.check_result import CheckResult, NonfiniteMeasure, SanitizerMeasure
from zinc_rt.validate.run import SECOND_OPINION
from zinc_rt.validate.runner import ValidationJob
from zinc_rt.validate.tiers import TierSpec

DEFAULT_ORDERING = "canonical-1"


def find_kernel_file(kernel: str, job: ValidationJob) -> str:
    """Return the file of a simulated device's kernel, preferring the set that a tier names. Return "" for a kernel
    that is not part of this project.
    """
    named = {spec.kernel_set for spec in job.tiers if spec.choice.simulated}
    paths = sorted(Path(kernels.__file__).parent.glob(f"*/{BUILT}/{kernel}.zrt")) if kernel else []
    return str(min(paths, key=lambda path: path.parent.parent.name not in named, default=""))


def make_rerun_command(job: ValidationJob, spec: TierSpec) -> list[str]:
    """Return the command that reproduces the error of the tier alone, to be recorded."""
    tokens = ["--tokens", ",".join(map(str, job.tokens)), "--ctx", str(job.ctx)]
    ordering = ["--ordering", spec.ordering] if spec.ordering != DEFAULT_ORDERING else []
    options = spec.choice.options
    ordering += ["--kv-type", job.kv_type] if job.kv_type != "f32" else []
    ordering += ["--prefill-ordering", job.prefill_ordering] if job.prefill_ordering else []
    ordering += (
        ["--device", find_simulated_chip(options), *order_options(options)] if spec.choice.simulated else []
    )
    if job.layers.whole:
        few = ["--max-tokens", str(job.steps + 1), "--ignore-eos"]
        return ["run", "--model", str(job.gguf.path), *tokens, *few, "--tier", spec.name, *ordering]
    layers = ["--layers", f"{job.layers.first}:{job.layers.last}", *_input_option(job)]
    return ["validate", "--model", str(job.gguf.path), *tokens, *layers, "--tiers", spec.name, *ordering]


def make_resync_command(job: ValidationJob, layer: str) -> str:
    """Return the command that runs every layer on the reference's own input. If this run already did so, capture
    all nodes of the wrong layer.
    """
    return f"{job.repro} --nodes '*-{layer}'" if job.resync else f"{job.repro} --resync"


def make_oracle_command(job: ValidationJob) -> str:
    """Return the same command with the oracle added."""
    words = shlex.split(job.repro)
    words[words.index("--tiers") + 1] += f",{ORACLE.tier}"
    return shlex.join(words)


def make_stepwise_command(job: ValidationJob, spec: TierSpec) -> list[str]:
    """Return the command that runs the prompt and the golden's continuation in one pass and token by token."""
    golden = job.golden
    more = [] if golden is None or golden.greedy_tokens is None else [int(token) for token in golden.greedy_tokens]
    tokens = ",".join(map(str, [*job.tokens, *more]))
    return ["zinc-rt", "validate", "--model", str(job.gguf.path), "--tiers", spec.text, "--tokens", tokens]


def make_judge_command(job: ValidationJob) -> list[str]:
    """Return the command that compares the oracle with its second reference, computed by another library."""
    tokens = ["--tokens", ",".join(map(str, job.tokens)), "--ctx", str(job.ctx)]
    layers = [] if job.layers.whole else ["--layers", f"{job.layers.first}:{job.layers.last}", *_input_option(job)]
    tiers = f"{ORACLE.tier},{ORACLE.tier}:{SECOND_OPINION}"
    return ["zinc-rt", "validate", "--model", str(job.gguf.path), "--tiers", tiers, *tokens, *layers]


def _input_option(job: ValidationJob) -> list[str]:
    """Return the --input option of the run."""
    words = shlex.split(job.repro)
    return ["--input", words[words.index("--input") + 1]] if "--input" in words else []


M = TypeVar("M", NonfiniteMeasure, SanitizerMeasure)
OF_EVERY_TIER = ("greedy", "decode")  # kinds that each tier is held to the golden for, whoever shares its bits


@dataclass(frozen=True)
class ModelFailures:
    """One model's results. `same_bits` are the tiers that ran, in groups that are bit-identical."""

    job: ValidationJob
    results: Sequence[CheckResult]
    same_bits: Sequence[Sequence[str]]

    @cached_property
    def failed(self) -> list[CheckResult]:
        return [result for result in self.results if result.status == "fail"]

    def of(self, *kinds: str) -> list[CheckResult]:
        return [result for result in self.failed if result.kind in kinds]

    def measures_of_kind(self, kind: type[M]) -> list[M]:
        return [result.measure for result in self.failed if isinstance(result.measure, kind)]

    def has_only_kinds(self, *kinds: str) -> bool:
        return bool(self.failed) and all(result.kind in kinds for result in self.failed)

    # --- against the golden

    @cached_property
    def _golden(self) -> str:
        return "" if self.job.golden is None else self.job.golden.path.name + self.job.golden.variant

    def _tiers_by_golden_result(self, failed: bool) -> list[str]:
        tiers = dict.fromkeys(r.tier for r in self.results if self._golden and r.reference == self._golden)
        failed_it = [r for r in self.failed if r.reference == self._golden]
        wrong = {r.tier for r in failed_it}
        # layers and nodes alone are asked of one tier, which speaks for those with its bits
        speaks = {r.tier for r in failed_it if r.kind not in OF_EVERY_TIER}
        wrong |= {tier for group in self.same_bits if speaks & set(group) for tier in group}
        return [tier for tier in tiers if (tier in wrong) == failed]

    @cached_property
    def tiers_failing_golden(self) -> list[str]:
        return self._tiers_by_golden_result(failed=True)

    @cached_property
    def tiers_matching_golden(self) -> list[str]:
        return self._tiers_by_golden_result(failed=False)

    @property
    def golden_recovers(self) -> bool:
        """Return whether one layer differs from the golden, but the values computed from it do not. No computation
        behaves so.
        """
        mine = [r for r in self.results if r.reference == self._golden and r.kind in ("layer", "logits")]
        states = [r.status for r in mine if r.tier == mine[0].tier]
        return "fail" in states[:-1] and states[-1] == "pass" and states.index("fail") < len(states) - 1

    # --- between tiers

    @property
    def reference(self) -> str:
        return self.job.reference.text if self.job.reference is not None else ""

    @cached_property
    def differing_tiers(self) -> list[str]:
        """Return the tiers that differ from the reference tier."""
        return list(dict.fromkeys(r.tier for r in self.failed if r.reference == self.reference != r.tier))

    @cached_property
    def agreeing_tiers(self) -> list[str]:
        others = dict.fromkeys(r.tier for r in self.results if r.reference == self.reference != r.tier)
        return [tier for tier in others if tier not in self.differing_tiers]

    @property
    def agree(self) -> bool:
        """Return whether all tiers are bit-identical. A single tier agrees with itself."""
        return len(self.same_bits) == 1

    @property
    def only_later(self) -> bool:
        """Return whether the prompt was computed correctly and a later step was not."""
        compared = [r for r in self.failed if r.kind in ("layer", "node", "experts", "logits", "greedy", "decode")]
        prompt = len(self.job.tokens)
        return bool(compared) and all(
            r.kind in ("greedy", "decode")
            or (r.kind == "logits" and r.first_bad.get("token", 0) >= prompt)
            or r.first_bad.get("stage") == "decode"
            for r in compared
        )

    # --- in words

    @cached_property
    def suspect(self) -> TierSpec:
        """Return the tier to examine: the first wrong tier, or the oracle if no other tier is wrong."""
        wrong = [r.tier for r in self.failed]
        named = [spec for spec in self.job.tiers if spec.text in wrong]
        return next((spec for spec in named if spec.text != ORACLE.tier), (named or list(self.job.tiers))[0])

    @cached_property
    def nodes(self) -> list[CheckResult]:
        """Return the results in which values inside the layers differ from the golden, except those with input
        from a torn golden.
        """
        failed_nodes = [result for result in self.failed if result.id.endswith("/nodes")]
        return [] if failed_nodes and self.agree and self.golden_recovers else failed_nodes

    @cached_property
    def place(self) -> CheckResult:
        """Return the failure with the most specific place: the first node that diverges, else the first value that
        does.
        """
        order = ("node", "finite", "layer", "experts", "logits", "decode", "greedy", "tap", "prefill")
        mine = [r for r in self.failed if r.tier == self.suspect.text] or self.failed
        mine = [r for r in mine if r in self.nodes or not r.id.endswith("/nodes")] or mine
        node = [r for r in mine if r.id.endswith("/first-divergent")]
        if not node and (self.agree or self.suspect.text == ORACLE.tier):  # one is asked for all who agree
            node = self.nodes
        return (node or sorted(mine, key=lambda r: order.index(r.kind) if r.kind in order else len(order)))[0]

    @cached_property
    def words(self) -> dict[str, str]:
        """Return the words that the sentences and commands of PATTERNS may use."""
        finding = next((r.first_bad for r in self.of("sanitizer")), {})
        golden = self.job.golden
        return {
            "apart": join_names(self.differing_tiers),
            "apart_differ": f"{join_names(self.differing_tiers)} differ{'s' * (len(self.differing_tiers) == 1)}",
            "together": join_names(self.agreeing_tiers),
            "reference": self.reference,
            "off_golden": join_names(self.tiers_failing_golden),
            "on_golden": join_names(self.tiers_matching_golden),
            "tiers": join_names([spec.text for spec in self.job.tiers]),
            "tier": self.suspect.text,
            "golden": golden.path.name if golden is not None else "",
            "golden_path": shlex.quote(str(golden.path)) if golden is not None else "",
            "model": shlex.quote(str(self.job.gguf.path)),
            "layer": find_layer(self.place),
            "at_node": f" at {self.nodes[0].first_bad['node']}" if self.nodes else "",
            "cause": self.place.cause,
            "advice": self.place.advice,
            "kernel": finding.get("kernel", ""),
            "kernel_at": ", ".join(filter(None, (finding.get("kernel"), finding.get("source")))),
            "finding": finding.get("finding", ""),
            "rule": str(finding.get("finding", "")).partition(":")[0],
            "kernel_file": shlex.quote(find_kernel_file(finding.get("kernel", ""), self.job)),
            "fed": join_names(list(dict.fromkeys(r.tier for r in self.of("step")))),
            "wrong_step": next((r.cause for r in self.of("step")), ""),
            "weight": next(
                (text for measure in self.measures_of_kind(NonfiniteMeasure) for text in measure.weights), ""
            ),
            "with_oracle": make_oracle_command(self.job),
            "resync": make_resync_command(self.job, find_layer(self.place)),
            "run": shlex.join(make_rerun_command(self.job, self.suspect)),
            "stepwise": shlex.join(make_stepwise_command(self.job, self.suspect)),
            "judge": shlex.join(make_judge_command(self.job)),
            "replay_tier": self.suspect.name,
        }


def find_layer(result: CheckResult) -> str:
    """Return the layer's number from the node's name, else from the value's."""
    name = str(result.first_bad.get("node", result.name))
    match = re.search(r"[-\[](\d+)\]?$", name)
    return match[1] if match else ""


def join_names(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
