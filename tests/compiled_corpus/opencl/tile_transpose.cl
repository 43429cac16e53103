#include "gpu.h"
kernel void tile_transpose(global float *out, global const float *in, uint rows, uint columns) {
  local float tile[8][9];
  uint tiles = columns / 8, y = GROUP / tiles * 8, x = GROUP % tiles * 8;
  tile[IDY][ID] = in[(y + IDY) * columns + x + ID];
  meet();
  out[(x + IDY) * rows + y + ID] = tile[ID][IDY];
}
