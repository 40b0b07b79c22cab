/* Memory errors, row remapping, NVLink, fabric and throttling of the fake driver. */
#include "fake.h"

#define WHOLE_GPU(device) \
    if ((device)->mig >= 0) return NOT_SUPPORTED

EXPORT int nvmlDeviceGetMemoryErrorCounter(Device *d, unsigned kind, unsigned scope, unsigned place,
                                           unsigned long long *count) {
    static const char *const kinds[] = {"corrected", "uncorrected"};
    static const char *const scopes[] = {"volatile", "aggregate"};
    char key[64];
    BEGIN(d);
    WHOLE_GPU(d);
    if (kind > 1 || scope > 1) return INVALID_ARGUMENT;
    if (place != 2 && place != 7) return NOT_SUPPORTED;
    snprintf(key, sizeof key, "ecc.%s.%s.%s", place == 2 ? "dram" : "sram", kinds[kind],
             scopes[scope]);
    *count = NUMBER(d, key, 0);
    return code_of(d, key);
}

typedef struct { unsigned max, high, partial, low, none; } Rows;

EXPORT int nvmlDeviceGetRowRemapperHistogram(Device *d, Rows *rows) {
    BEGIN(d);
    WHOLE_GPU(d);
    *rows = (Rows){NUMBER(d, "banks.max", 2559), NUMBER(d, "banks.high", 1),
                   NUMBER(d, "banks.partial", 0), NUMBER(d, "banks.low", 0),
                   NUMBER(d, "banks.none", 0)};
    return OK;
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, unsigned long long *reasons) {
    BEGIN(d);
    WHOLE_GPU(d);
    *reasons = NUMBER(d, "throttle", 0);
    return OK;
}

EXPORT int nvmlDeviceGetNvLinkState(Device *d, unsigned link, unsigned *active) {
    char key[32];
    BEGIN(d);
    WHOLE_GPU(d);
    uint64_t links = NUMBER(d, "nvlinks", 18);
    if (!links) return NOT_SUPPORTED;
    if (link >= links) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "nvlink.%u", link);
    *active = NUMBER(d, key, 1);
    return OK;
}

#ifndef FAKE_OLD
typedef struct {
    unsigned version;
    unsigned long long counts[11];
    unsigned exceeded;
} SramStatus;

EXPORT int nvmlDeviceGetSramEccErrorStatus(Device *d, SramStatus *status) {
    BEGIN(d);
    WHOLE_GPU(d);
    if (status->version != (sizeof *status | 1 << 24)) return MISMATCH;
    status->exceeded = NUMBER(d, "sram_threshold", 0);
    return OK;
}

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique, state, health;
} Fabric;

EXPORT int nvmlDeviceGetGpuFabricInfoV(Device *d, Fabric *fabric) {
    BEGIN(d);
    WHOLE_GPU(d);
    if (fabric->version != (sizeof *fabric | 2 << 24)) return MISMATCH;
    fabric->state = NUMBER(d, "fabric.state", 3);
    fabric->status = NUMBER(d, "fabric.status", 0);
    fabric->health = NUMBER(d, "fabric.health", 0xaa);
    fabric->clique = 0;
    return OK;
}
#endif
