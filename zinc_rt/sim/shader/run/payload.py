"""What the disk keeps of compiled code: a JSON object of what is known of it, then object code."""

from __future__ import annotations

import json
from typing import Any

_SIZE_BYTES = 4


def packed(about: dict[str, Any], code: bytes) -> bytes:
    head = json.dumps(about).encode()
    return len(head).to_bytes(_SIZE_BYTES, "little") + head + code


def unpacked(payload: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(payload[:_SIZE_BYTES], "little")
    return json.loads(payload[_SIZE_BYTES : _SIZE_BYTES + size]), payload[_SIZE_BYTES + size :]
