/* A profiler plugin for NCCL that keeps what each communicator has open in a mapped file.
 *
 * It counts and times nothing.  An event is at most two stores into the file: no lock, no system
 * call, no allocation.  The file outlives the process, so whoever is killed leaves it as it was.
 * A handle is no pointer but says itself what it is of, so that none can dangle.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interface.h"
#include "layout.h"

#define PUBLIC __attribute__((visibility("default")))

/* What a handle is of, in its highest byte; then the communicator's place in a byte. */
enum { OPERATION = 1, KERNEL, SERVICE, STEP, GROUP, OTHER };

enum { PROBES = 8 };

struct communicator {
    struct block *block;
    _Atomic uint64_t next; /* as `number` of an operation */
};

static struct communicator communicators[COMMUNICATORS];
static struct file *shared;
static char path[4096];
static int owner; /* the process that has made the file: a fork is another one */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static const char *const KINDS[] = {"?",      "AllGather",     "AllReduce", "Broadcast",
                                    "Reduce", "ReduceScatter", "Send",      "Recv",
                                    "AlltoAll", "Gather",      "Scatter"};

#define put(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
#define get(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)

/* ---- Handles -------------------------------------------------------------------------------- */

static void *handle(uint64_t what, uint64_t place, uint64_t part, uint32_t number) {
    return (void *)(uintptr_t)(what << 56 | place << 48 | (part & 0xffff) << 32 | number);
}

static uint64_t what_of(uint64_t handle) { return handle >> 56; }

static struct block *block_of(uint64_t handle) {
    return communicators[handle >> 48 & (COMMUNICATORS - 1)].block;
}

static uint32_t part_of(uint64_t handle) { return handle >> 32 & 0xffff; }

/* ---- Operations ----------------------------------------------------------------------------- */

static uint64_t kind_of(const char *function) {
    for (uint64_t kind = 1; function && kind < sizeof KINDS / sizeof *KINDS; kind++)
        if (!strcmp(function, KINDS[kind])) return kind;
    return 0;
}

/* Bytes of an element, from the bits in the name of its type (`ncclBfloat16`). */
static uint64_t size_of(const char *datatype) {
    while (datatype && *datatype && (*datatype < '0' || *datatype > '9')) datatype++;
    int bits = datatype && *datatype ? atoi(datatype) : 8;
    return bits >= 8 && bits <= 64 ? bits / 8 : 1;
}

static void *begin(struct communicator *mine, const char *function, uint64_t bytes, int peer,
                   uint64_t collective) {
    uint64_t more = 1ull << 32 | collective;
    uint64_t number = atomic_fetch_add_explicit(&mine->next, more, memory_order_relaxed) + more;
    uint32_t ordinal = number >> 32;
    struct operation *slot = &mine->block->operations[ordinal % OPERATIONS];
    uint64_t lap = ordinal / OPERATIONS & 0xf, most = (1ull << 40) - 1;
    uint64_t with = peer >= 0 && peer < 0xffff ? peer : 0xffff;
    bytes = bytes < most ? bytes : most;
    put(slot->what, with << 48 | lap << 44 | kind_of(function) << 40 | bytes);
    put(slot->number, number);
    return handle(OPERATION, mine - communicators, 0, ordinal);
}

/* ---- What the proxy thread does ------------------------------------------------------------- */

/* A place for a service, the same one each time as far as possible; only the communicator's proxy
 * thread comes here. */
static void *serve(struct communicator *mine, const struct proxy *proxy, uint64_t parent) {
    if (proxy->pid != owner || what_of(parent) != OPERATION) return NULL;
    uint64_t peer = proxy->peer & 0xffffff, channel = proxy->channel % CHANNELS;
    uint64_t key = peer << 8 | channel << 1 | !!proxy->sends;
    uint32_t first = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 40);
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        uint32_t at = (first + probe) % PROXIES;
        struct service *slot = &mine->block->proxies[at];
        if (get(slot->of)) continue;
        put(slot->progress, (uint32_t)proxy->steps);
        put(slot->of, parent << 32 | key);
        return handle(SERVICE, mine - communicators, at, 0);
    }
    __atomic_fetch_add(&shared->dropped, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void note(struct service *service, uint32_t step, int state) {
    uint8_t *place = &service->states[step % WINDOW];
    if (get(*place) != state) put(*place, (uint8_t)state);
}

/* ---- What NCCL calls ------------------------------------------------------------------------ */

static int start(void *context, void **result, const struct event *event, uint64_t type) {
    struct communicator *mine = context;
    *result = NULL;
    if (!mine) return SUCCESS;
    uint64_t place = mine - communicators, parent = (uintptr_t)event->parent;
    const struct collective *call = &event->collective;
    const struct message *message = &event->message;
    switch (type) {
    case EVENT_COLLECTIVE:
        *result = begin(mine, call->function, call->count * size_of(call->datatype), -1, 1);
        break;
    case EVENT_MESSAGE:
        *result = begin(mine, message->function, message->count * size_of(message->datatype),
                        message->peer, 0);
        break;
    case EVENT_KERNEL:
        if (what_of(parent) != OPERATION) break;
        put(mine->block->channels[event->kernel.channel % CHANNELS].begun, (uint32_t)parent);
        *result = handle(KERNEL, place, event->kernel.channel, (uint32_t)parent);
        break;
    case EVENT_PROXY:
        *result = serve(mine, &event->proxy, parent);
        break;
    case EVENT_STEP:
        if (what_of(parent) == SERVICE)
            *result = handle(STEP, place, part_of(parent), (uint32_t)event->step.step);
        break;
    case EVENT_GROUP:
        put(mine->block->inside, 1);
        *result = handle(GROUP, place, 0, 0);
        break;
    default: /* NCCL counts captured collectives alike on all ranks only if these have a handle */
        *result = handle(OTHER, place, 0, 0);
    }
    return SUCCESS;
}

static int start_4(void *context, void **result, const struct event *event) {
    return start(context, result, event, event->type_4);
}

static int start_5(void *context, void **result, const struct event *event) {
    return start(context, result, event, event->type);
}

static int stop(void *pointer) {
    uint64_t mine = (uintptr_t)pointer;
    struct block *block = pointer ? block_of(mine) : NULL;
    if (!block) return SUCCESS;
    struct service *service = &block->proxies[part_of(mine) % PROXIES];
    switch (what_of(mine)) {
    case KERNEL:
        put(block->channels[part_of(mine) % CHANNELS].done, (uint32_t)mine);
        break;
    case STEP:
        note(service, (uint32_t)mine, 0);
        put(service->progress, (mine + 1) << 32 | (uint32_t)get(service->progress));
        break;
    case SERVICE:
        put(service->of, 0);
        break;
    case GROUP:
        put(block->inside, 0);
    }
    return SUCCESS;
}

static int record(void *pointer, int state, const void *arguments) {
    uint64_t mine = (uintptr_t)pointer;
    (void)arguments;
    if (pointer && what_of(mine) == STEP)
        note(&block_of(mine)->proxies[part_of(mine) % PROXIES], (uint32_t)mine, state);
    return SUCCESS;
}

static int finalize(void *context) {
    struct communicator *mine = context;
    if (mine && mine->block) put(mine->block->open, 0);
    return SUCCESS;
}

/* ---- The file ------------------------------------------------------------------------------- */

/* Whether nobody but this user and root could replace files there. */
static int fit(const char *directory) {
    struct statx status; /* lstat of a newer C library is not in that of RHEL 8 */
    if (statx(AT_FDCWD, directory, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &status)) return 0;
    int own = status.stx_uid == geteuid() || status.stx_uid == 0;
    int loose = status.stx_mode & (S_IWOTH | S_IWGRP) && !(status.stx_mode & S_ISVTX);
    return S_ISDIR(status.stx_mode) && own && !loose;
}

/* Where the client keeps its record: see stagewatch/places.py. */
static int find(char *directory, size_t size) {
    const char *named = getenv("STAGEWATCH_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
    if (named && *named) return snprintf(directory, size, "%s", named) < (int)size;
    snprintf(directory, size, "/run/stagewatch/ranks");
    if (fit(directory) && !access(directory, W_OK)) return 1;
    if (runtime && *runtime == '/') {
        int length = snprintf(directory, size, "%s/stagewatch", runtime);
        if (length < (int)size && fit(directory)) return 1;
    }
    snprintf(directory, size, "/dev/shm/stagewatch-%u", geteuid());
    return fit(directory);
}

/* The device that NCCL must use, if it may use one alone. */
static void name_network(char *name) {
    const char *only = getenv("NCCL_IB_HCA");
    if (only && *only == '=') only++;
    if (only && *only && !strpbrk(only, "^,")) {
        snprintf(name, NAME, "%.*s", (int)strcspn(only, ":"), only);
        return;
    }
    DIR *devices = only && *only ? NULL : opendir("/sys/class/infiniband");
    for (struct dirent *one; devices && (one = readdir(devices));) {
        if (*one->d_name == '.') continue;
        if (*name) {
            *name = 0;
            break;
        }
        snprintf(name, NAME, "%.31s", one->d_name);
    }
    if (devices) closedir(devices);
}

static int map(int version) {
    char directory[4000];
    uint32_t any;
    if (!find(directory, sizeof directory)) return 0;
    if (getrandom(&any, sizeof any, 0) != sizeof any) return 0;
    snprintf(path, sizeof path, "%s/%d-%08x.nccl", directory, (int)getpid(), any);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return 0;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    void *place = MAP_FAILED;
    if (!posix_fallocate(fd, 0, sizeof *shared) && !fcntl(fd, F_SETLK, &whole))
        place = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (place == MAP_FAILED) {
        unlink(path);
        close(fd);
        return 0;
    }
    /* The descriptor stays open: the lock goes with it, and says for how long the writer lives. */
    shared = place;
    owner = getpid();
    shared->version = VERSION;
    shared->interface = version;
    shared->pid = owner;
    name_network(shared->network);
    put(shared->magic, MAGIC);
    fchmod(fd, 0644);
    return 1;
}

/* A communicator's block; NULL where there is none. */
static struct communicator *place(int version) {
    if (owner != getpid()) { /* the first one, or in a fork, whose parent keeps the file */
        memset(communicators, 0, sizeof communicators);
        if (!map(version)) return NULL;
    }
    for (int at = 0; at < COMMUNICATORS; at++) {
        struct block *block = &shared->blocks[at];
        if (get(block->open)) continue;
        memset(block, 0, sizeof *block);
        communicators[at].block = block;
        atomic_store(&communicators[at].next, 0);
        return &communicators[at];
    }
    __atomic_fetch_add(&shared->dropped, 1, __ATOMIC_RELAXED);
    return NULL;
}

static int init(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks,
                int rank, logger log, int version) {
    int wanted = EVENT_COLLECTIVE | EVENT_MESSAGE | EVENT_PROXY | EVENT_STEP | EVENT_KERNEL;
    pthread_mutex_lock(&opening);
    struct communicator *mine = place(version);
    if (mine) {
        mine->block->id = id;
        mine->block->rank = rank;
        mine->block->ranks = ranks;
        mine->block->nodes = nodes;
        if (name) strncpy(mine->block->name, name, NAME - 1);
        put(mine->block->open, 1);
    }
    if (shared) *mask = version > 4 ? wanted | EVENT_GROUP : wanted;
    else {
        *mask = 0;
        if (log)
            log(LOG_WARN, SUBSYSTEM_PROFILE, __FILE__, __LINE__,
                "stagewatch: no directory takes a file of NCCL's operations; set STAGEWATCH_DIR");
    }
    pthread_mutex_unlock(&opening);
    *context = mine;
    return SUCCESS;
}

static int init_4(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks,
                  int rank, logger log) {
    return init(context, mask, name, id, nodes, ranks, rank, log, 4);
}

static int init_5(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks,
                  int rank, logger log) {
    return init(context, mask, name, id, nodes, ranks, rank, log, 5);
}

static int init_6(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks,
                  int rank, logger log) {
    return init(context, mask, name, id, nodes, ranks, rank, log, 6);
}

/* A program that ends by itself, or has no communicator any more, leaves nothing behind. */
__attribute__((destructor)) static void leave(void) {
    if (shared && owner == getpid()) unlink(path);
}

/* NCCL looks for these by name, the newest that it knows first; it finds no others here. */
PUBLIC const struct profiler_4 ncclProfiler_v4 = {
    "stagewatch", init_4, start_4, stop, record, finalize};
PUBLIC const struct profiler_5 ncclProfiler_v5 = {
    "stagewatch", init_5, start_5, stop, record, finalize};
PUBLIC const struct profiler_5 ncclProfiler_v6 = {
    "stagewatch", init_6, start_5, stop, record, finalize};
