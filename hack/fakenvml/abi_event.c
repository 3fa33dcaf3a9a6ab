/* Exports: event sets. Waiting blocks for its timeout, as the real one does, or a health loop would spin. */
#include "abi.h"

#include <time.h>

enum { POLL_MS = 20 };

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    return code ? code : abi_give_u64(call.gpu->events, types);
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    Call call;
    int code = abi_begin(&call, __func__);
    if (code) return code;
    if (!set) return abi_end(CODE_INVALID_ARGUMENT);
    *set = (nvmlEventSet_t)events_create();
    return abi_end(*set ? CODE_OK : CODE_UNKNOWN);
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!events_is_set((EventSet *)set)) return abi_end(CODE_INVALID_ARGUMENT);
    return abi_end(events_register((EventSet *)set, call.state, call.index, types));
}

static int take_event(const char *fn, nvmlEventSet_t set, nvmlEventData_t *data) {
    Call call;
    Event event;
    int code = abi_begin(&call, fn);
    if (code) return code;
    if (!data || !events_is_set((EventSet *)set)) return abi_end(CODE_INVALID_ARGUMENT);
    code = events_next((EventSet *)set, call.state, &event);
    if (!code)
        *data = (nvmlEventData_t){
            .device = abi_gpu_handle((int)event.gpu), .eventType = (unsigned long long)event.type,
            .eventData = (unsigned long long)event.data, .gpuInstanceId = abi_instance(event.gi),
            .computeInstanceId = abi_instance(event.ci),
        };
    return abi_end(code);
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    int64_t deadline = now_ms() + timeout_ms;
    for (;;) {
        int code = take_event(__func__, set, data);
        int64_t left = deadline - now_ms();
        if (code != CODE_TIMEOUT || left <= 0) return code;
        struct timespec pause = {0, (left < POLL_MS ? left : POLL_MS) * 1000000};
        nanosleep(&pause, NULL);
    }
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    Call call;
    int code = abi_begin(&call, __func__);
    if (code) return code;
    if (!events_is_set((EventSet *)set)) return abi_end(CODE_INVALID_ARGUMENT);
    events_free((EventSet *)set);
    return abi_end(CODE_OK);
}
