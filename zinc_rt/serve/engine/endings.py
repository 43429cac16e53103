"""Map the scheduler's reason for the end of a request to a finish reason or an error for the client."""

from __future__ import annotations

from zinc_rt.serve.errors import ServeError, make_unavailable_error

DEADLINE = "deadline"
FINISHED = frozenset({"stop", "length"})
_FAILED = {  # the scheduler's reason -> what a client is told
    DEADLINE: (504, "the deadline passed before the answer was complete", "timeout_error"),
    "client_too_slow": (408, "the client did not read the answer for too long", "timeout_error"),
    "logits_not_finite": (
        500, "the model computed a value that is not a number; zinc-rt validate reports the layer", "server_error"
    ),
    "sampler_no_candidate": (400, "the constraints leave no token to sample", "invalid_request_error"),
    "grammar_too_slow": (
        400, "the grammar took too long to compute the permitted tokens: simplify it", "invalid_request_error"
    ),
    "grammar_too_complex": (
        400, "the grammar has too many alternatives: simplify it", "invalid_request_error"
    ),
    "grammar_failed": (500, "the grammar failed to compute the permitted tokens", "server_error"),
    "device_hang": (500, "each step with this request hung, even when it ran alone", "server_error"),
    "quota_lowered": (429, "the tenant's quota was lowered below what the request needs", "rate_limit_error"),
    "tenant_removed": (403, "the tenant was removed while the request ran", "permission_error"),
}  # fmt: skip
_UNAVAILABLE = {
    "device_lost": "the device is lost",
    "draining": "the server is shutting down",
    "model_unloaded": "the model was unloaded",
}
_CODES = {DEADLINE: "deadline_exceeded"}


def find_finish_reason(reason: str) -> str | None:
    """Return OpenAI's finish reason for a complete or truncated answer, or None if the reason is an error."""
    return reason if reason in FINISHED else None


def make_failure(reason: str, detail: str = "") -> ServeError:
    """Return the error for a request that ended for this reason. `detail` is appended to the message."""
    code = _CODES.get(reason, reason)
    behind = f": {detail}" if detail else ""
    if reason in _UNAVAILABLE:
        return make_unavailable_error(_UNAVAILABLE[reason] + behind, code)
    status, sentence, kind = _FAILED.get(reason, (500, f"the request ended early ({reason})", "server_error"))
    return ServeError(status, sentence + behind, kind, code=code)
