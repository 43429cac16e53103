"""A wave function under construction: access to its arguments' fields, and its local memory."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import LaneBuilder
from zinc_rt.sim.shader.emit.values import FIELD_TYPES, I32, I64, POINTER, constant, type_bits
from zinc_rt.sim.shader.layout import CONTEXT, FIXED, STATE, Status

WAVE_FUNCTION = ir.FunctionType(I32, [POINTER, POINTER])


class Frame:
    """A frame. `b` builds the code; the block of locals precedes all others and `first` follows it.

    `pc` is the instruction that is being emitted, `block` the number of its block.
    """

    def __init__(self, module: ir.Module, name: str, wave: int, of: ir.FunctionType = WAVE_FUNCTION) -> None:
        self.function = ir.Function(module, of, name)
        self.state, self.context = self.function.args[:2]
        self.state.name, self.context.name = "state", "context"
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self.function.append_basic_block("registers")
        self.first = self.function.append_basic_block("start")
        self.b = LaneBuilder(self.first, wave)
        self.wave = wave
        self.pc = 0
        self.block = 0
        self._shared: dict[str, ir.Value] = {}
        self._fixed: dict[str, ir.Value] = {}
        self.fuel = self._fuel()

    def _fuel(self) -> ir.Value:
        return self.b.local(I64, name="fuel")

    def shared(self, name: str, of: ir.Type) -> ir.Value:
        """Return a pointer to scratch memory of the frame that all instructions may reuse."""
        if name not in self._shared:
            self._shared[name] = self.b.local(of, name=name)
        return self._shared[name]

    # --- what depends on the position in the kernel

    def position(self, distance: int = 0) -> ir.Value:
        """Return the byte offset of the current instruction plus a distance, as an i32."""
        return constant(self.pc + distance)

    def following(self, size_bytes: int) -> ir.Value:
        """Return the byte offset of the next instruction, as an i64. `size_bytes`: of the current one."""
        return constant(self.pc + size_bytes, I64)

    def block_number(self) -> ir.Value:
        """Return the number of the current block, in the order of Translation.blocks, as an i32."""
        return constant(self.block)

    def numbered(self, kind: str, number: int) -> ir.Value:
        """Return the number of an item that the kernel counts ("site", "memory"), as an i32."""
        return constant(number)

    def parameter(self, kind: str, number: int = 0) -> ir.Value:
        """Return a number that the record of an instruction supplies, as an i32 (emit/form.py)."""
        raise TypeError(f"{kind}: only functions of forms have parameters")

    def leave(self, status: Status) -> None:
        """Return `status` from the function."""
        self.set_field("fuel", self.b.load(self.fuel, typ=I64))
        self.set_state_field("pc", self.position())
        self.set_state_field("status", int(status))
        self.b.ret(constant(int(status)))

    # --- fields of the context and of the state

    def field(self, name: str) -> ir.Value:
        """Load a field of the context; fields that waves do not change are loaded once, at the function's
        entry.
        """
        if name not in FIXED:
            return self.b.get(self.context, CONTEXT, name)
        if name not in self._fixed:
            with self.b.goto_entry_block():
                location = self.b.at(self.context, CONTEXT, name)
                self._fixed[name] = self.b.load(location, name, typ=FIELD_TYPES[CONTEXT.fields[name].type])
        return self._fixed[name]

    def set_field(self, name: str, value: ir.Value) -> None:
        self.b.put(self.context, CONTEXT, name, value)

    def _state_pointer(self, name: str, index: int) -> ir.Value:
        row = STATE.fields[name]
        return self.b.offset(self.state, row.offset + index * type_bits(FIELD_TYPES[row.type]) // 8)

    def state_field(self, name: str, index: int = 0) -> ir.Value:
        return self.b.load(self._state_pointer(name, index), typ=FIELD_TYPES[STATE.fields[name].type])

    def set_state_field(self, name: str, value: ir.Value | int, index: int = 0) -> None:
        if isinstance(value, int):
            value = constant(value, FIELD_TYPES[STATE.fields[name].type])
        self.b.store(value, self._state_pointer(name, index))
