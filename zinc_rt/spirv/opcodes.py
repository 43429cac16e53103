"""The SPIR-V opcodes that a kernel may use. All others are rejected, because their numerical effects are
unchecked. Numbers: spirv.h of the SPIR-V registry, unified1."""

from __future__ import annotations

from enum import IntEnum


class Opcode(IntEnum):
    """Opcodes by their names in the specification, without the leading Op."""

    # debug information and the head of a module
    SourceContinued = 2
    Source = 3
    SourceExtension = 4
    Name = 5
    MemberName = 6
    String = 7
    Extension = 10
    ExtInstImport = 11
    ExtInst = 12
    MemoryModel = 14
    EntryPoint = 15
    ExecutionMode = 16
    Capability = 17
    ModuleProcessed = 330
    # types and constants
    TypeVoid = 19
    TypeBool = 20
    TypeInt = 21
    TypeFloat = 22
    TypeVector = 23
    TypeArray = 28
    TypeRuntimeArray = 29
    TypeStruct = 30
    TypePointer = 32
    TypeFunction = 33
    TypeForwardPointer = 39
    ConstantTrue = 41
    ConstantFalse = 42
    Constant = 43
    ConstantComposite = 44
    ConstantNull = 46
    SpecConstantTrue = 48
    SpecConstantFalse = 49
    SpecConstant = 50
    SpecConstantComposite = 51
    SpecConstantOp = 52
    Undef = 1
    Decorate = 71
    MemberDecorate = 72
    # functions, memory, composites
    Function = 54
    FunctionParameter = 55
    FunctionEnd = 56
    FunctionCall = 57
    Variable = 59
    Load = 61
    Store = 62
    AccessChain = 65
    VectorExtractDynamic = 77
    VectorInsertDynamic = 78
    VectorShuffle = 79
    CompositeConstruct = 80
    CompositeExtract = 81
    CompositeInsert = 82
    CopyObject = 83
    CopyLogical = 400
    AtomicIAdd = 234  # on integers: the sum does not depend on the order
    # conversions: exact between integers; for floats the kernel must keep values in range
    ConvertFToU = 109
    ConvertFToS = 110
    ConvertSToF = 111
    ConvertUToF = 112
    UConvert = 113
    SConvert = 114
    ConvertPtrToU = 117
    ConvertUToPtr = 120
    Bitcast = 124
    # arithmetic
    SNegate = 126
    FNegate = 127
    IAdd = 128
    FAdd = 129
    ISub = 130
    FSub = 131
    IMul = 132
    FMul = 133
    UDiv = 134
    SDiv = 135
    FDiv = 136
    UMod = 137
    SRem = 138
    SMod = 139
    VectorTimesScalar = 142
    IAddCarry = 149
    ISubBorrow = 150
    UMulExtended = 151
    SMulExtended = 152
    # comparisons
    Any = 154
    All = 155
    LogicalEqual = 164
    LogicalNotEqual = 165
    LogicalOr = 166
    LogicalAnd = 167
    LogicalNot = 168
    Select = 169
    IEqual = 170
    INotEqual = 171
    UGreaterThan = 172
    SGreaterThan = 173
    UGreaterThanEqual = 174
    SGreaterThanEqual = 175
    ULessThan = 176
    SLessThan = 177
    ULessThanEqual = 178
    SLessThanEqual = 179
    FOrdEqual = 180
    FUnordEqual = 181
    FOrdNotEqual = 182
    FUnordNotEqual = 183
    FOrdLessThan = 184
    FOrdGreaterThan = 186
    FOrdLessThanEqual = 188
    FOrdGreaterThanEqual = 190
    # bits
    ShiftRightLogical = 194
    ShiftRightArithmetic = 195
    ShiftLeftLogical = 196
    BitwiseOr = 197
    BitwiseXor = 198
    BitwiseAnd = 199
    Not = 200
    BitFieldInsert = 201
    BitFieldSExtract = 202
    BitFieldUExtract = 203
    BitReverse = 204
    BitCount = 205
    # control
    ControlBarrier = 224
    MemoryBarrier = 225
    Phi = 245
    LoopMerge = 246
    SelectionMerge = 247
    Label = 248
    Branch = 249
    BranchConditional = 250
    Switch = 251
    Return = 253
    ReturnValue = 254
    Unreachable = 255


ROUNDED = frozenset(  # float operations that a driver may contract or reorder unless they are NoContraction
    {Opcode.FNegate, Opcode.FAdd, Opcode.FSub, Opcode.FMul, Opcode.FDiv, Opcode.VectorTimesScalar}
)
WITHOUT_RESULT = frozenset(
    {
        Opcode.SourceContinued, Opcode.Source, Opcode.SourceExtension, Opcode.Name, Opcode.MemberName,
        Opcode.Extension, Opcode.MemoryModel, Opcode.EntryPoint, Opcode.ExecutionMode, Opcode.Capability,
        Opcode.ModuleProcessed, Opcode.TypeForwardPointer, Opcode.Decorate, Opcode.MemberDecorate,
        Opcode.FunctionEnd, Opcode.Store, Opcode.ControlBarrier, Opcode.MemoryBarrier, Opcode.LoopMerge,
        Opcode.SelectionMerge, Opcode.Branch, Opcode.BranchConditional, Opcode.Switch, Opcode.Return,
        Opcode.ReturnValue, Opcode.Unreachable,
    }
)  # fmt: skip
TYPELESS = frozenset(  # a result, but no type before it
    {
        Opcode.String, Opcode.ExtInstImport, Opcode.TypeVoid, Opcode.TypeBool, Opcode.TypeInt, Opcode.TypeFloat,
        Opcode.TypeVector, Opcode.TypeArray, Opcode.TypeRuntimeArray, Opcode.TypeStruct, Opcode.TypePointer,
        Opcode.TypeFunction, Opcode.Label,
    }
)  # fmt: skip


def find_opcode_name(number: int) -> str:
    """Return the name, such as "OpFAdd", or the number of an opcode that kernels may not use."""
    try:
        return f"Op{Opcode(number).name}"
    except ValueError:
        return f"opcode {number}"
