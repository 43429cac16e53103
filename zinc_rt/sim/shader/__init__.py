"""Translation of gfx12 machine code to LLVM IR for the host, vectorised over the lanes of a wave."""
