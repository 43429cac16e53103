"""A process that counts steps and keeps its ledger in a file, until it is killed: `ledger_child.py DB PERIOD_S`.

Its stdout names steps and when: `counted N T` behind the steps that were added, `settled N T` once so many are in
the file. With a period of 0 it is the store's own, and the child never asks for a batch.
"""

from __future__ import annotations

import random
import sys
import time

from zinc_rt.sched.usage.ledger import RunnerCounts, StepKind, UsageLedger
from zinc_rt.sched.usage.ledger_store import PERIOD_S, LedgerStore

TENANTS = ("ada", "bob", "cy")
PAGES = 12


def count_step(ledger: UsageLedger, device: RunnerCounts, choice: random.Random) -> RunnerCounts:
    """Count one step of random amounts on both sides."""
    result = ledger.clear_step()
    for tenant in range(len(TENANTS)):
        for kind in StepKind:
            result.counts[kind, tenant] = choice.randint(0, 5)
    result.counts[StepKind.DECODE_INPUTS, 0] += 1
    paid = choice.randint(0, PAGES)
    result.pages[0, choice.randrange(len(TENANTS))], result.pages[0, -1] = paid, PAGES - paid
    sums = result.counts.sum(1)
    device = device.after(int(sums[:4].sum()), int(sums[4:8].sum()), int(sums[8]), choice.randint(1, 10**7))
    ledger.add(result, device)
    return device


def main(path: str, period_s: float) -> None:
    ledger, device, choice = UsageLedger(TENANTS, {"full": PAGES}), RunnerCounts(), random.Random()
    store = LedgerStore(path, {"m": ledger}, period_s=period_s or PERIOD_S)
    while True:
        for _ in range(choice.randint(1, 20)):
            device = count_step(ledger, device, choice)
        print("counted", device.steps, time.monotonic(), flush=True)
        if period_s and choice.random() < 0.2 and store.settle():
            print("settled", device.steps, time.monotonic(), flush=True)
        time.sleep(0.001)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
