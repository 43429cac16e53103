"""What the simulated device itself knows of the kernel's and the command processor's interfaces: numbers only.

Written from the kernel's headers, PAL and Mesa, not from zinc_rt.kmd.uapi or zinc_rt.pm4: what the runtime says
and what the device reads are two sources, so a wrong offset, number or default of either is refused or named.
tests/sim/test_two_sources.py compares them field by field.

    structs     how a row of a C struct's table is read and written
    kfd, drm, amdgpu    structs, ioctl numbers and constants of the three interfaces
    layout      how a row of a packet's table is read
    packets     opcodes and fields of the compute engine's packets
    sdma_packets    packets of the DMA engines
    registers   registers a compute queue sets
    caches      cache operations of ACQUIRE_MEM and RELEASE_MEM
"""
