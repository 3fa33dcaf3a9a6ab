/* The rules between two calls: the file is re-read when it changed, losses stick, faults fire, sessions count.
 *
 * Order within a call: session, file, slow, hang, crash, injected error, then the device's own condition. A state file
 * that cannot be understood makes every call fail with UNKNOWN until it is replaced; it never falls back to an older one. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_LIMIT = 4 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inits;
static State *current;      /* the last state that could be read; still the memory of what was lost when the file is bad */
static int current_code = CODE_DRIVER_NOT_LOADED;
static struct stat current_file;

static const char *state_path(void) {
    const char *path = getenv("MUSTER_FAKENVML_STATE");
    return path && *path ? path : NULL;
}

static int is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* A lost GPU stays lost until the file tells of a reboot or a reset; a fault that was counted keeps its count. */
static void carry_over(const State *before, State *now) {
    for (int i = 0; i < now->gpu_count; i++) {
        Gpu *gpu = &now->gpus[i];
        for (int j = 0; j < before->gpu_count; j++) {
            const Gpu *was = &before->gpus[j];
            if (was->lost && before->system.boot == now->system.boot && was->resets == gpu->resets && strcmp(was->uuid, gpu->uuid) == 0)
                gpu->lost = 1;
        }
    }
    for (int i = 0; i < now->fault_count; i++) {
        for (int j = 0; j < before->fault_count; j++) {
            Fault was = before->faults[j];
            was.used = 0;
            if (memcmp(&was, &now->faults[i], sizeof was) == 0) now->faults[i].used = before->faults[j].used;
        }
    }
}

static int fail_loudly(const char *path, const char *why) {
    fprintf(stderr, "fakenvml: %s: %s\n", path, why);
    return CODE_UNKNOWN;
}

static int load(const char *path, int fd, size_t size) {
    char why[256];
    if (size > FILE_LIMIT) return fail_loudly(path, "file too large");
    char *text = malloc(size + 1);
    State *state = malloc(sizeof *state);
    int code = CODE_OK;
    if (!text || !state || read(fd, text, size) != (ssize_t)size) {
        code = fail_loudly(path, "cannot be read");
    } else if (memchr(text, 0, size)) {
        code = fail_loudly(path, "holds a zero byte");
    } else {
        text[size] = 0;
        if (state_parse(text, state, why, sizeof why)) code = fail_loudly(path, why);
    }
    free(text);
    if (code) {
        free(state);
        return code;
    }
    if (current) carry_over(current, state);
    free(current);
    current = state;
    return CODE_OK;
}

static int refresh(void) {
    const char *path = state_path();
    struct stat now;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        memset(&current_file, 0, sizeof current_file);
        return current_code = CODE_DRIVER_NOT_LOADED;
    }
    if (fstat(fd, &now) == 0 && !is_same_file(&now, &current_file)) {
        current_code = load(path, fd, (size_t)now.st_size);
        current_file = now;
    }
    close(fd);
    return current_code;
}

static int applies(const Fault *fault, const char *fn, int gpu) {
    if (fault->gpu != ABSENT && fault->gpu != gpu) return 0;
    if (strcmp(fault->fn, "*") != 0 && strcmp(fault->fn, fn) != 0) return 0;
    return fault->times == ABSENT || fault->used < fault->times;
}

static void sleep_ms(int64_t ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

/* Let the faults of this call happen. Returns with the lock held unless it does not return at all. */
static int suffer(const char *fn, int gpu) {
    for (int i = 0; i < current->fault_count; i++) {
        Fault *fault = &current->faults[i];
        if (fault->grow || !applies(fault, fn, gpu)) continue;
        fault->used++;
        if (fault->error != ABSENT) return (int)fault->error;
        if (fault->segfault) raise(SIGSEGV);
        if (fault->slow_ms == ABSENT && !fault->hang) continue;
        int64_t ms = fault->slow_ms;
        int hang = (int)fault->hang;
        pthread_mutex_unlock(&lock);
        while (hang) pause(); /* as a real one: nothing in the process ends it */
        sleep_ms(ms);
        pthread_mutex_lock(&lock);
        int code = refresh();
        if (code) return code;
    }
    return CODE_OK;
}

static int device_condition(int gpu) {
    if (gpu < 0) return CODE_OK;
    if (gpu >= current->gpu_count || current->gpus[gpu].lost) return CODE_GPU_IS_LOST;
    return current->gpus[gpu].reset_required ? CODE_RESET_REQUIRED : CODE_OK;
}

static int enter_locked(const char *fn, int gpu) {
    int code = refresh();
    if (!code && fn) code = suffer(fn, gpu);
    return code ? code : device_condition(gpu);
}

int state_enter(const char *fn, int gpu, State **state) {
    pthread_mutex_lock(&lock);
    int code = inits ? enter_locked(fn, gpu) : CODE_UNINITIALIZED;
    if (code) {
        pthread_mutex_unlock(&lock);
        return code;
    }
    *state = current;
    return CODE_OK;
}

void state_leave(void) { pthread_mutex_unlock(&lock); }

int state_init(const char *fn) {
    pthread_mutex_lock(&lock);
    int code = enter_locked(fn, -1);
    if (!code && inits++ == 0) session_open(state_path());
    pthread_mutex_unlock(&lock);
    return code;
}

int state_shutdown(const char *fn) {
    pthread_mutex_lock(&lock);
    /* A driver that is gone or unreadable must still let its sessions be closed. */
    int code = inits ? CODE_OK : CODE_UNINITIALIZED;
    if (!code && refresh() == CODE_OK) code = suffer(fn, -1);
    if (!code && --inits == 0) session_close();
    pthread_mutex_unlock(&lock);
    return code;
}

int state_grows(State *state, const char *fn, int gpu) {
    for (int i = 0; i < state->fault_count; i++) {
        Fault *fault = &state->faults[i];
        if (!fault->grow || !applies(fault, fn, gpu)) continue;
        fault->used++;
        return 1;
    }
    return 0;
}
