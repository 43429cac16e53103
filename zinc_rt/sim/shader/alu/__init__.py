"""Translation of ALU instructions: vector, scalar, matrix and cross-lane operations."""
