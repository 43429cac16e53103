"""Remove from a judgement what identifies a person or a machine, so that it can be attached to a public issue."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from zinc_rt.doctor.bundle.redact import Redactor
from zinc_rt.validate.judge.judgement import EngineJudgement
from zinc_rt.validate.judge.reproduce import Reproducer

ENGINE_URL = "http://ENGINE"  # replaces the engine's address


def without_private_data(judgement: EngineJudgement) -> EngineJudgement:
    """Return a copy with the engine's messages redacted and the folder of a model's name removed. Prompts are
    this command's own texts and stay.
    """
    user = ""
    with suppress(OSError, KeyError):
        user = getpass.getuser()
    redactor = Redactor({"host": [socket.gethostname()], "user": [user] if user else []})
    redactor.redact_files({})  # takes the known names
    text = redactor.text
    model = PurePath(judgement.features.model).name
    findings = [
        replace(finding, summary=text(finding.summary), evidence=[text(line) for line in finding.evidence])
        for finding in judgement.findings
    ]
    return replace(
        judgement,
        features=replace(judgement.features, model=model),
        findings=findings,
        skipped=[text(line) for line in judgement.skipped],
        reproducers=[item and _without_folder(item, model, text) for item in judgement.reproducers],
    )


def _without_folder(reproducer: Reproducer, model: str, text: Callable[[str], str]) -> Reproducer:
    def named(body: Mapping[str, Any]) -> dict[str, Any]:
        return {**body, "model": model}

    return replace(
        reproducer,
        body=named(reproducer.body),
        before=tuple(named(body) for body in reproducer.before),
        beside=tuple(named(body) for body in reproducer.beside),
        expected=text(reproducer.expected),
        got=text(reproducer.got),
    )
