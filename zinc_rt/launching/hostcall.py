"""Host calls of kernels: the buffer through which device code of ROCm (ockl) prints and reports assertions.

A wave takes a packet from a stack of free ones, fills 8 words per lane, pushes it on the ready stack and waits
until the host clears the ready bit. Layout as compiled from ROCm's device library of LLVM 20 and later.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import sys
from collections.abc import Callable

import llvmlite.binding as llvm  # type: ignore[import-untyped]

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.transport import DeviceBuffer

PACKETS = 4096  # a power of two, and at least the waves that run at a time: device code does not check for empty
HEADER = struct.Struct("<QQII")  # next, active lanes, service, control: bit 0 is set until the host has answered
_NEXT, _CONTROL = 0, 20
LANE_WORDS = 8
PAYLOAD_BYTES = 64 * LANE_WORDS * 8
BUFFER = struct.Struct("<QQQQQQ")  # headers, payloads, signal, free stack, ready stack, mask of a packet's index
_READY_STACK = 32
_SIGNAL_BYTES = 64  # amd_signal_t; no mailbox, so no interrupt
PRINTF = 2
_SERVICES = {1: "a function call", 3: "device memory", 4: "the address sanitizer"}
_BEGIN, _END = 1, 2  # in the first word of a message: bits 7:5 the number of words, from 8 on the message's number
_STDERR = 1  # in the second word of a message
_IR = """
define i64 @take(ptr %stack) {
  %top = atomicrmw xchg ptr %stack, i64 0 acq_rel
  ret i64 %top
}
define void @answer(ptr %control) {
  store atomic i32 0, ptr %control release, align 4
  ret void
}
"""
_DIRECTIVE = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t)?([diouxXcsfFeEgGaAp%])")


@functools.cache
def _compile_functions() -> tuple[Callable[[int], int], Callable[[int], None], object]:
    """Return the compiled functions (take, answer) and an object that keeps them alive, because Python has no
    atomic memory operations.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(_IR), llvm.Target.from_default_triple().create_target_machine()
    )
    engine.finalize_object()
    take = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(engine.get_function_address("take"))
    answer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("answer"))
    return take, answer, engine


class HostcallBuffer:
    """The buffer of one queue. `write(text, to_stderr)` receives the output of kernels."""

    def __init__(self, alloc: Callable[[int, str], DeviceBuffer], write: Callable[[str, bool], None]) -> None:
        """`alloc(size in bytes, name)` returns zeroed memory that the host and the GPU see."""
        headers_at = BUFFER.size + _SIGNAL_BYTES
        self._headers = headers_at + -headers_at % 64
        self._payloads = self._headers + PACKETS * HEADER.size
        self._payloads += -self._payloads % 4096
        self._memory = alloc(self._payloads + PACKETS * PAYLOAD_BYTES, "hostcall buffer")
        self._messages: dict[int, list[int]] = {}
        self._numbers = 0
        self._write = write
        mask = PACKETS - 1
        host, va = self._memory.host.address, self._memory.gpu_va
        below = 0
        for index in range(PACKETS):
            HEADER.pack_into(self._memory.host.view, self._headers + index * HEADER.size, below, 0, 0, 0)
            below = PACKETS | index  # with a tag, so that it is not 0
        signal = va + BUFFER.size
        words = (va + self._headers, va + self._payloads, signal, below, 0, mask)
        ctypes.memmove(host, BUFFER.pack(*words), BUFFER.size)

    @property
    def va(self) -> int:
        return self._memory.gpu_va

    def serve(self) -> None:
        """Answer the packets that waves have pushed. Raise UnsupportedError for a service other than printing."""
        take, answer, _ = _compile_functions()
        host = self._memory.host.address
        top = take(host + _READY_STACK)
        pushed = []
        while top:
            pushed.append(top & PACKETS - 1)
            top = HEADER.unpack_from(self._memory.host.view, self._headers + pushed[-1] * HEADER.size)[_NEXT]
        for index in reversed(pushed):  # in the order of the pushes
            offset = self._headers + index * HEADER.size
            _, lanes, service, _ = HEADER.unpack_from(self._memory.host.view, offset)
            if service != PRINTF:
                name = _SERVICES.get(service, f"service {service}")
                raise UnsupportedError(f"a kernel requested {name} from the host; only printing is supported")
            for lane in range(64):
                if lanes >> lane & 1:
                    self._add_lane(self._payloads + index * PAYLOAD_BYTES + lane * LANE_WORDS * 8)
            answer(host + offset + _CONTROL)

    def _add_lane(self, index: int) -> None:
        """Add the words of one lane to its message, and print a complete one."""
        words = struct.unpack_from("<8Q", self._memory.host.view, index)
        number = words[0] >> 8
        if words[0] & _BEGIN:
            self._numbers += 1
            number = self._numbers
            self._messages[number] = []
        message = self._messages[number]
        message += words[1 : 1 + (words[0] >> 5 & 7)]
        if words[0] & _END:
            del self._messages[number]
            self._write(format_message(message[1:]), message[0] == _STDERR)
        struct.pack_into("<QQ", self._memory.host.view, index, number << 8, 0)


def format_message(words: list[int]) -> str:
    """Return the text of a message: a format string in whole words, then the arguments, with strings also in
    words.
    """
    raw = struct.pack(f"<{len(words)}Q", *words)
    text, rest = _split_string(raw)
    output, position = b"", 0

    def take_word() -> bytes:
        nonlocal rest
        value, rest = rest[:8].ljust(8, b"\0"), rest[8:]
        return value

    for match in _DIRECTIVE.finditer(text):
        output += text[position : match.start()]
        position = match.end()
        flags, width, precision, size, kind = (group or b"" for group in match.groups())
        if kind == b"%":
            output += b"%"
            continue
        shape = b"%" + flags
        shape += b"%d" % int.from_bytes(take_word(), "little") if width == b"*" else width
        if match[3] is not None:
            shape += b".%d" % int.from_bytes(take_word(), "little") if precision == b"*" else b"." + precision
        if kind == b"s":
            value, rest = _split_string(rest)
            output += (shape + b"s") % value
        else:
            output += _format_number(shape, kind, size, take_word())
    return (output + text[position:]).decode("utf-8", "replace")


def _split_string(raw: bytes) -> tuple[bytes, bytes]:
    """Split a string that ends in a zero byte, padded to whole words, from what follows."""
    end = raw.find(b"\0")
    end = len(raw) if end < 0 else end
    return raw[:end], raw[(end + 8) & ~7 :]


def _format_number(shape: bytes, kind: bytes, size: bytes, word: bytes) -> bytes:
    bits = {b"hh": 8, b"h": 16, b"": 32}.get(size, 64)
    if kind in b"di":
        value = int.from_bytes(word[: bits // 8], "little", signed=True)
        return (shape + b"d") % value
    if kind in b"ouxX":
        value = int.from_bytes(word[: bits // 8], "little")
        return (shape + (b"d" if kind == b"u" else kind)) % value
    if kind == b"c":
        return (shape + b"c") % word[:1]
    if kind == b"p":
        return b"0x%x" % int.from_bytes(word, "little")
    (real,) = struct.unpack("<d", word)
    return real.hex().encode() if kind in b"aA" else (shape + kind) % real


def print_text(text: str, to_stderr: bool) -> None:
    """Write what a kernel printed to this process's stdout or stderr."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.write(text)
    stream.flush()
