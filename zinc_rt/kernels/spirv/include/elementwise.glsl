// Elementwise kernels over f32 [rows][columns]: 256 columns of a row to a workgroup. Grid: columns / 256 rounded up,
// rows.
//
//     for (uint c = first_column(); c < end_column(); c += LANES) { uint i = element(c); ... }
#ifndef ELEMENTWISE_GLSL
#define ELEMENTWISE_GLSL

const uint COLUMNS = 256u;  // table.py's TUNING.columns

uint first_column() { return gl_WorkGroupID.x * COLUMNS + lane; }
uint end_column() { return min(args.columns, (gl_WorkGroupID.x + 1u) * COLUMNS); }
uint element(uint column) { return gl_WorkGroupID.y * args.columns + column; }

#endif
