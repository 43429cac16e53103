"""Sequences over a KvCache, with what every page and every row really holds: a wrong one is read sooner or later.

A page holds, for each of its tokens, the whole prefix up to it; a row the prefix that its state is of.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.kv.capsule import Capsule, drop, fork, restore, snapshot
from zinc_rt.sched.kv.kv_cache import UNSET, ZERO, Holding, KvCache, PageCopy, PageGroup
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.kv.prefix import DIGEST_BYTES, NO_ROW, Namespace, digest_chain, make_namespace

PAGE, CHUNK = 4, 6
TENANTS = 3  # 0 and 1 share a namespace
PREFIXES = [tuple(range(100, 100 + length)) for length in (3, 4, 9, 12)]


@dataclass(eq=False)
class CachedSequence:
    holding: Holding
    tokens: list[int]  # prompt, then what was made
    parked: bool = False
    computed: int = field(init=False)

    def __post_init__(self) -> None:
        self.computed = self.holding.computed


def make_namespaces() -> list[Namespace]:
    shared = make_namespace("model", "canonical-1", "f32", PAGE, secret=b"a" * 32)
    return [shared, shared, make_namespace("model", "canonical-1", "f32", PAGE, secret=b"b" * 32)]


class KvCacheMachine(RuleBasedStateMachine):
    """One full-attention group, one window of 7 tokens, and recurrent rows."""

    sequences = Bundle("sequences")
    capsules = Bundle("capsules")
    groups = (PageGroup("full", 14), PageGroup("window", 12, window=7))
    rows = 7

    def __init__(self) -> None:
        super().__init__()
        self.cache = KvCache(self.groups, PAGE, CHUNK, self.rows)
        self.spaces = make_namespaces()
        for tenant in range(TENANTS):
            group = 0 if tenant < 2 else None
            self.cache.set_quotas(tenant, [PageQuota(group=group) for _ in self.groups])
        self.alive: list[CachedSequence] = []
        self.kept: list[Capsule] = []
        self.held: dict[tuple[int, int, int], tuple[bytes, tuple[int, ...]]] = {}  # group, page, place: its prefix
        self.states: dict[int, tuple[bytes, tuple[int, ...]]] = {ZERO: (b"", ())}
        self.hits = 0

    # --- what happens

    @rule(
        target=sequences,
        tenant=st.integers(0, TENANTS - 1),
        prefix=st.sampled_from(PREFIXES),
        more=st.lists(st.integers(0, 2), max_size=7),
    )
    def arrive(self, tenant: int, prefix: tuple[int, ...], more: list[int]) -> object:
        tokens = [*prefix, *more]
        array = np.array(tokens, np.int32)
        digests = digest_chain(array, PAGE, self.spaces[tenant])
        match = self.cache.prefix.match(digests, array)
        assert match.pages * PAGE < len(tokens)
        before = self.tenant_charges()
        holding = self.cache.admit(tenant, self.spaces[tenant], array, digests, match)
        if holding is None:
            assert self.tenant_charges() == before
            return multiple()
        self.hits += match.pages
        sequence = CachedSequence(holding, tokens)
        self.alive.append(sequence)
        return sequence

    @rule(sequence=sequences, count=st.integers(1, CHUNK), made=st.integers(0, 2), keep=st.booleans(),
          rolling=st.booleans())  # fmt: skip
    def step(self, sequence: CachedSequence, count: int, made: int, keep: bool, rolling: bool) -> None:
        if sequence not in self.alive or sequence.parked:
            return
        holding = sequence.holding
        if holding.computed == len(sequence.tokens):
            sequence.tokens.append(made)
        end = min(len(sequence.tokens), holding.computed + count)
        promised = end <= holding.prompt
        if not self.cache.cover(holding, end):
            assert not promised, "a prompt is promised its pages"
            return
        source, target = self.cache.step_rows(holding)
        self.read(sequence, source)
        self.write(sequence, end, target)
        self.cache.record_computed(holding, np.array(sequence.tokens, np.int32), end, keep=keep, rolling=rolling)
        sequence.computed = end

    @rule(sequence=sequences)
    def park_or_resume(self, sequence: CachedSequence) -> None:
        sequence.parked = not sequence.parked

    @rule(sequence=consumes(sequences))
    def leave(self, sequence: CachedSequence) -> None:
        if sequence in self.alive:
            self.alive.remove(sequence)
            self.cache.release(sequence.holding)

    @rule(target=capsules, sequence=sequences)
    def snapshot(self, sequence: CachedSequence) -> object:
        if sequence not in self.alive or not sequence.computed:
            return multiple()
        before = self.tenant_charges()
        taken = snapshot(self.cache, sequence.holding, np.array(sequence.tokens, np.int32))
        if taken is None:
            assert self.tenant_charges() == before
            return multiple()
        capsule, copies = taken
        self.copy(copies)
        self.kept.append(capsule)
        return capsule

    @rule(target=sequences, capsule=capsules)
    def restore(self, capsule: Capsule) -> object:
        if capsule not in self.kept:
            return multiple()
        before = self.tenant_charges()
        restored = restore(self.cache, capsule, prompt=capsule.computed + 3)
        if restored is None:
            assert self.tenant_charges() == before
            return multiple()
        return self.add_sequence(restored[0], capsule.tokens.tolist(), restored[1])

    @rule(target=sequences, sequence=sequences, count=st.integers(1, 2))
    def fork(self, sequence: CachedSequence, count: int) -> object:
        if sequence not in self.alive or not sequence.computed:
            return multiple()
        before = self.tenant_charges()
        tokens = sequence.tokens[: sequence.computed]
        forked = fork(self.cache, sequence.holding, np.array(tokens, np.int32), count)
        if forked is None:
            assert self.tenant_charges() == before
            return multiple()
        self.copy(forked[1])
        return multiple(*(self.add_sequence(holding, tokens, []) for holding in forked[0]))

    @rule(capsule=consumes(capsules))
    def drop(self, capsule: Capsule) -> None:
        if capsule in self.kept:
            self.kept.remove(capsule)
            drop(self.cache, capsule)

    @rule(tenant=st.integers(0, TENANTS - 1), reserved=st.integers(0, 5), maximum=st.sampled_from([None, 6, 9]))
    def quota(self, tenant: int, reserved: int, maximum: int | None) -> None:
        group = 0 if tenant < 2 else None
        before = [pool.find_quota(tenant) for pool in self.cache.pools]
        if maximum is not None and any(pool.count_charge(tenant) > maximum for pool in self.cache.pools):
            return
        try:
            self.cache.set_quotas(tenant, [PageQuota(reserved, maximum, group) for _ in self.groups])
        except UsageError:
            assert [pool.find_quota(tenant) for pool in self.cache.pools] == before

    # --- what is held

    def tenant_charges(self) -> list[int]:
        rows = [] if self.cache.rows is None else [self.cache.rows.used]
        return [pool.count_charge(tenant) for pool in self.cache.pools for tenant in range(TENANTS)] + rows

    def add_sequence(self, holding: Holding, tokens: list[int], copies: list[PageCopy]) -> CachedSequence:
        self.copy(copies)
        sequence = CachedSequence(holding, list(tokens))
        self.alive.append(sequence)
        return sequence

    def copy(self, copies: list[PageCopy]) -> None:
        for item in copies:
            for index in range(item.tokens):
                self.held[item.group, item.target, index] = self.held[item.group, item.source, index]

    def read(self, sequence: CachedSequence, source: int) -> None:
        """Check that every key that the next token attends to, and the state, belong to this sequence's prefix."""
        holding, computed = sequence.holding, sequence.computed
        root = holding.within.root
        for group, (spec, table) in enumerate(zip(self.groups, holding.tables, strict=True)):
            first = max(0, computed - spec.window + 1) if spec.window else 0
            for index in range(first, computed):
                page = table[index // PAGE]
                assert page != UNSET
                assert self.held[group, page, index % PAGE] == (root, tuple(sequence.tokens[: index + 1]))
        want = (root, tuple(sequence.tokens[:computed])) if computed else (b"", ())
        assert self.states[source] == want

    def write(self, sequence: CachedSequence, end: int, target: int) -> None:
        holding, root = sequence.holding, sequence.holding.within.root
        others = {item.holding.state for item in self.alive if item is not sequence}
        assert target not in (ZERO, *others, *(capsule.state for capsule in self.kept))
        self.states[target] = (root, tuple(sequence.tokens[:end]))
        for group, table in enumerate(holding.tables):
            for index in range(sequence.computed, end):
                page = table[index // PAGE]
                assert self.cache.pools[group].pool.is_private(page)
                self.held[group, page, index % PAGE] = (root, tuple(sequence.tokens[: index + 1]))

    # --- what always holds

    @invariant()
    def nothing_is_wrong(self) -> None:
        texts = [text for pool in self.cache.pools for text in pool.find_problems()]
        if self.cache.rows is not None:
            texts += self.cache.rows.find_problems()
        assert not texts
        for group, pool in enumerate(self.cache.pools):
            users = np.zeros(pool.pool.count, np.int32)
            for tables in [s.holding.tables for s in self.alive] + [c.tables for c in self.kept]:
                pages = [page for page in tables[group] if page != UNSET]
                assert len(set(pages)) == len(pages)
                users[pages] += 1
            assert users.tolist() == pool.pool.users
        for entry in self.cache.prefix.entries():
            assert len(entry.digest) == DIGEST_BYTES
            assert entry.state_row == NO_ROW or self.cache.rows.cached[entry.state_row]  # type: ignore[union-attr]

    @precondition(lambda self: not self.alive and not self.kept)
    @invariant()
    def nothing_is_lost(self) -> None:
        for pool in self.cache.pools:
            assert not any(pool.pool.users) and pool.pool.used == 0
        if self.cache.rows is not None:
            assert self.cache.rows.used == 0


class KvCacheMachineWithoutState(KvCacheMachine):
    """A plain transformer: one group, no rows."""

    groups = (PageGroup("full", 11),)
    rows = 0

    def read(self, sequence: CachedSequence, source: int) -> None:
        self.states[source] = (
            (sequence.holding.within.root, tuple(sequence.tokens[: sequence.computed]))
            if sequence.computed
            else (b"", ())
        )
        super().read(sequence, source)

    def write(self, sequence: CachedSequence, end: int, target: int) -> None:
        super().write(sequence, end, 1000 + id(sequence))
