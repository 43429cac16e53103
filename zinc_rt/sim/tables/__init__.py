"""Constants and layouts of the kernel and command processor interfaces, as used by the simulated device.

These tables are written from the kernel's headers, PAL and Mesa, independently of zinc_rt.kmd.uapi and
zinc_rt.pm4. A wrong offset, number or default in the runtime or the device is therefore rejected or reported.
tests/sim/test_two_sources.py compares them field by field.

    structs     format of the tables of C structs
    kfd, drm, amdgpu    structs, ioctl numbers and constants of the three interfaces
    layout      format of the packet tables
    packets     opcodes and fields of the compute engine's packets
    sdma_packets    packets of the DMA engines
    registers   registers accessible to a compute queue
    caches      cache operations of ACQUIRE_MEM and RELEASE_MEM
"""
