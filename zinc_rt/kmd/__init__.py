"""The driver interface: structs of KFD and amdgpu, the Driver protocol and its Linux implementation, queue
transports."""
