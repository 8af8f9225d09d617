/* Makes one call of a process fail that writes to a folder, or all calls from one on.
 *
 *     cc -shared -fPIC -o failing_calls.so failing_calls.c -ldl
 *     LD_PRELOAD=./failing_calls.so FAIL_FOLDER=/some/folder FAIL_AT=12 FAIL_WITH=28 command
 *
 * Calls are counted over all threads, in FAIL_COUNT_FILE if that is given. FAIL_WITH is the number
 * of an error (errno); 0 makes every call slow instead, by FAIL_MILLISECONDS.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int is_inside(const char *path) {
    const char *folder = setting("FAIL_FOLDER");
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_open_inside(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_inside(path);
}

/* Counts a call; returns whether it fails, with errno set. */
static int fails(void) {
    long number = atomic_fetch_add(&calls, 1) + 1;
    const char *file = setting("FAIL_COUNT_FILE");
    if (file) {
        FILE *out = fopen(file, "a");
        if (out) {
            fputs(".", out);
            fclose(out);
        }
    }
    const char *at = setting("FAIL_AT"), *with = setting("FAIL_WITH");
    if (!at || !with) return 0;
    if (atoi(with) == 0) {
        const char *milliseconds = setting("FAIL_MILLISECONDS");
        usleep(1000 * (milliseconds ? atoi(milliseconds) : 1));
        return 0;
    }
    if (number < atol(at)) return 0;
    errno = atoi(with);
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void *data, size_t size) {
    if (is_open_inside(descriptor) && fails()) return -1;
    return REAL(write)(descriptor, data, size);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    if (is_open_inside(descriptor) && fails()) return -1;
    return REAL(pwrite)(descriptor, data, size, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    if (is_open_inside(descriptor) && fails()) return -1;
    return REAL(pwrite64)(descriptor, data, size, offset);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    if (is_open_inside(descriptor) && fails()) return -1;
    return REAL(writev)(descriptor, parts, count);
}

int fsync(int descriptor) {
    if (is_open_inside(descriptor) && fails()) return -1;
    return REAL(fsync)(descriptor);
}

int fdatasync(int descriptor) {
    if (is_open_inside(descriptor) && fails()) return -1;
    return REAL(fdatasync)(descriptor);
}

int ftruncate(int descriptor, off_t length) {
    if (is_open_inside(descriptor) && fails()) return -1;
    return REAL(ftruncate)(descriptor, length);
}

int ftruncate64(int descriptor, off64_t length) {
    if (is_open_inside(descriptor) && fails()) return -1;
    return REAL(ftruncate64)(descriptor, length);
}

int rename(const char *from, const char *to) {
    if (is_inside(to) && fails()) return -1;
    return REAL(rename)(from, to);
}

int mkdir(const char *path, mode_t mode) {
    if (is_inside(path) && fails()) return -1;
    return REAL(mkdir)(path, mode);
}

/* Opening a file in order to write it. */
static int opens(const char *name, int at, const char *path, int flags, mode_t mode) {
    if ((flags & O_ACCMODE) != O_RDONLY && is_inside(path) && fails()) return -1;
    int (*openat_)(int, const char *, int, ...) = dlsym(RTLD_NEXT, name);
    return openat_(at, path, flags, mode);
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return opens("openat", AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return opens("openat64", AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
    MODE(flags)
    return opens("openat", at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...) {
    MODE(flags)
    return opens("openat64", at, path, flags, mode);
}
