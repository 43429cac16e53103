"""Instructions that load, store and change memory, and how an address becomes a host pointer."""
