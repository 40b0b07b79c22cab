/* A stand-in for the few functions of libcuda.so.1 that stagewatch.faults.driver calls: memory is malloc's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL (1ull << 30)

static size_t taken;

int cuInit(unsigned flags) { return flags; }

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && strcmp(visible, "0") ? 101 : 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = malloc(1);
    return device;
}

int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }

int cuMemGetInfo_v2(size_t *available, size_t *total) {
    *available = TOTAL - taken;
    *total = TOTAL;
    return 0;
}

int cuMemAlloc_v2(unsigned long long *address, size_t size) {
    if (size > TOTAL - taken) return 2;
    char *memory = malloc(size);
    memset(memory, 1, size);
    *address = (unsigned long long)memory;
    taken += size;
    return 0;
}

int cuGetErrorName(int status, const char **text) {
    *text = status == 101 ? "CUDA_ERROR_INVALID_DEVICE" : "CUDA_ERROR_OUT_OF_MEMORY";
    return 0;
}
