"""The simulated device, a second Driver. Green on it means its rules were kept, never that silicon agrees."""
