"""gfx12 machine code run on the host: one kernel becomes LLVM IR, vectorised over a wave's lanes."""
