/* Runs the kernel's functions in a program of its own, on arrays that come through a pipe: see remote_kernel.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int32_t muster_encode(int32_t, const float *, const float *, int64_t, int64_t, uint8_t *, int64_t, uint32_t, const float *,
                      const uint8_t *, const uint8_t *, float *, float *, uint64_t);
int32_t muster_decode(int32_t, const uint8_t *, int64_t, int64_t, int64_t, int64_t, uint32_t, uint64_t, float *, float,
                      float, int32_t);
void muster_put(const float *, int64_t, float *, float, float, int32_t);
void muster_nesterov(float *, float *, const float *, int64_t, float, float);

enum { ARRAYS_MAX = 8 };
static const int ARRAYS[] = {8, 2, 2, 3};

static void take(void *place, size_t size) {
  if (size && fread(place, size, 1, stdin) != 1) exit(0);
}

int main(void) {
  for (;;) {
    int64_t which, sizes[ARRAYS_MAX], found = 0;
    uint64_t n[8];
    float f[2];
    void *a[ARRAYS_MAX];
    take(&which, 8);
    take(n, sizeof n);
    take(f, sizeof f);
    for (int i = 0; i < ARRAYS[which]; i++) {
      take(&sizes[i], 8);
      a[i] = sizes[i] < 0 ? NULL : malloc((size_t)sizes[i] + 1);
      if (a[i]) take(a[i], (size_t)sizes[i]);
    }
    if (which == 0) {
      float *error = n[6] == 1 ? a[0] : n[6] == 3 ? a[7] : a[5], *decoded = n[7] == 1 ? a[0] : n[7] == 3 ? a[7] : a[6];
      found = muster_encode((int32_t)n[0], a[0], a[7], (int64_t)n[1], (int64_t)n[2], a[1], (int64_t)n[3], (uint32_t)n[4], a[2],
                            a[3], a[4], error, decoded, n[5]);
    } else if (which == 1) {
      found = muster_decode((int32_t)n[0], a[0], (int64_t)n[1], (int64_t)n[2], (int64_t)n[3], (int64_t)n[4],
                            (uint32_t)n[5], n[6], a[1], f[0], f[1], (int32_t)n[7]);
    } else if (which == 2) {
      muster_put(a[0] ? a[0] : a[1], (int64_t)n[0], a[1], f[0], f[1], (int32_t)n[1]);
    } else {
      muster_nesterov(a[0], a[1], a[2], (int64_t)n[0], f[0], f[1]);
    }
    fwrite(&found, 8, 1, stdout);
    for (int i = 0; i < ARRAYS[which]; i++)
      if (a[i]) {
        fwrite(a[i], (size_t)sizes[i], 1, stdout);
        free(a[i]);
      }
    fflush(stdout);
  }
}
