"""Patterns of a model's failures. The first matching row names the suspect and the next command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.engine.devices import ORACLE
from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.validate.diagnosis.failures import ModelFailures

KERNEL_AT_FAULT = frozenset(rule.id for rule in RULES.values() if rule.kernel_at_fault)

Predicate = Callable[[ModelFailures], bool]


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """One row of the table. `sentence` and `command` use the words of ModelFailures."""

    fits: Predicate
    sentence: str
    command: str


BISECT = "zinc-rt trace -o run.zlog -- {run} ; zinc-rt replay run.zlog --tiers {replay_tier} --bisect"
RESYNC = "{resync}"
JUDGE = "{judge} --resync"  # the oracle against its second opinion, and the first node that diverges

PATTERNS = (
    FailurePattern(
        lambda e: bool(e.of("step")),
        "{fed} got other steps than requested: suspect the runtime that builds steps: {wrong_step}",
        "zinc-rt trace -o run.zlog -- {run} ; zinc-rt replay --info run.zlog",
    ),
    FailurePattern(
        lambda e: bool(e.words["weight"]),
        "the model file contains non-finite values: {weight}",
        "zinc-rt inspect --model {model} --check",
    ),
    FailurePattern(
        lambda e: bool(e.of("golden")),
        "suspect the golden: it contains NaN or infinity",
        "zinc-rt golden check {golden_path} --model {model}",
    ),
    FailurePattern(
        lambda e: e.has_only_kinds("tokenizer"),
        "every value is right, but a text gives other tokens: suspect the tokenizer: {cause}",
        "{advice}",
    ),
    FailurePattern(
        lambda e: e.has_only_kinds("draws"),
        "every logit agrees, but a draw from them does not: suspect the sampler: {cause}",
        "{advice}",
    ),
    FailurePattern(
        lambda e: e.has_only_kinds("stored", "sanitizer") and bool(e.of("stored")),
        "only graphs read from the cache differ: suspect the graph store of {tier}, or its files",
        "{advice}",
    ),
    FailurePattern(
        lambda e: e.has_only_kinds("forms", "stored", "sanitizer") and bool(e.of("forms")),
        "every value is right, but steps that sample or deliver tokens are not: suspect the sampling kernels of "
        "{tier}, or their fusion: {cause}",
        BISECT,
    ),
    FailurePattern(
        lambda e: e.has_only_kinds("sanitizer") and bool(e.words["kernel_file"].strip("'")),
        "every value is right, but the simulated device reports findings: suspect kernel {kernel_at}",
        "zinc-rt isa lint {kernel_file}",
    ),
    FailurePattern(
        lambda e: e.has_only_kinds("sanitizer"),
        "every value is right, but the simulated device reports packets: suspect the packets",
        "zinc-rt pm4-test --device sim",
    ),
    FailurePattern(
        lambda e: e.words["rule"] in KERNEL_AT_FAULT and bool(e.words["kernel_file"].strip("'")),
        "the simulated device reports findings that may cause the difference: suspect kernel {kernel_at}",
        BISECT,
    ),
    FailurePattern(
        lambda e: (
            bool(e.of("tap")) and (e.has_only_kinds("tap", "sanitizer") or e.only_later)
        ),  # a step is never tapped
        "only the untapped run differs, and only it reuses memory: suspect aliasing, or a missing barrier",
        BISECT,
    ),
    FailurePattern(
        lambda e: (
            e.has_only_kinds("prefill", "sanitizer")
            and bool(e.job.prefill_ordering)
            and {r.tier for r in e.of("prefill")} == {spec.text for spec in e.job.tiers}
        ),
        "on every tier, prompt tokens differ together and one by one: suspect the runtime, which must choose "
        "an ordering by the role of a token, never by the number of tokens",
        BISECT,
    ),
    FailurePattern(
        lambda e: e.has_only_kinds("prefill", "sanitizer"),
        "one pass over the prompt and token by token differ: suspect positions, or keys and values, of {tier}",
        BISECT,
    ),
    FailurePattern(
        lambda e: e.agree and {r.tier for r in e.of("finite")} == {spec.text for spec in e.job.tiers},
        "{tiers}: not finite, and the file is: suspect the model code, or weights too large for float32",
        JUDGE,
    ),
    FailurePattern(
        lambda e: e.agree and bool(e.tiers_failing_golden) and not e.tiers_matching_golden and e.golden_recovers,
        "the golden's layer {layer} is off, but later values are not: suspect the golden, edited or torn",
        "zinc-rt golden check {golden_path} --model {model}",
    ),
    FailurePattern(
        lambda e: e.agree and e.has_only_kinds("greedy") and bool(e.tiers_failing_golden),
        "every logit agrees with the golden, but a greedy token does not: suspect a near tie, or the golden",
        "zinc-rt golden check {golden_path} --model {model}",
    ),
    FailurePattern(
        lambda e: e.agree and e.only_later and bool(e.tiers_failing_golden) and not e.tiers_matching_golden,
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
        lambda e: e.tiers_failing_golden == [ORACLE.tier] and bool(e.tiers_matching_golden),
        "only t_cpu differs from the golden, {on_golden} does not: suspect the oracle",
        JUDGE,
    ),
    FailurePattern(
        lambda e: (
            e.reference in e.tiers_matching_golden
            and bool(e.differing_tiers)
            and set(e.differing_tiers) <= set(e.tiers_failing_golden)
        ),
        "{apart_differ} from {reference} and from the golden, which {on_golden} agrees with: suspect {apart}",
        BISECT,
    ),
    FailurePattern(
        lambda e: (
            e.reference == ORACLE.tier
            and len(e.differing_tiers) > 1
            and not e.agreeing_tiers
            and len(e.same_bits) == 2
        ),
        "{apart} agree to the bit and t_cpu differs from them: suspect the oracle, or what they share",
        JUDGE,
    ),
    FailurePattern(
        lambda e: (
            e.agree and len(e.job.tiers) > 1 and bool(e.tiers_failing_golden) and not e.tiers_matching_golden
        ),
        "{tiers} agree to the bit and differ from the golden: suspect the model code{at_node}, or the golden",
        RESYNC,
    ),
    FailurePattern(
        lambda e: len(e.job.tiers) == 1 and bool(e.tiers_failing_golden) and e.suspect.tier != ORACLE.tier,
        "{tier} differs from the golden, and no other tier ran: suspect it, the model code or the golden",
        "{with_oracle}",
    ),
    FailurePattern(
        lambda e: len(e.job.tiers) == 1 and bool(e.tiers_failing_golden),
        "{tier} differs from the golden, and no other tier ran: suspect the oracle, the model code or the golden",
        JUDGE,
    ),
    FailurePattern(
        lambda e: bool(e.differing_tiers) and bool(e.agreeing_tiers),
        "{apart_differ} from {reference}, {together} does not: suspect {tier}",
        BISECT,
    ),
    FailurePattern(
        lambda e: bool(e.differing_tiers) and e.suspect.tier == ORACLE.tier,
        "{apart_differ} from {reference}, two implementations of one model: suspect the kernels of {tier}",
        RESYNC,
    ),
    FailurePattern(
        lambda e: bool(e.differing_tiers),
        "{apart_differ} from {reference}, and there is no third tier to decide: suspect {tier}",
        BISECT,
    ),
    FailurePattern(lambda e: True, "{tier} has several failures", BISECT),
)
