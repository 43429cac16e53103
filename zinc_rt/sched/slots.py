"""Slot state: records, tokens of bound requests, and the page tables sent to the device.

All state is in arrays over slots, so a step with many decodes is a fixed number of array operations. The set
of decoding slots is rebuilt only when it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.ir.slot_record import SlotState, find_column, free_records, view_dwords
from zinc_rt.sched.kv.kv_cache import UNSET
from zinc_rt.sched.request import GENERATED, LAST_TOKEN, POSITION, Request, State
from zinc_rt.sched.tenant import Priority

EPOCHS = 1 << 22  # an output entry has so many bits for it
STATE, EPOCH, CHECK = find_column("state"), find_column("epoch"), find_column("check")
PAGES, STATE_ROW, SPARE_ROW = find_column("pages"), find_column("state_row"), find_column("spare_row")
CACHED, BOUND_AT = find_column("cached"), find_column("bound_at")
PRIORITY, PENALTY_ROW, BIAS_ROW = find_column("priority"), find_column("penalty_row"), find_column("bias_row")
_CODES = {State.PREFILL: SlotState.PREFILL, State.DECODE: SlotState.DECODE}


@dataclass(slots=True)
class DecodeSet:
    """The decoding slots in ascending order, with their invariant data. `index`: the slots, as a slice if
    they are contiguous, which costs a quarter; `places`: the start of each slot's history; `by_tenant`:
    slots per tenant, i64 [tenants], and the same as pairs; `classes`: slots per Priority; `context`: the
    tokens that its next step reads, which grows by one a slot in each."""

    slots: np.ndarray
    index: np.ndarray | slice
    places: np.ndarray
    numbers: np.ndarray
    choices: np.ndarray
    by_tenant: np.ndarray
    charges: list[tuple[int, int]]
    classes: list[int]
    context: int


@dataclass(slots=True)
class Slots:
    """The slots. `pages_per_slot`: entries of a slot's row in a page table. `stop`: the position at which a
    slot needs attention, because its pages are full or its limit is reached."""

    count: int
    ctx: int
    pages_per_slot: int
    groups: int
    tenant_count: int
    records: np.ndarray = field(init=False)
    words: np.ndarray = field(init=False)  # the same as i32 [slots, 64]
    position: np.ndarray = field(init=False)  # columns of them, i32 [slots]
    last_token: np.ndarray = field(init=False)
    generated: np.ndarray = field(init=False)
    classes: np.ndarray = field(init=False)  # of Priority
    flat: np.ndarray = field(init=False)  # the history as one row
    history: np.ndarray = field(init=False)  # i32 [slots, ctx]: the tokens of who is bound
    requests: list[Request | None] = field(init=False)
    tenants: np.ndarray = field(init=False)  # i64 [slots], -1 free
    numbers: np.ndarray = field(init=False)  # i64 [slots], of requests
    choices: np.ndarray = field(init=False)  # i8 [slots]
    decoding: np.ndarray = field(init=False)  # bool [slots]
    stop: np.ndarray = field(init=False)  # i32 [slots]
    drew: np.ndarray = field(init=False)  # bool [slots]: a token of the request was drawn
    since_ns: np.ndarray = field(init=False)  # i64 [slots]: when the last was, or when the request arrived
    most_placed: np.ndarray = field(init=False)  # i32 [slots], of the requests
    source: np.ndarray = field(init=False)  # i32 [slots]: state rows of its next step
    target: np.ndarray = field(init=False)
    decoded_from: np.ndarray = field(init=False)  # i32 [slots], of the requests; 0: one ordering
    behind: np.ndarray = field(init=False)  # i32 [slots]: tokens before the last that the state does not include
    free: list[int] = field(init=False)
    bound: list[int] = field(default_factory=list)  # since the last step
    table_changes: list[dict[int, int]] = field(init=False)
    changed: bool = True  # somebody joined or left the decodes
    # by group and slot: entries that the device knows of a prompt, or of the request that has left the slot
    _sent_pages: list[list[int]] = field(init=False)
    _set: DecodeSet | None = None

    def __post_init__(self) -> None:
        count = self.count
        self.records = free_records(count)
        self.words = view_dwords(self.records)
        self.position, self.last_token = self.words[:, POSITION], self.words[:, LAST_TOKEN]
        self.generated, self.classes = self.words[:, GENERATED], self.words[:, PRIORITY]
        self.history = np.zeros((count, self.ctx + 1), np.int32)  # the last token is drawn, and not computed
        self.flat = self.history.reshape(-1)
        self.requests = [None] * count
        self.tenants = np.full(count, -1, np.int64)
        self.numbers, self.choices = np.zeros(count, np.int64), np.zeros(count, np.int8)
        self.decoding = np.zeros(count, bool)
        self.drew, self.since_ns = np.zeros(count, bool), np.zeros(count, np.int64)
        self.stop, self.most_placed = np.zeros(count, np.int32), np.zeros(count, np.int32)
        self.source, self.target = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
        self.behind, self.decoded_from = np.zeros(count, np.int32), np.zeros(count, np.int32)
        self.free = list(range(count - 1, -1, -1))
        self.table_changes = [{} for _ in range(self.groups)]
        self._sent_pages = [[0] * count for _ in range(self.groups)]

    def set_tenants(self, count: int) -> None:
        """Set the number of tenants, at least as many as before."""
        self.tenant_count, self.changed = count, True

    def bind(self, request: Request, state: State, step: int) -> int:
        """Bind the request to a free slot, with a new epoch."""
        slot, holding = self.free.pop(), request.holding
        assert holding is not None
        row, tokens, tables = self.words[slot], request.tokens, holding.tables
        epoch = (int(row[EPOCH]) + 1) % EPOCHS
        row[:] = request.row
        second = len(tables[1]) if self.groups > 1 else 0
        row[EPOCH], row[BOUND_AT], row[CACHED] = epoch, step & 0x7FFFFFFF, holding.cached
        row[POSITION], row[LAST_TOKEN] = holding.computed, tokens[-1]
        row[PAGES], row[PAGES + 1] = len(tables[0]), second
        if request.sampling.penalised:
            row[PENALTY_ROW] = slot
        if request.sampling.logit_bias:
            row[BIAS_ROW] = slot
        self.history[slot, : len(tokens)] = tokens
        request.row, request.slot = row, slot
        self.requests[slot], self.tenants[slot] = request, request.tenant
        self.numbers[slot], self.choices[slot] = request.number, request.choice
        self.drew[slot], self.since_ns[slot] = request.drawn_ns > 0, request.drawn_ns or request.arrived_ns
        self.most_placed[slot], self.behind[slot] = request.most_placed, 0
        self.decoded_from[slot] = request.decoded_from or 0
        self.set_state(request, state)
        self.set_rows(request)
        row[CHECK] = np.bitwise_xor.reduce(row[:CHECK])
        self.bound.append(slot)
        for group in range(self.groups):
            self._send_table(group, slot, tables[group])
        return slot

    def unbind(self, request: Request) -> None:
        """Free the slot; the request keeps its record and its tokens."""
        slot = request.slot
        request.tokens = self.history[slot, : request.length].copy()
        request.delivered = request.generated
        request.drawn_ns = int(self.since_ns[slot]) if self.drew[slot] else 0
        request.row = self.words[slot].copy()
        request.slot = -1
        self.words[slot, STATE] = SlotState.FREE
        self._set_decoding(slot, False)
        self.requests[slot], self.tenants[slot] = None, -1
        assert request.holding is not None
        for message, table in zip(self._sent_pages, request.holding.tables, strict=True):
            message[slot] = len(table)
        self.free.append(slot)

    def set_state(self, request: Request, state: State) -> None:
        """Set the state to PREFILL or DECODE."""
        request.row[STATE] = _CODES[state]
        self._set_decoding(request.slot, state is State.DECODE and not request.held)

    def leave_out(self, request: Request, out: bool) -> None:
        """Exclude a decoding request from the next step, or include it again."""
        self._set_decoding(request.slot, not out)

    def _set_decoding(self, slot: int, decodes: bool) -> None:
        if self.decoding[slot] != decodes:
            self.decoding[slot], self.changed = decodes, True

    def set_rows(self, request: Request, rows: tuple[int, int] = (-1, -1)) -> None:
        """Set the state rows that its next step reads and writes."""
        self.source[request.slot], self.target[request.slot] = rows
        request.row[STATE_ROW], request.row[SPARE_ROW] = rows

    def set_room(self, request: Request) -> None:
        """Set how far a request may decode before it needs attention."""
        holding = request.holding
        assert holding is not None
        self.stop[request.slot] = min(holding.room, request.most_placed)

    # --- page tables

    def _send_table(self, group: int, slot: int, table: Sequence[int]) -> None:
        """Send the slot's whole row, with UNSET where the previous row was longer."""
        base, changes = slot * self.pages_per_slot, self.table_changes[group]
        changes.update(zip(range(base, base + len(table)), table, strict=True))
        changes.update(dict.fromkeys(range(base + len(table), base + self._sent_pages[group][slot]), UNSET))
        self._sent_pages[group][slot] = len(table)

    def send_tables(self, request: Request) -> None:
        """Send the pages added to its tables."""
        holding, slot = request.holding, request.slot
        assert holding is not None
        base = slot * self.pages_per_slot
        for group, table in enumerate(holding.tables):
            known = self._sent_pages[group][slot]
            if len(table) > known:
                changes = self.table_changes[group]
                changes.update(zip(range(base + known, base + len(table)), table[known:], strict=True))
                self._sent_pages[group][slot] = len(table)

    def send_pages(self, requests: Sequence[Request]) -> None:
        """Send the last page of each of the requests' tables. They may decode until it is full."""
        per_slot = self.pages_per_slot
        for request in requests:
            holding, slot = request.holding, request.slot
            assert holding is not None
            self.stop[slot] = min(holding.room, request.most_placed)
            for changes, table in zip(self.table_changes, holding.tables, strict=True):
                changes[slot * per_slot + len(table) - 1] = table[-1]

    # --- who decodes

    def make_set(self, slots: np.ndarray) -> DecodeSet:
        """Return these slots, in ascending order, as a set."""
        index: np.ndarray | slice = slots
        if len(slots) and slots[-1] - slots[0] + 1 == len(slots):
            index = slice(int(slots[0]), int(slots[-1]) + 1)
        places = slots * self.history.shape[1]
        by_tenant = np.bincount(self.tenants[index], minlength=self.tenant_count)
        (tenants,) = by_tenant.nonzero()
        charges = list(zip(tenants.tolist(), by_tenant[tenants].tolist(), strict=True))
        classes = np.bincount(self.classes[index], minlength=len(Priority)).tolist()
        numbers, choices = self.numbers[index].copy(), self.choices[index].copy()
        context = self.count_context(index) + len(slots)
        return DecodeSet(slots, index, places, numbers, choices, by_tenant, charges, classes, context)

    def count_context(self, index: np.ndarray | slice) -> int:
        """Return the tokens before the last tokens of decoding slots."""
        return int(self.position[index].sum()) + int(self.behind[index].sum())

    def read_more(self, tokens: int) -> None:
        """Add the additional tokens that decodes of the last step will read in their next step."""
        if self._set is not None:
            self._set.context += tokens

    def list_decoding(self) -> DecodeSet:
        """Return the current set of decoding slots."""
        if self.changed or self._set is None:
            (slots,) = self.decoding.nonzero()
            self._set = self.make_set(slots)
            self.changed = False
        return self._set
