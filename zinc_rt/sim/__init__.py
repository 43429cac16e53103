"""The simulated device, an implementation of Driver. A run that passes here obeyed the simulator's rules;
real hardware may still differ."""
