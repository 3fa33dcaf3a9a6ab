/* Event sets: each delivers every occurrence once, and only what happened after the device was registered. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SETS = 64, MAX_REGISTRATIONS = 256 };

struct EventSet {
    int count;
    struct {
        int gpu;
        uint64_t mask;
        int64_t after;
    } devices[MAX_REGISTRATIONS];
    int64_t delivered;
};

static EventSet *sets[MAX_SETS];

EventSet *events_create(void) {
    for (int i = 0; i < MAX_SETS; i++) {
        if (sets[i]) continue;
        return sets[i] = calloc(1, sizeof **sets);
    }
    return NULL;
}

int events_is_set(const EventSet *set) {
    for (int i = 0; i < MAX_SETS; i++)
        if (set && sets[i] == set) return 1;
    return 0;
}

void events_free(EventSet *set) {
    for (int i = 0; i < MAX_SETS; i++)
        if (sets[i] == set) sets[i] = NULL;
    free(set);
}

int events_register(EventSet *set, const State *state, int gpu, uint64_t mask) {
    if (mask & ~(uint64_t)state->gpus[gpu].events) return CODE_NOT_SUPPORTED;
    if (set->count == MAX_REGISTRATIONS) return CODE_INSUFFICIENT_SIZE;
    /* One entry a call, since a bit that is added later must not see what happened before it was. */
    set->devices[set->count].gpu = gpu;
    set->devices[set->count].mask = mask;
    set->devices[set->count].after = state->event_count ? state->events[state->event_count - 1].seq : 0;
    set->count++;
    return CODE_OK;
}

static int wants(const EventSet *set, const Event *event) {
    if (event->seq <= set->delivered) return 0;
    for (int i = 0; i < set->count; i++)
        if (set->devices[i].gpu == event->gpu && event->seq > set->devices[i].after &&
            (set->devices[i].mask & (uint64_t)event->type))
            return 1;
    return 0;
}

int events_next(EventSet *set, const State *state, Event *event) {
    for (int i = 0; i < state->event_count; i++) {
        if (!wants(set, &state->events[i])) continue;
        *event = state->events[i];
        set->delivered = event->seq;
        return CODE_OK;
    }
    for (int i = 0; i < set->count; i++) {
        int gpu = set->devices[i].gpu;
        if (gpu >= state->gpu_count || state->gpus[gpu].lost) return CODE_GPU_IS_LOST;
    }
    return CODE_TIMEOUT;
}
