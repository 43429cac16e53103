"""The cost model: the time of a dispatch and of a step on a device, from counts and a specification."""
