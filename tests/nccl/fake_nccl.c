/* Calls a profiler plugin as NCCL does: one rank of a ring, with a thread for the program and one
 * for the proxy.  The network between the ranks is a mapped file of counters; with `local:` before
 * its name they share a node, and their GPUs wait for each other without a proxy.
 *
 *     fake_nccl PLUGIN VERSION NETWORK RANK RANKS OPERATIONS [FAULT VICTIM AT]   one rank
 *     fake_nccl PLUGIN VERSION cost                                              ns an event
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../exporters/stagewatch_nccl/interface.h"

enum { CHANNELS = 2, RANKS = 16, WINDOW = 4, CHUNK = 1 << 19 };
enum fault { NONE, NOT_CALLED, NOT_LAUNCHED, NOT_BEGUN, LOST, GPU_STUCK, OTHER_SIZE, NO_BUFFER };

struct wire { /* from a rank to the next one, on one channel: transfers so far */
    _Atomic uint64_t posted, sent, received;
    _Atomic uint64_t begun; /* kernels that the rank's GPU has begun */
};

struct rank {
    struct profiler_5 plugin;
    void *context;
    int version, rank, ranks, local;
    struct wire (*wires)[CHANNELS];
    uint64_t operations;
    /* handed from the program to the proxy, and back */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *launched;
    enum fault fault;
    double until; /* seconds of the monotonic clock: when the fault ends */
    int busy;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void start(struct rank *mine, void **handle, uint64_t type, struct event *event) {
    if (mine->version == 4) event->type_4 = type;
    else event->type = type;
    mine->plugin.start(mine->context, handle, event);
}

static void pause_a_little(void) {
    usleep(200);
}

static void wait_out(const struct rank *mine) {
    while (now() < mine->until) pause_a_little();
}

/* One direction of one channel. */
struct side {
    void *operation, *steps[WINDOW];
    uint64_t posted, moved, done;
};

static void begin_step(struct rank *mine, struct side *side, int state) {
    struct event event = {.parent = side->operation, .rank = mine->rank, .step.step = side->posted};
    void **handle = &side->steps[side->posted++ % WINDOW];
    start(mine, handle, EVENT_STEP, &event);
    if (*handle) mine->plugin.record(*handle, state, NULL);
}

static void state(struct rank *mine, struct side *side, uint64_t step, int state) {
    void *handle = side->steps[step % WINDOW];
    if (handle) mine->plugin.record(handle, state, NULL);
}

static void end_step(struct rank *mine, struct side *side) {
    void *handle = side->steps[side->done++ % WINDOW];
    if (handle) mine->plugin.stop(handle);
}

/* Serve one channel of a ring all-reduce for a moment; whether it is done. */
static int progress(struct rank *mine, struct side *in, struct side *out, int channel,
                    uint64_t steps, uint64_t base, enum fault fault) {
    int before = (mine->rank + mine->ranks - 1) % mine->ranks;
    struct wire *from = &mine->wires[before][channel], *to = &mine->wires[mine->rank][channel];
    int stuck = fault == GPU_STUCK, lost = fault == LOST;
    uint64_t buffers = fault == NO_BUFFER ? steps / 2 : steps;
    while (in->posted < buffers && in->posted < in->done + WINDOW) {
        begin_step(mine, in, STEP_RECEIVE);
        atomic_store(&from->posted, base + in->posted);
    }
    if (in->moved < in->posted && atomic_load(&from->sent) > base + in->moved) {
        state(mine, in, in->moved++, STEP_FLUSH);
        atomic_store(&from->received, base + in->moved);
        state(mine, in, in->moved - 1, STEP_RECEIVE_GPU);
    }
    if (in->done < in->moved && !(stuck && in->done >= steps / 2)) end_step(mine, in);
    while (out->posted < steps && out->posted < out->done + WINDOW)
        begin_step(mine, out, STEP_SEND_GPU);
    int written = out->moved <= in->done && !(stuck && out->moved >= steps / 2);
    if (out->moved < out->posted && written) {
        state(mine, out, out->moved, STEP_SEND_PEER);
        if (atomic_load(&to->posted) > base + out->moved) {
            state(mine, out, out->moved++, STEP_SEND);
        }
    }
    if (out->moved) { /* what was lost is sent again in the end */
        uint64_t gone = lost && out->moved > steps / 2 ? steps / 2 : out->moved;
        if (atomic_load(&to->sent) < base + gone) atomic_store(&to->sent, base + gone);
    }
    int arrived = atomic_load(&to->received) > base + out->done;
    if (out->done < out->moved && arrived) end_step(mine, out);
    return in->done == steps && out->done == steps;
}

/* GPUs of one node wait for each other by their memory. */
static int all_have_begun(struct rank *mine, enum fault fault) {
    int done = fault != GPU_STUCK || now() > mine->until;
    for (int other = 0; other < mine->ranks; other++)
        done &= atomic_load(&mine->wires[other][0].begun) >= mine->operations;
    return done;
}

static void serve(struct rank *mine, void *launched, enum fault fault) {
    void *kernels[CHANNELS] = {0};
    struct side sides[2][CHANNELS] = {0};
    uint64_t steps = 2 * (mine->ranks - 1), base = (mine->operations - 1) * steps;
    if (fault == NOT_BEGUN) wait_out(mine);
    for (int channel = 0; channel < CHANNELS; channel++) {
        struct event event = {.parent = launched, .kernel.channel = channel};
        start(mine, &kernels[channel], EVENT_KERNEL, &event);
        for (int sends = 0; sends < 2 && !mine->local; sends++) {
            int peer = mine->rank + (sends ? 1 : mine->ranks - 1);
            struct proxy what = {getpid(), channel, peer % mine->ranks, steps, CHUNK, sends};
            struct event service = {.parent = launched, .rank = mine->rank, .proxy = what};
            start(mine, &sides[sends][channel].operation, EVENT_PROXY, &service);
        }
    }
    if (mine->wires) atomic_store(&mine->wires[mine->rank][0].begun, mine->operations);
    for (int done = 0; !done && mine->wires; pause_a_little()) {
        done = !mine->local || all_have_begun(mine, fault);
        if (mine->local) continue;
        for (int channel = 0; channel < CHANNELS; channel++)
            done &= progress(mine, &sides[0][channel], &sides[1][channel], channel, steps, base,
                             now() < mine->until ? fault : NONE);
    }
    for (int channel = 0; channel < CHANNELS; channel++) {
        for (int sends = 0; sends < 2; sends++)
            if (sides[sends][channel].operation) mine->plugin.stop(sides[sends][channel].operation);
        if (kernels[channel]) mine->plugin.stop(kernels[channel]);
    }
}

static void *proxy_thread(void *given) {
    struct rank *mine = given;
    for (;;) {
        pthread_mutex_lock(&mine->lock);
        while (!mine->busy) pthread_cond_wait(&mine->changed, &mine->lock);
        void *launched = mine->launched;
        enum fault fault = mine->fault;
        pthread_mutex_unlock(&mine->lock);
        serve(mine, launched, fault);
        pthread_mutex_lock(&mine->lock);
        mine->busy = 0;
        pthread_cond_broadcast(&mine->changed);
        pthread_mutex_unlock(&mine->lock);
    }
    return NULL;
}

/* One all-reduce, to its end; the fault ends after so many seconds. */
void fake_all_reduce(struct rank *mine, uint64_t elements, int fault, double seconds) {
    void *group = NULL, *launched = NULL;
    struct event event = {0};
    mine->operations++;
    mine->until = now() + seconds;
    if (fault == NOT_CALLED) wait_out(mine);
    if (mine->version > 4) start(mine, &group, EVENT_GROUP, &event);
    if (fault == NOT_LAUNCHED) wait_out(mine);
    struct collective call = {mine->operations, "AllReduce",
                              NULL,             NULL,
                              elements + 8 * (fault == OTHER_SIZE), 0,
                              "ncclBfloat16"};
    event = (struct event){.rank = mine->rank, .collective = call};
    start(mine, &launched, EVENT_COLLECTIVE, &event);
    if (launched) mine->plugin.stop(launched);
    if (group) mine->plugin.stop(group);
    pthread_mutex_lock(&mine->lock);
    mine->launched = launched;
    mine->fault = fault == OTHER_SIZE ? GPU_STUCK : fault;
    mine->busy = 1;
    pthread_cond_broadcast(&mine->changed);
    while (mine->busy) pthread_cond_wait(&mine->changed, &mine->lock);
    pthread_mutex_unlock(&mine->lock);
}

static int no_init(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks,
                   int rank, logger log) {
    (void)context, (void)id, (void)mask, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;
    return SUCCESS;
}

static int no_start(void *context, void **handle, const struct event *event) {
    (void)context, (void)event;
    *handle = NULL;
    return SUCCESS;
}

static int no_stop(void *handle) {
    (void)handle;
    return SUCCESS;
}

static int no_record(void *handle, int state, const void *arguments) {
    (void)handle, (void)state, (void)arguments;
    return SUCCESS;
}

/* Load a plugin and make a communicator of all ranks; NULL where it has not that version, of which
 * 0 means to go without. */
struct rank *fake_init(const char *plugin, int version, const char *network, int rank, int ranks) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    static const struct profiler_5 nothing = {"none", no_init, no_start, no_stop, no_record, no_stop};
    const void *found = version && library ? dlsym(library, symbol) : version ? NULL : &nothing;
    struct rank *mine = calloc(1, sizeof *mine);
    mine->version = version;
    mine->rank = rank;
    mine->ranks = ranks;
    mine->local = !strncmp(network, "local:", 6);
    network += 6 * mine->local;
    pthread_mutex_init(&mine->lock, NULL);
    pthread_cond_init(&mine->changed, NULL);
    if (!found) {
        free(mine);
        return NULL;
    }
    mine->plugin = *(const struct profiler_5 *)found;
    if (*network) {
        int fd = open(network, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        size_t size = sizeof(struct wire) * RANKS * CHANNELS;
        if (fd < 0 || ftruncate(fd, size)) abort();
        mine->wires = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mine->wires == MAP_FAILED) abort();
    }
    int mask = 0;
    uint64_t id = 0x5eed0000c0ffee01;
    const struct profiler_4 *old = found;
    if (version == 4) old->init(&mine->context, &mask, "world", id, 2, ranks, rank, NULL);
    else mine->plugin.init(&mine->context, id, &mask, "world", 2, ranks, rank, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, proxy_thread, mine);
    pthread_detach(thread);
    return mine;
}

static void both(struct rank *mine, void **handle, uint64_t type, struct event *event) {
    start(mine, handle, type, event);
    mine->plugin.stop(*handle);
}

/* Nanoseconds that an event of each kind takes. */
static void cost(struct rank *mine) {
    enum { TIMES = 2000000 };
    void *operation, *kernel, *service, *step = NULL, *group;
    struct collective call = {1, "AllReduce", NULL, NULL, 1 << 20, 0, "ncclBfloat16"};
    struct proxy what = {getpid(), 3, 1, 14, CHUNK, 1};
    double spent[6] = {0}, begun;
    for (int part = 0; part < 6; part++) {
        struct event event = {.collective = call};
        start(mine, &operation, EVENT_COLLECTIVE, &event);
        event = (struct event){.parent = operation, .proxy = what};
        start(mine, &service, EVENT_PROXY, &event);
        struct event of_kernel = {.parent = operation, .kernel.channel = 3};
        struct event of_step = {.parent = service};
        begun = now();
        for (int time = 0; time < TIMES; time++) {
            event = (struct event){.collective = call};
            struct event proxy = {.parent = operation, .proxy = what};
            of_step.step.step = time;
            switch (part) {
            case 0: both(mine, &operation, EVENT_COLLECTIVE, &event); break;
            case 1: both(mine, &kernel, EVENT_KERNEL, &of_kernel); break;
            case 2: both(mine, &kernel, EVENT_PROXY, &proxy); break;
            case 3: both(mine, &step, EVENT_STEP, &of_step); break;
            case 4:
                mine->plugin.record(step, STEP_RECEIVE, NULL);
                mine->plugin.record(step, STEP_SEND, NULL);
                break;
            case 5: both(mine, &group, EVENT_GROUP, &event);
            }
        }
        spent[part] = 1e9 * (now() - begun) / TIMES / 2;
        mine->plugin.stop(service);
    }
    const char *names[] = {"operation", "kernel", "proxy operation", "transfer", "state", "group"};
    for (int part = 0; part < 6; part++) printf("%s %.1f\n", names[part], spent[part]);
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int version = atoi(words[2]), costs = !strcmp(words[3], "cost");
    int rank = costs ? 0 : atoi(words[4]), ranks = costs ? 8 : atoi(words[5]);
    struct rank *mine = fake_init(words[1], version, costs ? "" : words[3], rank, ranks);
    if (!mine) {
        puts("no profiler");
        return 0;
    }
    if (costs) {
        cost(mine);
        return 0;
    }
    int struck = count > 9 && atoi(words[8]) == rank ? atoi(words[9]) : 0;
    for (int at = 1; at <= atoi(words[6]); at++) {
        fake_all_reduce(mine, 1 << 20, at == struck ? atoi(words[7]) : NONE, 1e9);
        printf("%d\n", at);
        fflush(stdout);
    }
    mine->plugin.finalize(mine->context);
    return 0;
}
