#include "gpu.h"
/* Insertion sort of a private array whose indices are not known: scratch. */
kernel SIZED(64) void private_sort(global int *data) {
  int mine[13];
  global int *row = data + (GROUP * 64 + ID) * 13;
  for (int i = 0; i < 13; i++) mine[i] = row[i];
  for (int i = 1; i < 13; i++) {
    int x = mine[i], k = i;
    for (; k > 0 && mine[k - 1] > x; k--) mine[k] = mine[k - 1];
    mine[k] = x;
  }
  for (int i = 0; i < 13; i++) row[i] = mine[i];
}
