/*
 * A small file system in memory that misbehaves on demand.
 *
 *     faultfs CONTROL FUSE-ARGUMENTS...
 *
 * The file CONTROL holds the fault in force: `ok`, or `FAULT OPERATION [VALUE]` with OPERATION one
 * of statfs lookup open write fsync read unlink readdir, or `*`, and FAULT one of
 *     eio, full, readonly     the operation fails with EIO, ENOSPC, EROFS
 *     slow MILLISECONDS       it takes that much longer
 *     hang                    it does not answer until the fault is taken away
 *     corrupt                 what is read differs from what was written
 *     cached                  with `open`: the kernel keeps the pages of what is opened, else none
 * `full` and `readonly` also show in statfs.  One directory, up to 64 files of up to 64 MiB.
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 64, NAME = 128 };
static const off_t MAX_SIZE = 64 << 20, BLOCK = 4096, BLOCKS = 1 << 20;

struct file {
    char name[NAME];
    char *data;
    off_t size;
    uid_t owner;
    struct timespec changed;
};

static struct file files[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *control;

static int in_force(const char *fault, const char *operation, int *value) {
    char text[128] = "", kind[32] = "", on[32] = "*";
    int fd = open(control, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, text, sizeof text - 1);
        text[got > 0 ? got : 0] = 0;
        close(fd);
    }
    *value = 0;
    sscanf(text, "%31s %31s %d", kind, on, value);
    return !strcmp(kind, fault) && (!strcmp(on, "*") || !strcmp(on, operation));
}

static void rest(int milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* What becomes of an operation: 0, or the negative errno it fails with. */
static int suffer(const char *operation) {
    int value;
    if (in_force("slow", operation, &value))
        rest(value);
    while (in_force("hang", operation, &value))
        rest(20);
    if (in_force("eio", operation, &value))
        return -EIO;
    if (in_force("full", operation, &value) && !strcmp(operation, "write"))
        return -ENOSPC;
    if (in_force("readonly", operation, &value) && strcmp(operation, "lookup") &&
        strcmp(operation, "statfs") && strcmp(operation, "readdir") && strcmp(operation, "read"))
        return -EROFS;
    return 0;
}

static struct file *find(const char *path) {
    for (int i = 0; i < FILES; i++)
        if (files[i].name[0] && !strcmp(files[i].name, path + 1))
            return &files[i];
    return NULL;
}

static void describe(const struct file *file, struct stat *out) {
    memset(out, 0, sizeof *out);
    out->st_mode = S_IFREG | 0600;
    out->st_nlink = 1;
    out->st_size = file->size;
    out->st_uid = file->owner;
    out->st_mtim = out->st_ctim = file->changed;
}

static int fs_getattr(const char *path, struct stat *out, struct fuse_file_info *info) {
    (void)info;
    int error = suffer("lookup");
    if (error)
        return error;
    if (!strcmp(path, "/")) {
        memset(out, 0, sizeof *out);
        out->st_mode = S_IFDIR | 0777;
        out->st_nlink = 2;
        return 0;
    }
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    if (file)
        describe(file, out);
    pthread_mutex_unlock(&lock);
    return file ? 0 : -ENOENT;
}

static int fs_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
                      struct fuse_file_info *info, enum fuse_readdir_flags flags) {
    (void)path, (void)offset, (void)info, (void)flags;
    int error = suffer("readdir");
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES; i++)
        if (files[i].name[0])
            fill(buffer, files[i].name, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *info) {
    (void)mode;
    int error = suffer("open");
    if (error)
        return error;
    if (strlen(path) > NAME)
        return -ENAMETOOLONG;
    info->direct_io = 1;
    error = -ENOSPC;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES && error; i++)
        if (!files[i].name[0]) {
            strcpy(files[i].name, path + 1);
            files[i].data = NULL;
            files[i].size = 0;
            files[i].owner = fuse_get_context()->uid;
            clock_gettime(CLOCK_REALTIME, &files[i].changed);
            error = 0;
        }
    pthread_mutex_unlock(&lock);
    return error;
}

static int fs_open(const char *path, struct fuse_file_info *info) {
    (void)path;
    int value;
    info->direct_io = !in_force("cached", "open", &value);
    return suffer("open");
}

static int fs_write(const char *path, const char *data, size_t size, off_t offset,
                    struct fuse_file_info *info) {
    (void)info;
    int error = suffer("write");
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    off_t end = offset + (off_t)size;
    if (!file || end > MAX_SIZE) {
        error = file ? -EFBIG : -ENOENT;
    } else {
        if (end > file->size) {
            file->data = realloc(file->data, end);
            memset(file->data + file->size, 0, end - file->size);
            file->size = end;
        }
        memcpy(file->data + offset, data, size);
        clock_gettime(CLOCK_REALTIME, &file->changed);
    }
    pthread_mutex_unlock(&lock);
    return error ? error : (int)size;
}

static int fs_read(const char *path, char *data, size_t size, off_t offset,
                   struct fuse_file_info *info) {
    (void)info;
    int value, error = suffer("read");
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    off_t left = file && offset < file->size ? file->size - offset : 0;
    if ((off_t)size > left)
        size = left;
    if (size)
        memcpy(data, file->data + offset, size);
    pthread_mutex_unlock(&lock);
    if (size && in_force("corrupt", "read", &value))
        data[size / 2] ^= 1;
    return file ? (int)size : -ENOENT;
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *info) {
    (void)info;
    int error = suffer("write");
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    if (file && size < file->size)
        file->size = size;
    pthread_mutex_unlock(&lock);
    return file ? 0 : -ENOENT;
}

static int fs_fsync(const char *path, int data_only, struct fuse_file_info *info) {
    (void)path, (void)data_only, (void)info;
    return suffer("fsync");
}

static int fs_unlink(const char *path) {
    int error = suffer("unlink");
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    if (file) {
        free(file->data);
        memset(file, 0, sizeof *file);
    }
    pthread_mutex_unlock(&lock);
    return file ? 0 : -ENOENT;
}

static int fs_rename(const char *from, const char *to, unsigned int flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    struct file *file = find(from), *old = find(to);
    if (file && old) {
        free(old->data);
        memset(old, 0, sizeof *old);
    }
    if (file && strlen(to) <= NAME)
        strcpy(file->name, to + 1);
    pthread_mutex_unlock(&lock);
    return file ? 0 : -ENOENT;
}

static int fs_statfs(const char *path, struct statvfs *out) {
    (void)path;
    int value, error = suffer("statfs");
    if (error)
        return error;
    memset(out, 0, sizeof *out);
    out->f_bsize = out->f_frsize = BLOCK;
    out->f_blocks = BLOCKS;
    out->f_bfree = out->f_bavail = in_force("full", "statfs", &value) ? 16 : BLOCKS / 2;
    out->f_files = FILES;
    out->f_ffree = FILES / 2;
    out->f_namemax = NAME - 1;
    return 0;
}

static void *fs_init(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = fs_init,
    .getattr = fs_getattr,
    .readdir = fs_readdir,
    .create = fs_create,
    .open = fs_open,
    .read = fs_read,
    .write = fs_write,
    .truncate = fs_truncate,
    .fsync = fs_fsync,
    .unlink = fs_unlink,
    .rename = fs_rename,
    .statfs = fs_statfs,
};

int main(int count, char **arguments) {
    control = arguments[1];
    arguments[1] = arguments[0];
    return fuse_main(count - 1, arguments + 1, &operations, NULL);
}
