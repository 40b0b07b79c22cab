/* nvmlDeviceGetFieldValues: what an H200 with four NVLink generations' worth of fields answers. */
#include "fake.h"

#include <math.h>
#include <stdlib.h>

enum { DOUBLE, UINT, ULONG, ULONGLONG, LONGLONG, INT, USHORT };

typedef struct {
    uint32_t id, scope;
    int64_t timestamp, latency;
    uint32_t type, code;
    union {
        double real;
        uint32_t number32;
        uint64_t number64;
        uint16_t number16;
    } value;
} Field;

/* What is not listed is not supported.  Counters rise by `rate` a second. */
static const struct {
    uint32_t id, type;
    double value, rate;
} answers[] = {
    {29, ULONGLONG, 0, 0},
    {30, ULONGLONG, 0, 0},
    {31, UINT, 0, 0},
    {38, ULONGLONG, 3, 0},
    {45, ULONGLONG, 0, 0},
    {52, ULONGLONG, 2, 0},
    {59, ULONGLONG, 1, 0},
    {74, ULONGLONG, 5e9, 1e8},
    {75, ULONGLONG, 2e9, 0},
    {76, ULONGLONG, 0, 0},
    {77, ULONGLONG, 0, 0},
    {78, ULONGLONG, 0, 0},
    {79, ULONGLONG, 0, 0},
    {82, UINT, 61, 0},
    {83, ULONGLONG, 1e9, 350000},
    {94, UINT, 4, 0},
    {138, ULONGLONG, 1000000, 2e6},
    {139, ULONGLONG, 1100000, 2e6},
    {142, UINT, 1, 0},
    {143, UINT, 0, 0},
    {144, UINT, 0, 0},
    {145, UINT, 0, 0},
    {193, INT, -8, 0},
    {194, INT, -2, 0},
    {195, INT, 0, 0},
    {196, INT, 0, 0},
    {197, ULONGLONG, 123456789, 1e6},
    {198, ULONGLONG, 223456789, 1e6},
    {230, UINT, 0, 0},
    {252, ULONGLONG, 1.5e9, 0},
    {253, ULONGLONG, 0, 0},
    {270, ULONGLONG, 1.5e9, 0},
    {271, ULONGLONG, 0, 0},
};

/* As a test says: "field.82 91", "field.82.type 1", "field.82.return 3". */
static void answer(const Device *d, Field *field) {
    char key[48];
    int known = -1;
    for (int i = 0; i < (int)(sizeof answers / sizeof *answers); i++)
        if (answers[i].id == field->id) known = i;
    snprintf(key, sizeof key, "field.%u.type", field->id);
    field->type = NUMBER(d, key, known < 0 ? ULONGLONG : answers[known].type);
    snprintf(key, sizeof key, "field.%u.return", field->id);
    field->code = NUMBER(d, key, known < 0 ? NOT_SUPPORTED : OK);
    snprintf(key, sizeof key, "field.%u", field->id);
    const char *set = control_text(d->index, key);
    if (set && known < 0) field->code = OK;
    double usual = known < 0 ? 0 : answers[known].value + answers[known].rate * uptime();
    field->timestamp = 0;
    if (field->type == DOUBLE)
        field->value.real = set ? strtod(set, NULL) : usual;
    else
        field->value.number64 = set ? control_number(d->index, key, 0) : (uint64_t)(int64_t)usual;
}

EXPORT int nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    BEGIN(d);
    if (d->mig >= 0) return NOT_SUPPORTED;
    for (int i = 0; i < count; i++) answer(d, &fields[i]);
    return OK;
}
