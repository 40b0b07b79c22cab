/* The file that the plugin writes and stagewatch reads (stagewatch/ranks/nccl/layout.py).
 *
 * A header, then a block for each communicator.  All words are little-endian and stored as a whole.
 */
#ifndef STAGEWATCH_NCCL_LAYOUT_H
#define STAGEWATCH_NCCL_LAYOUT_H

#include <stdint.h>

#define MAGIC 0x314c43434e574753ull /* "SGWNCCL1" */
#define VERSION 1

enum { COMMUNICATORS = 32, CHANNELS = 64, PROXIES = 128, OPERATIONS = 256, NAME = 32, WINDOW = 8 };

struct operation {
    uint64_t number; /* the how manyth operation << 32 | collectives of the communicator so far */
    uint64_t what;   /* peer << 48 | lap << 44 | kind << 40 | bytes; lap: of this ring, modulo 16 */
};

struct channel {
    uint32_t begun; /* the operation that the kernel has begun last on this channel */
    uint32_t done;  /* the one that it has ended last */
};

struct service {
    uint64_t of; /* operation << 32 | peer << 8 | channel << 1 | sends; 0: none */
    uint64_t progress; /* transfers that are done << 32 | transfers in all */
    uint8_t states[WINDOW]; /* of the transfers in flight, each at its number modulo WINDOW */
};

struct block {
    uint64_t id;
    uint32_t rank, ranks, nodes;
    uint32_t open;   /* 1 while the communicator exists */
    uint32_t inside; /* 1 while the program is inside of NCCL's call */
    uint32_t unused;
    char name[NAME];
    struct channel channels[CHANNELS];
    struct service proxies[PROXIES];
    struct operation operations[OPERATIONS];
};

struct file {
    uint64_t magic;
    uint32_t version, interface;
    uint64_t pid;
    uint64_t dropped; /* communicators and services that found no place */
    char network[NAME]; /* the only device that NCCL may use; empty where there are several */
    uint8_t unused[192];
    struct block blocks[COMMUNICATORS];
};

_Static_assert(sizeof(struct block) == 7744 && sizeof(struct file) == 256 + 32 * 7744, "layout");

#endif
