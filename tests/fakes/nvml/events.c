/* NVML events of the fake driver: each change of "xid.SEQUENCE NUMBER" is announced once.
 *
 * "gpu.3.xid.0 79", later "gpu.3.xid.1 13": sequence numbers begin at 0 for each GPU and have no
 * gaps.
 */
#include "fake.h"

#include <unistd.h>

typedef struct { int registered[MAX_GPUS]; uint64_t next[MAX_GPUS]; } Set;
typedef struct {
    Device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} Event;

static Set only;

EXPORT int nvmlEventSetCreate(Set **set) {
    BEGIN(NULL);
    memset(only.registered, 0, sizeof only.registered);
    *set = &only;
    return OK;
}

EXPORT int nvmlEventSetFree(Set *set) {
    (void)set;
    BEGIN(NULL);
    return OK;
}

EXPORT int nvmlDeviceGetSupportedEventTypes(Device *d, unsigned long long *types) {
    BEGIN(d);
    *types = NUMBER(d, "event_types", 0xf);
    return OK;
}

EXPORT int nvmlDeviceRegisterEvents(Device *d, unsigned long long types, Set *set) {
    (void)types;
    BEGIN(d);
    set->registered[d->index] = 1;
    return OK;
}

EXPORT int nvmlEventSetWait_v2(Set *set, Event *event, unsigned milliseconds) {
    BEGIN(NULL);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        char key[64];
        snprintf(key, sizeof key, "gpu.%d.xid.%llu", gpu, (unsigned long long)set->next[gpu]);
        Device *device = NULL;
        for (int i = 0; device_at(i); i++)
            if (device_at(i)->index == gpu) device = device_at(i);
        if (!set->registered[gpu] || !device || !control_has(-1, key)) continue;
        *event = (Event){device, 8, control_number(-1, key, 0), -1u, -1u};
        set->next[gpu]++;
        return OK;
    }
    usleep(milliseconds * 1000);
    return TIMEOUT;
}
