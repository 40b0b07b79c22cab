/* GPU Performance Monitoring of the fake driver.
 *
 * "gpm.2 55.5" is what metric 2 answers, "gpm.2.return 3" its return code.  A metric is an average
 * between two different samples; asked for with samples that were never filled, it is refused.
 */
#ifndef FAKE_OLD
#include "fake.h"

#include <stdlib.h>

typedef struct { double taken; int gpu; } Sample;
typedef struct { unsigned version, supported; } Support;
typedef struct {
    unsigned id, code;
    double value;
    const char *names[3];
} Metric;
typedef struct {
    unsigned version, count;
    Sample *before, *after;
    Metric metrics[];
} Request;

EXPORT int nvmlGpmQueryDeviceSupport(Device *d, Support *support) {
    BEGIN(d);
    support->supported = NUMBER(d, "gpm", 1);
    return OK;
}

EXPORT int nvmlGpmSampleAlloc(Sample **sample) {
    BEGIN(NULL);
    *sample = calloc(1, sizeof **sample);
    return OK;
}

EXPORT int nvmlGpmSampleFree(Sample *sample) {
    BEGIN(NULL);
    free(sample);
    return OK;
}

EXPORT int nvmlGpmSampleGet(Device *d, Sample *sample) {
    BEGIN(d);
    *sample = (Sample){uptime(), d->index};
    return OK;
}

EXPORT int nvmlGpmMigSampleGet(Device *d, unsigned instance, Sample *sample) {
    BEGIN(d);
    if (instance < 7 || instance >= 7 + NUMBER(d, "mig", 0)) return INVALID_ARGUMENT;
    *sample = (Sample){uptime(), d->index};
    return OK;
}

static double usual(unsigned id, const Sample *to) {
    switch (id) {
    case 1: return 99;
    case 2: return 94;
    case 3: return 41;
    case 4: return 12;
    case 5: return 57;
    case 10: return 55;
    case 11: return 0;
    case 12: return 6;
    case 13: return 8;
    case 20: case 21: return 1500;
    case 60: case 61: return 200000;
    case 248: return to->taken * 1e9;
    case 249: return to->taken * 9.4e8;
    default: return -1;
    }
}

EXPORT int nvmlGpmMetricsGet(Request *request) {
    BEGIN(NULL);
    if (request->version != 1) return MISMATCH;
    if (!request->before->taken || request->after->taken <= request->before->taken)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < request->count; i++) {
        Metric *metric = &request->metrics[i];
        char key[48];
        int gpu = request->after->gpu;
        double value = usual(metric->id, request->after);
        snprintf(key, sizeof key, "gpm.%u.return", metric->id);
        metric->code = control_number(gpu, key, value < 0 ? NOT_SUPPORTED : OK);
        snprintf(key, sizeof key, "gpm.%u", metric->id);
        metric->value = control_real(gpu, key, value);
    }
    return OK;
}
#endif
