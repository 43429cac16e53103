"""The scheduler on a device: plans become steps of the runner, tokens are drawn there, answers come of them."""
