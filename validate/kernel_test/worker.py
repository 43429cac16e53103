"""Run cases that arrive on stdin as JSON lines, and answer each with a line; see pool.py.

The worker is a separate process, because a CPU kernel may end it with a signal; the parent knows which case was
running.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import asdict
from typing import Any

from zinc_rt.host.errors import ZincError
from zinc_rt.kernels.cases import parse
from zinc_rt.validate.kernel_test.bench import CaseBench, CaseOutcome
from zinc_rt.validate.kernel_test.bits import BitDifference
from zinc_rt.validate.kernel_test.side import parse_side


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to answer
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer
    side = parse_side(json.loads(argv[0]))
    try:
        with CaseBench(side.open) as bench:
            for line in sys.stdin:
                document = json.loads(line)
                start = time.monotonic()
                outcome = bench.run(parse(document["case"]), document["timeout"])
                reply = {**to_json(outcome), "seconds": time.monotonic() - start}
                print(json.dumps(reply), file=answers, flush=True)
    except ZincError as error:
        print(json.dumps({"error": str(error), "exit": error.exit_code}), file=answers, flush=True)
        return error.exit_code
    return 0


def to_json(outcome: CaseOutcome) -> dict[str, Any]:
    return asdict(outcome)


def from_json(data: dict[str, Any]) -> CaseOutcome:
    apart = data["difference"]
    difference = BitDifference(**{**apart, "index": tuple(apart["index"])}) if apart else None
    return CaseOutcome(
        data["status"], tuple(data["kernels"]), data["said"], difference, data["blamed"], tuple(data["counts"])
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
