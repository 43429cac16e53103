#include "gpu.h"
/* Decimal text of integers and of thousandths, right-aligned in 16 bytes. */
KERNEL number_text(char *out, const i32 *in) {
  u32 i = group() * 32 + thread();
  i32 value = in[i];
  u32 left = value < 0 ? -(u32)value : value, at = 16, digits = 0;
  char *text = out + i * 16;
  do {
    if (digits == 3) text[--at] = '.';
    text[--at] = '0' + left % 10;
    left /= 10;
  } while (++digits < 4 || left);
  if (value < 0) text[--at] = '-';
  while (at) text[--at] = ' ';
}
