#include "gpu.h"
/* Ids of three dimensions, of the workgroup and in it. */
KERNEL grid_ids(u32 *out, u32 width, u32 height) {
  u32 x = __builtin_amdgcn_workgroup_id_x() * 4 + __builtin_amdgcn_workitem_id_x();
  u32 y = __builtin_amdgcn_workgroup_id_y() * 3 + __builtin_amdgcn_workitem_id_y();
  u32 z = __builtin_amdgcn_workgroup_id_z() * 5 + __builtin_amdgcn_workitem_id_z();
  out[(z * height + y) * width + x] = x | y << 8 | z << 16;
}
