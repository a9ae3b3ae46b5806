/* A disk that fails, below a program: preloaded, it counts the writes and syncs of files below FAULT_DIR and does to the
 * FAULT_AT-th what FAULT_MODE says. FAULT_KILL_AFTER operations later the process is killed, if it still runs.
 *
 *   eio, enospc   the operation fails
 *   short         a write writes half of it and says so
 *   tear          a write writes half of it; the process is killed
 *   kill          the process is killed before the operation
 *   lose          what was written and not synced is lost from some sector on; the process is killed
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SECTOR = 512, FILES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *dir, *mode;
static long at, kill_after, seed, count;
/* The bytes of each open file that were written since it was synced. */
static off_t dirty_from[FILES], dirty_to[FILES];

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_close)(int);

static long number(const char *name) { return getenv(name) ? atol(getenv(name)) : 0; }

__attribute__((constructor)) static void start(void) {
    dir = getenv("FAULT_DIR");
    mode = getenv("FAULT_MODE") ? getenv("FAULT_MODE") : "";
    at = number("FAULT_AT");
    kill_after = number("FAULT_KILL_AFTER");
    seed = number("FAULT_SEED");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_close = dlsym(RTLD_NEXT, "close");
}

static int concerned(int fd) {
    char link[64], path[4096];
    struct stat status;
    if (!dir || fd < 3 || fd >= FILES) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len <= 0) return 0;
    path[len] = 0;
    return strncmp(path, dir, strlen(dir)) == 0 && !strstr(path, "LOCK") && fstat(fd, &status) == 0 &&
           S_ISREG(status.st_mode);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static void lose(void) {
    static const char zeros[SECTOR];
    for (int fd = 0; fd < FILES; fd++) {
        off_t from = dirty_from[fd], to = dirty_to[fd];
        if (from >= to) continue;
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int out = open(link, O_WRONLY);
        from += (off_t)(seed % ((to - from) / SECTOR + 1)) * SECTOR;
        for (; from < to; from += SECTOR)
            real_pwrite(out, zeros, to - from < SECTOR ? (size_t)(to - from) : SECTOR, from);
    }
}

/* What is to be done to this operation: 0 nothing, 1 half of it, an error number below 0. */
static int fate(int is_write) {
    long nth = ++count;
    if (!at || nth < at) return 0;
    if (nth > at) {
        if (kill_after && nth >= at + kill_after) die();
        return 0;
    }
    if (!strcmp(mode, "eio")) return -EIO;
    if (!strcmp(mode, "enospc")) return is_write ? -ENOSPC : -EIO;
    if (!strcmp(mode, "short")) return is_write ? 1 : 0;
    if (!strcmp(mode, "tear") && is_write) return 2;
    if (!strcmp(mode, "lose")) lose();
    die();
    return 0;
}

static void dirty(int fd, off_t from, ssize_t len) {
    if (len <= 0) return;
    if (dirty_from[fd] >= dirty_to[fd]) dirty_from[fd] = from, dirty_to[fd] = from;
    if (from < dirty_from[fd]) dirty_from[fd] = from;
    if (from + len > dirty_to[fd]) dirty_to[fd] = from + len;
}

static off_t place(int fd) {
    struct stat status;
    if (fcntl(fd, F_GETFL) & O_APPEND) return fstat(fd, &status) == 0 ? status.st_size : 0;
    return lseek(fd, 0, SEEK_CUR);
}

static ssize_t put(int fd, const void *bytes, size_t len, off_t offset) {
    if (!concerned(fd)) return offset < 0 ? real_write(fd, bytes, len) : real_pwrite(fd, bytes, len, offset);
    pthread_mutex_lock(&lock);
    off_t from = offset < 0 ? place(fd) : offset;
    int what = fate(1);
    ssize_t done = -1;
    if (what < 0) {
        errno = -what;
    } else {
        if (what && len > 1) len /= 2;
        done = offset < 0 ? real_write(fd, bytes, len) : real_pwrite(fd, bytes, len, offset);
        dirty(fd, from, done);
        if (what == 2) die();
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

ssize_t write(int fd, const void *bytes, size_t len) { return put(fd, bytes, len, -1); }
ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t offset) { return put(fd, bytes, len, offset); }
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) { return put(fd, bytes, len, offset); }

ssize_t writev(int fd, const struct iovec *parts, int n) {
    /* A short write is a right one. */
    return concerned(fd) && n > 0 ? put(fd, parts[0].iov_base, parts[0].iov_len, -1) : real_writev(fd, parts, n);
}

static int sync_with(int fd, int (*real)(int)) {
    if (!concerned(fd)) return real(fd);
    pthread_mutex_lock(&lock);
    int what = fate(0), done = -1, error = -what;
    if (what >= 0) {
        done = real(fd);
        error = errno;
        dirty_from[fd] = dirty_to[fd] = 0;
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

int fsync(int fd) { return sync_with(fd, real_fsync); }
int fdatasync(int fd) { return sync_with(fd, real_fdatasync); }

int close(int fd) {
    if (fd >= 0 && fd < FILES) dirty_from[fd] = dirty_to[fd] = 0;
    return real_close(fd);
}
