// Copies of rows of floats: a workgroup takes 512 columns.
#ifndef COPY_GLSL
#define COPY_GLSL

const uint COPY_COLUMNS = 512u;  // table.py's TUNING.copy_columns

#endif
