"""The Vulkan probes, by subject."""
