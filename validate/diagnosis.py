"""What a model's failures say together: where, who agrees with whom, what to suspect and what to run next.

What is suspected is decided by PATTERNS alone, the first that fits.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from zinc_rt import kernels
from zinc_rt.devices import ORACLE
from zinc_rt.validate.check_result import CheckResult, NonfiniteMeasure, SanitizerMeasure
from zinc_rt.validate.run import SECOND_OPINION
from zinc_rt.validate.runner import ValidationJob
from zinc_rt.validate.tiers import TierSpec

M = TypeVar("M", NonfiniteMeasure, SanitizerMeasure)
PLACES = 4  # tiers whose first difference is told
TOLD_APART = ("golden", "finite", "sanitizer", "step")  # on lines of their own
OF_EVERY_TIER = ("greedy", "decode")  # kinds that each tier is held to the golden for, whoever shares its bits
DEFAULT_ORDERING = "canonical-1"
# rules that a kernel breaks by itself; memory that nobody wrote may be another's fault
OF_ITS_OWN = ("out-of-bounds", "lds-out-of-bounds", "misaligned", "race", "lds-race", "uninitialised-lds", "wait")
MEANS = {  # what a finding of the simulated device comes from, by its rule
    "uninitialised-lds": "no wave has stored there yet: a barrier is missing before it, or the address is wrong",
    "lds-out-of-bounds": "beyond what was allocated: the container declares too little, or the address is wrong",
    "uninitialised-memory": "nothing has stored there yet: a store before it is missing or lies elsewhere",
}


@dataclass(frozen=True)
class ModelFailures:
    """One model's results. `same_bits`: the tiers that ran, in groups that agree to the bit."""

    job: ValidationJob
    results: Sequence[CheckResult]
    same_bits: Sequence[Sequence[str]]

    @cached_property
    def failed(self) -> list[CheckResult]:
        return [result for result in self.results if result.status == "fail"]

    def of(self, *kinds: str) -> list[CheckResult]:
        return [result for result in self.failed if result.kind in kinds]

    def measures(self, kind: type[M]) -> list[M]:
        return [result.measure for result in self.failed if isinstance(result.measure, kind)]

    def only(self, *kinds: str) -> bool:
        return bool(self.failed) and all(result.kind in kinds for result in self.failed)

    # --- against the golden

    @cached_property
    def _golden(self) -> str:
        return "" if self.job.golden is None else self.job.golden.path.name + self.job.golden.variant

    def _held_to_golden(self, failed: bool) -> list[str]:
        tiers = dict.fromkeys(r.tier for r in self.results if self._golden and r.reference == self._golden)
        failed_it = [r for r in self.failed if r.reference == self._golden]
        wrong = {r.tier for r in failed_it}
        # layers and nodes alone are asked of one tier, which speaks for those with its bits
        speaks = {r.tier for r in failed_it if r.kind not in OF_EVERY_TIER}
        wrong |= {tier for group in self.same_bits if speaks & set(group) for tier in group}
        return [tier for tier in tiers if (tier in wrong) == failed]

    @cached_property
    def off_golden(self) -> list[str]:
        return self._held_to_golden(failed=True)

    @cached_property
    def on_golden(self) -> list[str]:
        return self._held_to_golden(failed=False)

    @property
    def golden_recovers(self) -> bool:
        """One layer of the golden is off and what is computed from it is not: nothing computes so."""
        mine = [r for r in self.results if r.reference == self._golden and r.kind in ("layer", "logits")]
        states = [r.status for r in mine if r.tier == mine[0].tier]
        return "fail" in states[:-1] and states[-1] == "pass" and states.index("fail") < len(states) - 1

    # --- between tiers

    @property
    def reference(self) -> str:
        return self.job.reference.text if self.job.reference is not None else ""

    @cached_property
    def apart(self) -> list[str]:
        """Tiers that differ from the reference tier."""
        return list(dict.fromkeys(r.tier for r in self.failed if r.reference == self.reference != r.tier))

    @cached_property
    def together(self) -> list[str]:
        others = dict.fromkeys(r.tier for r in self.results if r.reference == self.reference != r.tier)
        return [tier for tier in others if tier not in self.apart]

    @property
    def agree(self) -> bool:
        """Whether all tiers agree to the bit, one alone with itself."""
        return len(self.same_bits) == 1

    @property
    def only_later(self) -> bool:
        """Whether the prompt's own pass is right, and what follows it is not."""
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
        """The tier to look at: the first that is wrong, not the oracle where another is too."""
        wrong = [r.tier for r in self.failed]
        named = [spec for spec in self.job.tiers if spec.text in wrong]
        return next((spec for spec in named if spec.text != ORACLE.tier), (named or list(self.job.tiers))[0])

    @cached_property
    def nodes(self) -> list[CheckResult]:
        """Where values inside the layers are off the golden's: not those that a torn golden fed."""
        found = [result for result in self.failed if result.id.endswith("/nodes")]
        return [] if found and self.agree and self.golden_recovers else found

    @cached_property
    def place(self) -> CheckResult:
        """The failure that says best where: the first node that diverges, else the first value that does."""
        order = ("node", "finite", "layer", "experts", "logits", "decode", "greedy", "tap", "prefill")
        mine = [r for r in self.failed if r.tier == self.suspect.text] or self.failed
        mine = [r for r in mine if r in self.nodes or not r.id.endswith("/nodes")] or mine
        node = [r for r in mine if r.id.endswith("/first-divergent")]
        if not node and (self.agree or self.suspect.text == ORACLE.tier):  # one is asked for all who agree
            node = self.nodes
        return (node or sorted(mine, key=lambda r: order.index(r.kind) if r.kind in order else len(order)))[0]

    @cached_property
    def words(self) -> dict[str, str]:
        """What the sentences and commands of PATTERNS may name."""
        finding = next((r.first_bad for r in self.of("sanitizer")), {})
        golden = self.job.golden
        return {
            "apart": _list(self.apart),
            "apart_differ": f"{_list(self.apart)} differ{'s' * (len(self.apart) == 1)}",
            "together": _list(self.together),
            "reference": self.reference,
            "off_golden": _list(self.off_golden),
            "on_golden": _list(self.on_golden),
            "tiers": _list([spec.text for spec in self.job.tiers]),
            "tier": self.suspect.text,
            "golden": golden.path.name if golden is not None else "",
            "golden_path": shlex.quote(str(golden.path)) if golden is not None else "",
            "model": shlex.quote(str(self.job.gguf.path)),
            "layer": layer_of(self.place),
            "at_node": f" at {self.nodes[0].first_bad['node']}" if self.nodes else "",
            "cause": self.place.cause,
            "advice": self.place.advice,
            "kernel": finding.get("kernel", ""),
            "source": finding.get("source", ""),
            "finding": finding.get("finding", ""),
            "rule": str(finding.get("finding", "")).partition(":")[0],
            "kernel_file": shlex.quote(_kernel_file(finding.get("kernel", ""))),
            "fed": _list(list(dict.fromkeys(r.tier for r in self.of("step")))),
            "wrong_step": next((r.cause for r in self.of("step")), ""),
            "weight": next((text for each in self.measures(NonfiniteMeasure) for text in each.weights), ""),
            "with_oracle": _with_oracle(self.job),
            "resync": _resync(self.job, layer_of(self.place)),
            "run": shlex.join(_run(self.job, self.suspect)),
            "stepwise": shlex.join(_stepwise(self.job, self.suspect)),
            "judge": shlex.join(_judge(self.job)),
            "replay_tier": self.suspect.name,
        }


Predicate = Callable[[ModelFailures], bool]


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """`sentence` and `command` name the words of ModelFailures."""

    fits: Predicate
    sentence: str
    command: str


BISECT = "zinc-rt trace -o run.zlog -- {run} ; zinc-rt replay run.zlog --tiers {replay_tier} --bisect"
RESYNC = "{resync}"
JUDGE = "{judge} --resync"  # the oracle against its second opinion, and the first node that diverges

PATTERNS = (
    FailurePattern(
        lambda e: bool(e.of("step")),
        "{fed} was not fed what was asked for: suspect the runtime that builds steps: {wrong_step}",
        "zinc-rt trace -o run.zlog -- {run} ; zinc-rt replay --info run.zlog",
    ),
    FailurePattern(
        lambda e: bool(e.words["weight"]),
        "the model file holds numbers that are none: {weight}",
        "zinc-rt inspect --model {model} --check",
    ),
    FailurePattern(
        lambda e: bool(e.of("golden")),
        "suspect the golden: it holds NaN or infinity itself, so nothing agrees with it",
        "zinc-rt golden check {golden_path} --model {model}",
    ),
    FailurePattern(
        lambda e: e.only("tokenizer"),
        "every number is right and a text becomes other tokens: suspect the tokenizer: {cause}",
        "{advice}",
    ),
    FailurePattern(
        lambda e: e.only("draws"),
        "every logit agrees and a draw from them does not: suspect the sampler: {cause}",
        "{advice}",
    ),
    FailurePattern(
        lambda e: e.only("sanitizer") and bool(e.words["kernel_file"].strip("'")),
        "every value is right and the simulated device objects: suspect kernel {kernel}, {source}",
        "zinc-rt isa lint {kernel_file}",
    ),
    FailurePattern(
        lambda e: e.only("sanitizer"),
        "every value is right and the simulated device objects to how it was asked: suspect the packets",
        "zinc-rt pm4-test --device sim",
    ),
    FailurePattern(
        lambda e: e.words["rule"] in OF_ITS_OWN and bool(e.words["kernel_file"].strip("'")),
        "the simulated device objects, and what differs may come of that: suspect kernel {kernel}, {source}",
        BISECT,
    ),
    FailurePattern(
        lambda e: bool(e.of("tap")) and (e.only("tap", "sanitizer") or e.only_later),  # a step is never tapped
        "only the untapped run differs, and only it reuses memory: suspect aliasing, or a missing barrier",
        BISECT,
    ),
    FailurePattern(
        lambda e: e.only("prefill", "sanitizer"),
        "one pass over the prompt and token by token differ: suspect positions, or keys and values, of {tier}",
        BISECT,
    ),
    FailurePattern(
        lambda e: e.agree and {r.tier for r in e.of("finite")} == {spec.text for spec in e.job.tiers},
        "{tiers}: not finite, and the file is: suspect the model code, or weights too large for float32",
        JUDGE,
    ),
    FailurePattern(
        lambda e: e.agree and bool(e.off_golden) and not e.on_golden and e.golden_recovers,
        "the golden's layer {layer} is off and what follows from it is not: suspect the golden, edited or torn",
        "zinc-rt golden check {golden_path} --model {model}",
    ),
    FailurePattern(
        lambda e: e.agree and e.only("greedy") and bool(e.off_golden),
        "every logit agrees with the golden and a greedy token does not: suspect a near tie, or the golden",
        "zinc-rt golden check {golden_path} --model {model}",
    ),
    FailurePattern(
        lambda e: e.agree and e.only_later and bool(e.off_golden) and not e.on_golden,
        "the prompt agrees with the golden, later steps do not, on {tiers}: suspect the model "
        "code's decode{at_node}, or its state",
        "{stepwise}",
    ),
    FailurePattern(
        lambda e: e.only_later,
        "the prompt's pass is right and only later steps differ: suspect state or the KV cache of {tier}",
        BISECT,
    ),
    FailurePattern(
        lambda e: e.off_golden == [ORACLE.tier] and bool(e.on_golden),
        "only t_cpu differs from the golden, {on_golden} does not: suspect the oracle",
        JUDGE,
    ),
    FailurePattern(
        lambda e: e.reference in e.on_golden and bool(e.apart) and set(e.apart) <= set(e.off_golden),
        "{apart_differ} from {reference} and from the golden, which {on_golden} agrees with: suspect {apart}",
        BISECT,
    ),
    FailurePattern(
        lambda e: e.reference == ORACLE.tier and len(e.apart) > 1 and not e.together and len(e.same_bits) == 2,
        "{apart} agree to the bit and t_cpu differs from them: suspect the oracle, or what they share",
        JUDGE,
    ),
    FailurePattern(
        lambda e: e.agree and len(e.job.tiers) > 1 and bool(e.off_golden) and not e.on_golden,
        "{tiers} agree to the bit and differ from the golden: suspect the model code{at_node}, or the golden",
        RESYNC,
    ),
    FailurePattern(
        lambda e: len(e.job.tiers) == 1 and bool(e.off_golden) and e.suspect.tier != ORACLE.tier,
        "{tier} differs from the golden, and no other tier ran: suspect it, the model code or the golden",
        "{with_oracle}",
    ),
    FailurePattern(
        lambda e: len(e.job.tiers) == 1 and bool(e.off_golden),
        "{tier} differs from the golden, and no other tier ran: suspect the oracle, the model code or the golden",
        JUDGE,
    ),
    FailurePattern(
        lambda e: bool(e.apart) and bool(e.together),
        "{apart_differ} from {reference}, {together} does not: suspect {tier}",
        BISECT,
    ),
    FailurePattern(
        lambda e: bool(e.apart) and e.suspect.tier == ORACLE.tier,
        "{apart_differ} from {reference}, two ways to compute one model: suspect the kernels of {tier}",
        RESYNC,
    ),
    FailurePattern(
        lambda e: bool(e.apart),
        "{apart_differ} from {reference}, and no other tier says which is right: suspect {tier}",
        BISECT,
    ),
    FailurePattern(lambda e: True, "several things are wrong with {tier}", BISECT),
)


def diagnosis(evidence: ModelFailures) -> Iterator[str]:
    """The digest of a model's failures, line by line; nothing where nothing failed."""
    if not evidence.failed:
        return
    places = list(dict.fromkeys(_place(result) for result in _places(evidence)))
    for place in places[:PLACES]:
        yield f"first bad  {evidence.job.name}, {place}"
    yield f"agree      {agreement(evidence.same_bits)}"
    for text in dict.fromkeys(result.cause for result in evidence.nodes):
        yield f"node       {text}"
    for text in dict.fromkeys(result.cause for result in evidence.of("finite", "golden")):
        yield f"not finite {text}"
    for text in dict.fromkeys(result.cause for result in evidence.of("step")):
        yield f"step       {text}"
    if findings := sum(each.findings for each in evidence.measures(SanitizerMeasure)):
        yield f"sanitizer  {findings} finding{'s' * (findings > 1)}, first {evidence.words['finding']}"
        if means := MEANS.get(evidence.words["rule"]):
            yield f"means      {means}"
    pattern = next(pattern for pattern in PATTERNS if pattern.fits(evidence))
    yield f"suspect    {pattern.sentence.format(**evidence.words)}"
    yield f"next       {pattern.command.format(**evidence.words)}"


def vocabulary_diagnosis(result: CheckResult) -> Iterator[str]:
    """The digest of a vocabulary without a model; nothing where it passed."""
    if result.status == "fail":
        yield f"first bad  {result.model}, {_place(result)}"
        yield f"suspect    a text becomes other tokens: suspect the tokenizer: {result.cause}"
        yield f"next       {result.advice}"


def agreement(groups: Sequence[Sequence[str]]) -> str:
    """Which tiers agree with which."""
    if not groups:
        return "nothing ran"
    if len(groups) == 1:
        alike = f"{_list(groups[0])} to the bit, in the prompt's tapped pass"
        return alike if len(groups[0]) > 1 else f"only {groups[0][0]} ran"
    together = [f"{_list(group)} to the bit" for group in groups if len(group) > 1]
    alone = [group[0] for group in groups if len(group) == 1]
    if not together:
        return f"none of {_list(alone)} to the bit"
    return "; ".join([*together, *([f"{_list(alone)} with no other"] if alone else [])])


def layer_of(result: CheckResult) -> str:
    """From the node's name, else the value's."""
    name = str(result.first_bad.get("node", result.name))
    found = re.search(r"[-\[](\d+)\]?$", name)
    return found[1] if found else ""


def _places(evidence: ModelFailures) -> Iterator[CheckResult]:
    """For each pair of a tier and what it was held against, the failure that says best where."""
    yield evidence.place
    for pair in dict.fromkeys((r.tier, r.reference) for r in evidence.failed):
        mine = [r for r in evidence.failed if (r.tier, r.reference) == pair]
        if pair != (evidence.place.tier, evidence.place.reference) and mine[0].kind not in TOLD_APART:
            yield next((r for r in mine if r.id.endswith(("/first-divergent", "/nodes"))), mine[0])


def _place(result: CheckResult) -> str:
    bad, layer = result.first_bad, layer_of(result)
    node = bad.get("node", result.name)
    parts = [f"layer {layer}"] if layer else []
    parts.append(f"node {node}" if node not in ("logits", "decode", "greedy") else str(node))
    if kernels := bad.get("kernels"):
        parts.append(f"kernel{'s' * (len(kernels) > 1)} {_list(kernels)}")
    parts += [
        f"{word} {bad[name]}"
        for name, word in (("token", "token"), ("head", "head"), ("dim", "element"))
        if name in bad
    ]
    return f"{result.tier} against {result.against}: {', '.join(parts)}{_values(bad)}"


def _values(bad: dict[str, Any]) -> str:
    if not {"got", "want"} <= bad.keys():
        return ""
    return f": {bad['got']:.9g}, not {bad['want']:.9g}"


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _kernel_file(kernel: str) -> str:
    """Where the kernel's code lies; "" for one that is none of ours."""
    found = sorted(Path(kernels.__file__).parent.glob(f"*/{kernel}.zrt")) if kernel else []
    return str(found[0]) if found else ""


def _run(job: ValidationJob, spec: TierSpec) -> list[str]:
    """The command in which the tier goes wrong once more, with nothing else running: to be recorded."""
    tokens = ["--tokens", ",".join(map(str, job.tokens)), "--ctx", str(job.ctx)]
    ordering = ["--ordering", spec.ordering] if spec.ordering != DEFAULT_ORDERING else []
    ordering += ["--device", "sim"] if spec.choice.simulated else []
    if job.layers.whole:
        few = ["--max-tokens", str(job.steps + 1), "--ignore-eos"]
        return ["run", "--model", str(job.gguf.path), *tokens, *few, "--tier", spec.name, *ordering]
    layers = ["--layers", f"{job.layers.first}:{job.layers.last}", *_input(job)]
    return ["validate", "--model", str(job.gguf.path), *tokens, *layers, "--tiers", spec.name, *ordering]


def _resync(job: ValidationJob, layer: str) -> str:
    """Every layer on the reference's own input; where that was so already, all of the layer that is off."""
    return f"{job.repro} --nodes '*-{layer}'" if job.resync else f"{job.repro} --resync"


def _with_oracle(job: ValidationJob) -> str:
    """The same again, the oracle beside it."""
    words = shlex.split(job.repro)
    words[words.index("--tiers") + 1] += f",{ORACLE.tier}"
    return shlex.join(words)


def _stepwise(job: ValidationJob, spec: TierSpec) -> list[str]:
    """The prompt and what the golden goes on with, in one pass and token by token."""
    golden = job.golden
    more = [] if golden is None or golden.greedy_tokens is None else [int(token) for token in golden.greedy_tokens]
    tokens = ",".join(map(str, [*job.tokens, *more]))
    return ["zinc-rt", "validate", "--model", str(job.gguf.path), "--tiers", spec.text, "--tokens", tokens]


def _judge(job: ValidationJob) -> list[str]:
    """The oracle against its own second opinion, which another library computes."""
    tokens = ["--tokens", ",".join(map(str, job.tokens)), "--ctx", str(job.ctx)]
    layers = [] if job.layers.whole else ["--layers", f"{job.layers.first}:{job.layers.last}", *_input(job)]
    tiers = f"{ORACLE.tier},{ORACLE.tier}:{SECOND_OPINION}"
    return ["zinc-rt", "validate", "--model", str(job.gguf.path), "--tiers", tiers, *tokens, *layers]


def _input(job: ValidationJob) -> list[str]:
    """As it was asked for."""
    words = shlex.split(job.repro)
    return ["--input", words[words.index("--input") + 1]] if "--input" in words else []
