/* What NCCL calls in a profiler plugin: the fields that this plugin reads, at their offsets.
 *
 * Written after NCCL's documentation of its profiler interface (plugins/profiler/README.md) for
 * versions 4 (NCCL 2.27), 5 (2.28) and 6 (2.29 and 2.30).  A descriptor of an event begins with its
 * type, a byte in version 4 and eight bytes since; all else that is read here lies where it lay.
 */
#ifndef STAGEWATCH_NCCL_INTERFACE_H
#define STAGEWATCH_NCCL_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

enum { SUCCESS = 0 };

enum { LOG_WARN = 2, LOG_INFO = 3, SUBSYSTEM_PROFILE = 16384 };

typedef void (*logger)(int level, unsigned long subsystem, const char *file, int line,
                       const char *format, ...);

/* Kinds of events, a bit each. */
enum {
    EVENT_COLLECTIVE = 1 << 1, /* a kernel with a collective has been launched */
    EVENT_MESSAGE = 1 << 2,    /* the same of a send or a receive */
    EVENT_PROXY = 1 << 3,      /* the proxy thread serves one channel with one peer */
    EVENT_STEP = 1 << 4,       /* one transfer of those */
    EVENT_KERNEL = 1 << 6,     /* the kernel is at work on one channel */
    EVENT_GROUP = 1 << 8       /* the program is inside of NCCL's call (since version 5) */
};

/* States of a transfer, as NCCL numbers them. */
enum {
    STEP_SEND_GPU = 8,    /* the GPU has not written yet what is to be sent */
    STEP_SEND = 9,        /* the network has it, and has not said that it is sent */
    STEP_RECEIVE = 10,    /* nothing has come yet */
    STEP_FLUSH = 11,      /* it has come, and is on its way to the GPU's memory */
    STEP_RECEIVE_GPU = 12, /* the GPU has not read it yet */
    STEP_SEND_PEER = 20   /* the peer has not said yet where it may be sent to */
};

struct collective {
    uint64_t sequence; /* counted by function */
    const char *function;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
};

struct message {
    const char *function;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
};

struct proxy {
    int pid; /* whose operation it is: with PXN another process may serve it */
    uint8_t channel;
    int peer;
    int steps;
    int chunk;
    int sends;
};

struct event {
    union {
        uint8_t type_4;
        uint64_t type;
    };
    void *parent;
    int rank;
    union {
        struct collective collective;
        struct message message;
        struct proxy proxy;
        struct {
            int step;
        } step;
        struct {
            uint8_t channel;
            uint64_t timer;
        } kernel;
    };
};

typedef int (*start_event)(void *context, void **handle, const struct event *event);
typedef int (*stop_event)(void *handle);
typedef int (*record_state)(void *handle, int state, const void *arguments);
typedef int (*finalize_communicator)(void *context);

struct profiler_4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks,
                int rank, logger log);
    start_event start;
    stop_event stop;
    record_state record;
    finalize_communicator finalize;
};

struct profiler_5 {
    const char *name;
    int (*init)(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks,
                int rank, logger log);
    start_event start;
    stop_event stop;
    record_state record;
    finalize_communicator finalize;
};

_Static_assert(offsetof(struct event, collective) == 24, "as NCCL has it");
_Static_assert(offsetof(struct event, collective.datatype) == 24 + 48, "as NCCL has it");
_Static_assert(offsetof(struct event, message.peer) == 24 + 32, "as NCCL has it");
_Static_assert(offsetof(struct event, proxy.sends) == 24 + 20, "as NCCL has it");

#endif
