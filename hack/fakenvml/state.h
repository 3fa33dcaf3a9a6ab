/* The fake driver's state: values, and the rules that hold between two calls. No NVML types here; abi_*.c translate.
 *
 * Every number is an int64_t; ABSENT (written "-" in the file) means that this board does not support the thing.
 * All functions but state_enter expect the lock that state_enter took. */
#ifndef FAKENVML_STATE_H
#define FAKENVML_STATE_H

#include <stddef.h>
#include <stdint.h>

#define ABSENT INT64_MIN

enum {
    MAX_GPUS = 32,
    MAX_LINKS = 36, /* NVML_NVLINK_MAX_LINKS of nvidia-ml-py 13.615 */
    MAX_MIG = 16,
    MAX_GI = 64,
    MAX_PROCESSES = 512,
    MAX_FAULTS = 128,
    MAX_FIELDS = 128,
    MAX_EVENTS = 512,
    MAX_LIST = 64,
    TEXT_SIZE = 96, /* NVML_DEVICE_NAME_V2_BUFFER_SIZE, and the same for a UUID */
};

/* NVML's return codes that the rules themselves give. */
enum {
    CODE_OK = 0,
    CODE_UNINITIALIZED = 1,
    CODE_INVALID_ARGUMENT = 2,
    CODE_NOT_SUPPORTED = 3,
    CODE_NOT_FOUND = 6,
    CODE_INSUFFICIENT_SIZE = 7,
    CODE_DRIVER_NOT_LOADED = 9,
    CODE_TIMEOUT = 10,
    CODE_GPU_IS_LOST = 15,
    CODE_RESET_REQUIRED = 16,
    CODE_VERSION_MISMATCH = 25,
    CODE_UNKNOWN = 999,
};

typedef struct {
    int64_t count;
    int64_t values[MAX_LIST];
} List;

typedef struct {
    int64_t gpu, link, state, remote, remote_link;
    char remote_pci[TEXT_SIZE];
} Link;

typedef struct {
    int64_t gpu, slot, gi, ci, profile, start, size, compute_slices, gpu_slices, sm, memory_mib;
    char uuid[TEXT_SIZE];
    char name[TEXT_SIZE];
} Mig;

typedef struct {
    int64_t gpu, pid, used, gi, ci;
} Process;

typedef struct {
    int64_t gpu; /* ABSENT: any, and calls without a device too */
    int64_t error, slow_ms, hang, segfault, grow;
    int64_t times; /* fires so often in each process; ABSENT: always */
    int64_t used;
    char fn[TEXT_SIZE]; /* a function or "*" */
} Fault;

typedef struct {
    int64_t gpu, id, scope, value, error;
} Field;

typedef struct {
    int64_t seq, gpu, type, data, gi, ci;
} Event;

typedef struct {
    int64_t index, minor, pci_device, pci_subsystem, memory, used, reserved, busy, memory_busy, persistence;
    int64_t mig_current, mig_pending, mig_max;
    int64_t lost, reset_required, needs_reboot, resets;
    int64_t recovery_action, remap_correctable, remap_uncorrectable, remap_pending, remap_failed, retired_pending;
    int64_t ecc_volatile_corrected, ecc_volatile_uncorrected, ecc_aggregate_corrected, ecc_aggregate_uncorrected;
    int64_t sram_uncorrected, sram_volatile, sram_threshold;
    int64_t fabric_version, fabric_state, fabric_status, fabric_clique, fabric_mask, fabric_summary;
    int64_t nvlinks, nvlink_mbps, numa_node, clocks, temperature, power_mw, events, drain;
    int64_t licence, licence_expiry;
    List numa_memory;
    char uuid[TEXT_SIZE];
    char name[TEXT_SIZE];
    char pci[TEXT_SIZE];
    char fabric_uuid[TEXT_SIZE];
    Link links[MAX_LINKS];
    Mig mig[MAX_MIG]; /* by slot; an empty uuid is a hole */
} Gpu;

typedef struct {
    int64_t boot, counted;
    char driver[TEXT_SIZE];
} System;

typedef struct {
    System system;
    int systems, gpu_count, process_count, fault_count, field_count, event_count;
    Gpu gpus[MAX_GPUS];
    Process processes[MAX_PROCESSES];
    Fault faults[MAX_FAULTS];
    Field fields[MAX_FIELDS];
    Event events[MAX_EVENTS];
} State;

/* parse.c: fill `state` from `text` (modified). 0, or -1 with one line in `why`. */
int state_parse(char *text, State *state, char *why, size_t why_size);

/* state.c: every call enters here. CODE_OK with the lock held and `*state` valid until state_leave, or the code that the
 * call returns. `gpu` is the device the call is about, -1 for none. May sleep, never return, or crash, if a fault says so; with `fn` NULL no fault happens. */
int state_enter(const char *fn, int gpu, State **state);
void state_leave(void);

/* Init and shutdown count; the first opens the session that makes a reset refuse, the last closes it. */
int state_init(const char *fn);
int state_shutdown(const char *fn);

/* True if the buffer is said to have become too small between two calls. */
int state_grows(State *state, const char *fn, int gpu);

/* session.c: a locked file per process beside the state file. */
void session_open(const char *state_path);
void session_close(void);

/* events.c: what an event set remembers. */
typedef struct EventSet EventSet;
EventSet *events_create(void);
int events_is_set(const EventSet *set);
void events_free(EventSet *set);
int events_register(EventSet *set, const State *state, int gpu, uint64_t mask);
/* CODE_OK and the next undelivered event, CODE_TIMEOUT if there is none now, CODE_GPU_IS_LOST if one of its GPUs is gone. */
int events_next(EventSet *set, const State *state, Event *event);

#endif
