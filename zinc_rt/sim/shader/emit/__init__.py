"""The IR interface of instructions' emit functions: registers, operands, reports, blocks of a wave function."""
