"""Two tenants on one device: one floods it, the other has a guarantee of two of the four slots. Prints the usage.

python examples/tenants.py
"""

from zinc_rt import LLM, Sampling
from zinc_rt.sched.tenant import Tenant

TENANTS = [Tenant("flood"), Tenant("paying", slots_guaranteed=2)]

with LLM("qwen3-q", slots=4, tenants=TENANTS) as llm:
    flood = [llm.submit([1, 2, 3, number], Sampling(max_tokens=16), tenant="flood") for number in range(12)]
    for _ in range(3):
        llm.step()
    paid = llm.generate(["the", "cat"], Sampling(max_tokens=16), tenant="paying")
    waiting = sum(not item.done for item in flood)
    print(f"{len(paid)} answers for paying, while {waiting} of {len(flood)} of flood had not finished")
    while not all(item.done for item in flood):
        llm.step()
    for tenant in TENANTS:
        for counter, amount in sorted(llm.usage(tenant.name).items()):
            print(f"{tenant.name:<8}{counter:<32}{amount:>8}")
