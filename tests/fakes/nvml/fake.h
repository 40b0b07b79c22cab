/* What the parts of the fake driver share.  Types follow nvml.h of the CUDA toolkit. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include "control.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    MISMATCH = 25,
};

#define MAX_GPUS 16
#define MAX_MIG 7

/* A GPU, or with mig >= 0 one of its MIG instances. */
typedef struct {
    int index;
    int mig;
} Device;

/* What every call does first: count, delay, hang, fail or find its GPU lost, as the test says. */
int enter(const char *call, const Device *device);

/* What a call says of one of its arguments alone: "ecc.sram.corrected.volatile.return 3". */
int code_of(const Device *device, const char *key);

/* Seconds since the library was loaded, at whose beginning all counters stand. */
double uptime(void);

Device *device_at(int index);

#define BEGIN(device)                                   \
    do {                                                \
        int refused_ = enter(__func__, (device));       \
        if (refused_) return refused_;                  \
    } while (0)

#define EXPORT __attribute__((visibility("default")))

#define NUMBER(device, key, fallback) control_number((device)->index, (key), (fallback))

#endif
