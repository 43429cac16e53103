"""Check between stages whether the card still answers, and recover a hung one."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass, field

from nightly_stages import Night, zinc_command

ANSWER_SECONDS = 60.0  # for the probe below, which takes less than 5
RECOVER_SECONDS = 180.0
PROBE = "P20"  # "alive": a packet writes a fence


def check_command(night: Night) -> list[str]:
    return zinc_command("pm4-test", "--device", night.device, "-k", PROBE, "--hazard", "1")


def problem_of(line: list[str], seconds: float) -> str:
    """Run a command. Return the reason if it did not succeed, else ""; 77 means that nothing could run."""
    try:
        result = subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:.0f} s"
    except OSError as error:
        return str(error)
    if result.returncode in (0, 77):
        return ""
    lines = [text for text in (result.stdout + result.stderr).splitlines() if text.strip()]
    return f"exit {result.returncode}" + (f": {lines[-1].strip()[:160]}" if lines else "")


@dataclass
class Card:
    """The card of a night. `recover` is a command that resets the card, for example one that sudo permits the
    runner. `hung` is the reason if the card does not answer, else "".
    """

    night: Night
    recover: str = ""
    hung: str = ""
    events: list[str] = field(default_factory=list)

    def check(self, after: str) -> str:
        """Check the card after a stage, and try to recover it once. Return what happened; "" if it answers."""
        problem = problem_of(check_command(self.night), ANSWER_SECONDS)
        if not problem:
            return ""
        event = f"the card does not answer after {after}: {problem}"
        if not self.recover:
            self.hung = f"{event}; no --recover command is set"
        elif failed := problem_of(shlex.split(self.recover), RECOVER_SECONDS):
            self.hung = f"{event}; `{self.recover}` failed: {failed}"
        elif second := problem_of(check_command(self.night), ANSWER_SECONDS):
            self.hung = f"{event}; it did not recover with `{self.recover}`: {second}"
        else:
            event += f"; recovered with `{self.recover}`"
        self.events.append(self.hung or event)
        return self.hung or event
