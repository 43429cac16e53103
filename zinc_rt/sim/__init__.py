"""The simulated device: a second Driver. Green on it means the rules it knows were kept, never that silicon agrees."""
