/* Preloaded into the service: writes and syncs of its log and of its database files fail now and then.
 *
 * How often stands in the file that THRONG_FAULTS names, mapped by whoever makes the faults and by this: three numbers of 32
 * bits, errors in a thousand calls on the log, on the database files, and which errors (1 EIO, 2 ENOSPC, 4 a short write). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint32_t none[3];
static volatile uint32_t *control = none;

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("THRONG_FAULTS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, 3 * sizeof(uint32_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED)
        control = mapped;
}

static int ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), of_end = strlen(end);
    return length >= of_end && strcmp(path + length - of_end, end) == 0;
}

/* Errors in a thousand calls on this file. */
static uint32_t per_mille(int fd)
{
    char link[64], path[4096];
    if (!control[0] && !control[1])
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (ends_with(path, ".log"))
        return control[0];
    return ends_with(path, ".redb") ? control[1] : 0;
}

static uint32_t chance(void)
{
    static __thread uint64_t state;
    if (!state)
        state = (uint64_t)(uintptr_t)&state ^ ((uint64_t)getpid() << 32) ^ 0x9E3779B97F4A7C15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* 0, or the errno to fail with; -1 for a short write. */
static int fault(int fd, int is_write)
{
    uint32_t rate = per_mille(fd);
    if (!rate || chance() % 1000 >= rate)
        return 0;
    uint32_t kinds = control[2], sort = chance() % 3;
    if (sort == 0 && (kinds & 4) && is_write)
        return -1;
    if (sort <= 1 && (kinds & 2) && is_write)
        return ENOSPC;
    return (kinds & 1) || !is_write ? EIO : ENOSPC;
}

#define FAIL(code)     \
    do {               \
        errno = code;  \
        return -1;     \
    } while (0)

#define POSITIONED_WRITE(name, offset_type)                                              \
    ssize_t name(int fd, const void *bytes, size_t count, offset_type offset)            \
    {                                                                                    \
        static ssize_t (*real)(int, const void *, size_t, offset_type);                  \
        if (!real)                                                                       \
            real = next(#name);                                                          \
        int code = fault(fd, 1);                                                         \
        if (code > 0)                                                                    \
            FAIL(code);                                                                  \
        if (code < 0 && count > 1)                                                       \
            count /= 2;                                                                  \
        return real(fd, bytes, count, offset);                                           \
    }

POSITIONED_WRITE(pwrite, off_t)
POSITIONED_WRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *bytes, size_t count)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = next("write");
    int code = fault(fd, 1);
    if (code > 0)
        FAIL(code);
    if (code < 0 && count > 1)
        count /= 2;
    return real(fd, bytes, count);
}

#define SYNC(name)                         \
    int name(int fd)                       \
    {                                      \
        static int (*real)(int);           \
        if (!real)                         \
            real = next(#name);            \
        int code = fault(fd, 0);           \
        if (code > 0)                      \
            FAIL(code);                    \
        return real(fd);                   \
    }

SYNC(fsync)
SYNC(fdatasync)
