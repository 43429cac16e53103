"""The probes of Vulkan, by what they look at."""
