"""What instructions' emit functions write IR with: registers, operands, reports, blocks of a wave function."""
