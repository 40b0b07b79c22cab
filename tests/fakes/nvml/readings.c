/* Sensors, clocks, memory and processes of the fake driver: an H200 under load. */
#include "fake.h"

/* Readings that the real driver refuses on a MIG instance. */
#define WHOLE_GPU(device) \
    if ((device)->mig >= 0) return NOT_SUPPORTED

#define READING(call, key, value)                 \
    EXPORT int call(Device *d, unsigned *out) {   \
        BEGIN(d);                                 \
        WHOLE_GPU(d);                             \
        *out = NUMBER(d, key, value);             \
        return OK;                                \
    }

READING(nvmlDeviceGetPowerUsage, "power", 350000 + 1000 * d->index)
READING(nvmlDeviceGetEnforcedPowerLimit, "power_limit", 700000)
READING(nvmlDeviceGetPerformanceState, "performance_state", 0)
READING(nvmlDeviceGetPersistenceMode, "persistence_mode", 1)
READING(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", 5)
READING(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", 5)
READING(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
READING(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)

EXPORT int nvmlDeviceGetTemperature(Device *d, unsigned sensor, unsigned *celsius) {
    BEGIN(d);
    WHOLE_GPU(d);
    if (sensor) return INVALID_ARGUMENT;
    *celsius = NUMBER(d, "temperature", 50 + d->index);
    return OK;
}

#ifndef FAKE_OLD
typedef struct { unsigned version; int celsius; } Margin;

EXPORT int nvmlDeviceGetMarginTemperature(Device *d, Margin *margin) {
    BEGIN(d);
    WHOLE_GPU(d);
    if (margin->version != (sizeof *margin | 1 << 24)) return MISMATCH;
    margin->celsius = (int)NUMBER(d, "temperature_margin", 37 - d->index);
    return OK;
}
#endif

EXPORT int nvmlDeviceGetTemperatureThreshold(Device *d, unsigned threshold, unsigned *celsius) {
    static const unsigned limits[] = {92, 89, 95, 87};
    char key[48];
    BEGIN(d);
    WHOLE_GPU(d);
    if (threshold >= sizeof limits / sizeof *limits) return NOT_SUPPORTED;
    snprintf(key, sizeof key, "temperature_threshold.%u", threshold);
    *celsius = NUMBER(d, key, limits[threshold]);
    return code_of(d, key);
}

static const char *const clock_names[] = {"graphics", "sm", "memory", "video"};

EXPORT int nvmlDeviceGetClockInfo(Device *d, unsigned type, unsigned *megahertz) {
    static const unsigned clocks[] = {1755, 1755, 3201, 1500};
    char key[48];
    BEGIN(d);
    WHOLE_GPU(d);
    if (type > 3) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "clock.%s", clock_names[type]);
    *megahertz = NUMBER(d, key, clocks[type]);
    return code_of(d, key);
}

typedef struct { unsigned gpu, memory; } Utilization;

EXPORT int nvmlDeviceGetUtilizationRates(Device *d, Utilization *rates) {
    BEGIN(d);
    WHOLE_GPU(d);
    rates->gpu = NUMBER(d, "utilization", 97);
    rates->memory = NUMBER(d, "memory_utilization", 41);
    return OK;
}

#define MIB (1024ULL * 1024)

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

static unsigned long long memory_total(const Device *d) {
    return NUMBER(d, "memory_total", 143771 * MIB) / (d->mig < 0 ? 1 : 8);
}

static unsigned long long memory_used(const Device *d) {
    return NUMBER(d, "memory_used", 90000 * MIB) / (d->mig < 0 ? 1 : 8);
}

EXPORT int nvmlDeviceGetMemoryInfo(Device *d, Memory *memory) {
    BEGIN(d);
    memory->total = memory_total(d);
    memory->used = memory_used(d) + 600 * MIB; /* version 1 counts what is reserved as used */
    memory->free = memory->total - memory->used;
    return OK;
}

#ifndef FAKE_OLD
EXPORT int nvmlDeviceGetMemoryInfo_v2(Device *d, MemoryV2 *memory) {
    BEGIN(d);
    if (memory->version != (sizeof *memory | 2 << 24)) return MISMATCH;
    memory->total = memory_total(d);
    memory->reserved = 600 * MIB;
    memory->used = memory_used(d);
    memory->free = memory->total - memory->used - memory->reserved;
    return OK;
}
#endif

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} Process;

/* "processes 4242:1073741824,4243:2048" */
static int processes(const Device *d, unsigned *count, Process *out) {
    char text[256];
    unsigned room = *count, found = 0;
    const char *set = control_text(d->index, "processes");
    snprintf(text, sizeof text, "%s", set ? set : "");
    for (char *save, *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        Process one = {0, 0, -1u, -1u};
        if (sscanf(item, "%u:%llu", &one.pid, &one.memory) < 1) continue;
        if (out && found < room) out[found] = one;
        found++;
    }
    *count = found;
    return found > (out ? room : 0) ? INSUFFICIENT_SIZE : OK;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(Device *d, unsigned *count, Process *out) {
    BEGIN(d);
    return processes(d, count, out);
}

#ifndef FAKE_OLD
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, Process *out) {
    BEGIN(d);
    return processes(d, count, out);
}
#endif
