/* Calls that this project does not make and other exporters do, so that they can run beside it. */
#include "fake.h"

EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
    BEGIN(NULL);
    *version = 12080;
    return OK;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    BEGIN(NULL);
    *version = 12080;
    return OK;
}

EXPORT int nvmlDeviceGetPowerManagementLimit(Device *d, unsigned *milliwatts) {
    BEGIN(d);
    *milliwatts = NUMBER(d, "power_limit", 700000);
    return d->mig < 0 ? OK : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetFanSpeed(Device *d, unsigned *percent) {
    BEGIN(d);
    *percent = 0;
    return NOT_SUPPORTED; /* the boards have no fan of their own */
}

EXPORT int nvmlDeviceGetPcieThroughput(Device *d, unsigned direction, unsigned *kib_per_second) {
    (void)direction;
    BEGIN(d);
    *kib_per_second = NUMBER(d, "pcie_throughput", 1500 * 1024);
    return d->mig < 0 ? OK : NOT_SUPPORTED;
}
