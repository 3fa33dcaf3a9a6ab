/* Handles, and how a call begins and ends; the exports are in the other abi_*.c. */
#include "abi.h"

#include <stdio.h>
#include <string.h>

static char gpu_slots[MAX_GPUS];
static char mig_slots[MAX_GPUS * MAX_MIG];
static char gi_slots[MAX_GPUS * MAX_GI];

nvmlDevice_t abi_gpu_handle(int gpu) { return (nvmlDevice_t)&gpu_slots[gpu]; }
nvmlDevice_t abi_mig_handle(int gpu, int slot) { return (nvmlDevice_t)&mig_slots[gpu * MAX_MIG + slot]; }
nvmlGpuInstance_t abi_gi_handle(int gpu, int gi) { return (nvmlGpuInstance_t)&gi_slots[gpu * MAX_GI + gi]; }

static int slot_of(const void *handle, const char *slots, int count) {
    uintptr_t at = (uintptr_t)handle, first = (uintptr_t)slots;
    return at >= first && at < first + (uintptr_t)count ? (int)(at - first) : -1;
}

int abi_gi_of(nvmlGpuInstance_t handle, int *gpu, int *gi) {
    int slot = slot_of(handle, gi_slots, sizeof gi_slots);
    *gpu = slot / MAX_GI;
    *gi = slot % MAX_GI;
    return slot < 0 ? CODE_INVALID_ARGUMENT : CODE_OK;
}

static int enter(Call *call, const char *fn, int gpu) {
    *call = (Call){.fn = fn, .index = gpu};
    int code = state_enter(fn, gpu, &call->state);
    if (!code && gpu >= 0) call->gpu = &call->state->gpus[gpu];
    return code;
}

int abi_begin(Call *call, const char *fn) { return enter(call, fn, -1); }

int abi_begin_any(Call *call, const char *fn, nvmlDevice_t handle) {
    int gpu = slot_of(handle, gpu_slots, sizeof gpu_slots);
    int mig = gpu < 0 ? slot_of(handle, mig_slots, sizeof mig_slots) : -1;
    int code = enter(call, fn, mig < 0 ? gpu : mig / MAX_MIG);
    if (code) return code;
    if (gpu < 0 && mig < 0) return abi_end(CODE_INVALID_ARGUMENT);
    if (mig < 0) return CODE_OK;
    call->mig = &call->gpu->mig[mig % MAX_MIG];
    /* The instance behind the handle has been destroyed. */
    return call->mig->uuid[0] ? CODE_OK : abi_end(CODE_INVALID_ARGUMENT);
}

int abi_begin_gpu(Call *call, const char *fn, nvmlDevice_t handle) {
    int code = abi_begin_any(call, fn, handle);
    if (code) return code;
    return call->mig ? abi_end(CODE_NOT_SUPPORTED) : CODE_OK;
}

int abi_begin_gi(Call *call, const char *fn, nvmlGpuInstance_t handle, int *gi) {
    int gpu;
    int bad = abi_gi_of(handle, &gpu, gi);
    int code = enter(call, fn, bad ? -1 : gpu);
    if (code) return code;
    return bad ? abi_end(bad) : CODE_OK;
}

unsigned abi_instance(int64_t id) { return id == ABSENT ? 0xFFFFFFFFu : (unsigned)id; }

int abi_end(int code) {
    state_leave();
    return code;
}

int abi_give_unsigned(int64_t value, unsigned *out) {
    if (!out) return abi_end(CODE_INVALID_ARGUMENT);
    if (value == ABSENT) return abi_end(CODE_NOT_SUPPORTED);
    *out = (unsigned)value;
    return abi_end(CODE_OK);
}

int abi_give_u64(int64_t value, unsigned long long *out) {
    if (!out) return abi_end(CODE_INVALID_ARGUMENT);
    if (value == ABSENT) return abi_end(CODE_NOT_SUPPORTED);
    *out = (unsigned long long)value;
    return abi_end(CODE_OK);
}

int abi_give_text(const char *value, char *out, unsigned size) {
    if (!out) return abi_end(CODE_INVALID_ARGUMENT);
    if (strlen(value) >= size) return abi_end(CODE_INSUFFICIENT_SIZE);
    memcpy(out, value, strlen(value) + 1);
    return abi_end(CODE_OK);
}

void abi_fill_pci(const Gpu *gpu, const char *bus_id, nvmlPciInfo_t *out) {
    memset(out, 0, sizeof *out);
    unsigned function = 0;
    sscanf(bus_id, "%x:%x:%x.%x", &out->domain, &out->bus, &out->device, &function);
    /* NVML prints the domain with eight digits and capitals here, sysfs with four and none. */
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.%X", out->domain & 0xFFFFFFFFu, out->bus & 0xFFu,
             out->device & 0xFFu, function & 0xFu);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.%X", out->domain & 0xFFFFu, out->bus & 0xFFu,
             out->device & 0xFFu, function & 0xFu);
    if (!gpu) return;
    out->pciDeviceId = (unsigned)gpu->pci_device;
    out->pciSubSystemId = (unsigned)gpu->pci_subsystem;
}
