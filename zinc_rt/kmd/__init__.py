"""The driver seam: structs of KFD and amdgpu, the Driver protocol and Linux behind it, queue transports on top."""
