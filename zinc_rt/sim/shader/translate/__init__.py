"""Translation of machine code to a wave function: blocks, control flow, analysis."""
