/* Start, enumeration, identity and MIG instances of the fake driver. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static Device gpus[MAX_GPUS];
static Device instances[MAX_GPUS][MAX_MIG];
static int started, gpu_count, device_file = -1;
static int present[MAX_GPUS]; /* which GPU is at each index */
static double loaded_at;

static double monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

__attribute__((constructor)) static void load(void) {
    loaded_at = monotonic();
    for (int i = 0; i < MAX_GPUS; i++) {
        gpus[i] = (Device){i, -1};
        for (int m = 0; m < MAX_MIG; m++) instances[i][m] = (Device){i, m};
    }
}

double uptime(void) { return monotonic() - loaded_at; }

Device *device_at(int index) {
    return index >= 0 && index < gpu_count ? &gpus[present[index]] : NULL;
}

static void pause_microseconds(uint64_t microseconds) {
    struct timespec left = {microseconds / 1000000, (microseconds % 1000000) * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

static void log_call(const char *call, const Device *device) {
    const char *path = getenv("FAKE_NVML_LOG");
    if (!path) return;
    char line[128];
    int length = snprintf(line, sizeof line, "%s %d\n", call, device ? device->index : -1);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (write(file, line, length) < 0) perror(path);
    close(file);
}

int enter(const char *call, const Device *device) {
    char key[128];
    int gpu = device ? device->index : -1;
    log_call(call, device);
    snprintf(key, sizeof key, "spin.%s", call);
    for (double until = monotonic() + control_number(gpu, key, 0) / 1e6; monotonic() < until;) {}
    snprintf(key, sizeof key, "delay.%s", call);
    uint64_t delay = control_number(gpu, key, 0);
    if (delay) pause_microseconds(delay); /* even a pause of none takes 50 us */
    snprintf(key, sizeof key, "hang.%s", call);
    while (control_number(gpu, key, 0)) pause_microseconds(5000);
    if (!started && strncmp(call, "nvmlInit", 8)) return UNINITIALIZED;
    if (device && control_number(gpu, "lost", 0)) return GPU_IS_LOST;
    snprintf(key, sizeof key, "return.%s", call);
    return (int)control_number(gpu, key, OK);
}

int code_of(const Device *device, const char *key) {
    char own[160];
    snprintf(own, sizeof own, "%s.return", key);
    return (int)NUMBER(device, own, OK);
}

/* The real driver keeps /dev/nvidia* open; here a lock on a file says that somebody does. */
static void open_device(void) {
    const char *path = getenv("FAKE_NVML_DEVICE");
    if (!path || device_file >= 0) return;
    device_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (device_file >= 0 && flock(device_file, LOCK_SH)) perror(path);
}

/* As in the real one, GPUs are enumerated here and never again until the next start.  "gone 3" is a
 * GPU that is not on the bus any more, so that those behind it move up. */
static int start(void) {
    int wanted = (int)control_number(-1, "count", 8);
    int gone = (int)control_number(-1, "gone", MAX_GPUS);
    open_device();
    gpu_count = 0;
    for (int gpu = 0; gpu < wanted && gpu < MAX_GPUS; gpu++)
        if (gpu != gone) present[gpu_count++] = gpu;
    started++;
    return OK;
}

EXPORT int nvmlInit_v2(void) {
    BEGIN(NULL);
    return start();
}

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    BEGIN(NULL);
    return start();
}

EXPORT int nvmlShutdown(void) {
    BEGIN(NULL);
    if (!--started && device_file >= 0) {
        close(device_file);
        device_file = -1;
    }
    return OK;
}

EXPORT const char *nvmlErrorString(int code) {
    return code == GPU_IS_LOST ? "GPU is lost" : "error of the fake driver";
}

static int put(char *out, unsigned size, const char *text) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return OK;
}

static int put_text(const Device *d, const char *key, const char *fallback, char *out, unsigned n) {
    const char *text = control_text(d ? d->index : -1, key);
    return put(out, n, text ? text : fallback);
}

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    BEGIN(NULL);
    return put_text(NULL, "driver", "570.86.15", out, size);
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN(NULL);
    *count = gpu_count;
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    Device *found = device_at((int)index);
    if (!found) return started ? INVALID_ARGUMENT : UNINITIALIZED;
    BEGIN(found);
    *device = found;
    return OK;
}

EXPORT int nvmlDeviceGetName(Device *d, char *out, unsigned size) {
    BEGIN(d);
    char text[96], full[160];
    if (put_text(d, "name", "NVIDIA H200", text, sizeof text)) return INSUFFICIENT_SIZE;
    snprintf(full, sizeof full, "%s%s", text, d->mig < 0 ? "" : " MIG 1g.18gb");
    return put(out, size, full);
}

EXPORT int nvmlDeviceGetUUID(Device *d, char *out, unsigned size) {
    BEGIN(d);
    char text[96];
    const char *set = d->mig < 0 ? control_text(d->index, "uuid") : NULL;
    if (set) return put(out, size, set);
    snprintf(text, sizeof text, "%s-fa4e0000-0000-4000-8000-%06x%06x", d->mig < 0 ? "GPU" : "MIG",
             d->mig + 1, d->index);
    return put(out, size, text);
}

EXPORT int nvmlDeviceGetSerial(Device *d, char *out, unsigned size) {
    BEGIN(d);
    char text[32];
    snprintf(text, sizeof text, "165000000000%d", d->index);
    return put_text(d, "serial", text, out, size);
}

EXPORT int nvmlDeviceGetVbiosVersion(Device *d, char *out, unsigned size) {
    BEGIN(d);
    return put_text(d, "vbios", "96.00.BC.00.01", out, size);
}

EXPORT int nvmlDeviceGetMinorNumber(Device *d, unsigned *minor) {
    BEGIN(d);
    *minor = NUMBER(d, "minor", d->index);
    return OK;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

EXPORT int nvmlDeviceGetPciInfo_v3(Device *d, PciInfo *pci) {
    BEGIN(d);
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x1b + 0x10 * d->index;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    return OK;
}

EXPORT int nvmlDeviceGetMigMode(Device *d, unsigned *current, unsigned *pending) {
    BEGIN(d);
    *current = *pending = NUMBER(d, "mig", 0) > 0;
    return OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(Device *d, unsigned *count) {
    BEGIN(d);
    *count = MAX_MIG;
    return OK;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, unsigned index, Device **instance) {
    BEGIN(d);
    if (index >= NUMBER(d, "mig", 0) || index >= MAX_MIG) return NOT_FOUND;
    *instance = &instances[d->index][index];
    return OK;
}

EXPORT int nvmlDeviceGetGpuInstanceId(Device *d, unsigned *id) {
    BEGIN(d);
    *id = d->mig + 7;
    return d->mig < 0 ? NOT_SUPPORTED : OK;
}

EXPORT int nvmlDeviceGetComputeInstanceId(Device *d, unsigned *id) {
    BEGIN(d);
    *id = 0;
    return d->mig < 0 ? NOT_SUPPORTED : OK;
}
