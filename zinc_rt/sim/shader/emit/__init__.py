"""The IR interface of emit functions: registers, operands, reports, blocks of a wave function."""
