/* Exports: MIG mode, instances, and the profile and placement tables. */
#include "abi.h"

#include <string.h>

#define PROFILE_V2_TAG ((unsigned)(sizeof(nvmlGpuInstanceProfileInfo_v2_t) | 2u << 24u))

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!current || !pending) return abi_end(CODE_INVALID_ARGUMENT);
    if (call.gpu->mig_current == ABSENT || call.gpu->mig_pending == ABSENT) return abi_end(CODE_NOT_SUPPORTED);
    *current = (unsigned)call.gpu->mig_current;
    *pending = (unsigned)call.gpu->mig_pending;
    return abi_end(CODE_OK);
}

/* The header: zero if MIG is not supported or not enabled. */
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    return code ? code : abi_give_unsigned(call.gpu->mig_current == 1 ? call.gpu->mig_max : 0, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!mig || index >= (unsigned)call.gpu->mig_max) return abi_end(CODE_INVALID_ARGUMENT);
    if (call.gpu->mig_current != 1 || !call.gpu->mig[index].uuid[0]) return abi_end(CODE_NOT_FOUND);
    *mig = abi_mig_handle(call.index, (int)index);
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    Call call;
    int code = abi_begin_any(&call, __func__, device);
    return code ? code : abi_give_unsigned(call.mig != NULL, is_mig);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    Call call;
    int code = abi_begin_any(&call, __func__, device);
    return code ? code : abi_give_unsigned(call.mig ? call.mig->gi : ABSENT, id);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    Call call;
    int code = abi_begin_any(&call, __func__, device);
    return code ? code : abi_give_unsigned(call.mig ? call.mig->ci : ABSENT, id);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    Call call;
    int code = abi_begin_any(&call, __func__, device);
    if (code) return code;
    if (!attributes) return abi_end(CODE_INVALID_ARGUMENT);
    if (!call.mig) return abi_end(CODE_NOT_SUPPORTED);
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessorCount = (unsigned)call.mig->sm;
    attributes->gpuInstanceSliceCount = (unsigned)call.mig->gpu_slices;
    attributes->computeInstanceSliceCount = (unsigned)call.mig->compute_slices;
    attributes->memorySizeMB = (unsigned long long)call.mig->memory_mib;
    return abi_end(CODE_OK);
}

static const Mig *instance_of(const Gpu *gpu, int64_t gi) {
    for (int slot = 0; slot < MAX_MIG; slot++)
        if (gpu->mig[slot].uuid[0] && gpu->mig[slot].gi == gi) return &gpu->mig[slot];
    return NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!instance || id >= MAX_GI) return abi_end(CODE_INVALID_ARGUMENT);
    if (call.gpu->mig_current != 1) return abi_end(CODE_NOT_SUPPORTED);
    if (!instance_of(call.gpu, id)) return abi_end(CODE_NOT_FOUND);
    *instance = abi_gi_handle(call.index, (int)id);
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    Call call;
    int gi;
    int code = abi_begin_gi(&call, __func__, instance, &gi);
    if (code) return code;
    const Mig *mig = instance_of(call.gpu, gi);
    if (!info || !mig) return abi_end(CODE_INVALID_ARGUMENT);
    info->device = abi_gpu_handle(call.index);
    info->id = (unsigned)mig->gi;
    info->profileId = (unsigned)mig->profile;
    info->placement = (nvmlGpuInstancePlacement_t){(unsigned)mig->start, (unsigned)mig->size};
    return abi_end(CODE_OK);
}

/* The number asked for is NVML's enum; the id in the answer is another one, and feeds the placement call. */
static int find_profile(const Call *call, unsigned number, const Profile **profile) {
    if (number >= MAX_PROFILES) return CODE_INVALID_ARGUMENT;
    for (int i = 0; i < call->state->profile_count && call->gpu->mig_current == 1; i++) {
        *profile = &call->state->profiles[i];
        if ((*profile)->number == number) return CODE_OK;
    }
    return CODE_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned number,
                                                        nvmlGpuInstanceProfileInfo_t *info) {
    Call call;
    const Profile *profile;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    code = info ? find_profile(&call, number, &profile) : CODE_INVALID_ARGUMENT;
    if (code) return abi_end(code);
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = (unsigned)profile->id, .sliceCount = (unsigned)profile->slices,
        .instanceCount = (unsigned)profile->instances, .multiprocessorCount = (unsigned)profile->sm,
        .memorySizeMB = (unsigned long long)profile->memory_mib,
    };
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned number,
                                                         nvmlGpuInstanceProfileInfo_v2_t *info) {
    Call call;
    const Profile *profile;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!info) return abi_end(CODE_INVALID_ARGUMENT);
    if (info->version != PROFILE_V2_TAG) return abi_end(CODE_VERSION_MISMATCH);
    code = find_profile(&call, number, &profile);
    if (code) return abi_end(code);
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        .version = PROFILE_V2_TAG, .id = (unsigned)profile->id, .sliceCount = (unsigned)profile->slices,
        .instanceCount = (unsigned)profile->instances, .multiprocessorCount = (unsigned)profile->sm,
        .memorySizeMB = (unsigned long long)profile->memory_mib,
    };
    memcpy(info->name, profile->name, sizeof info->name);
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                                  nvmlGpuInstancePlacement_t *placements, unsigned *count) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!count) return abi_end(CODE_INVALID_ARGUMENT);
    if (call.gpu->mig_current != 1) return abi_end(CODE_NOT_SUPPORTED);
    for (int i = 0; i < call.state->profile_count; i++) {
        const Profile *profile = &call.state->profiles[i];
        if (profile->id != id) continue;
        unsigned room = *count;
        *count = (unsigned)profile->starts.count;
        if (placements && room < *count) return abi_end(CODE_INSUFFICIENT_SIZE);
        for (unsigned k = 0; placements && k < *count; k++)
            placements[k] = (nvmlGpuInstancePlacement_t){(unsigned)profile->starts.values[k], (unsigned)profile->size};
        return abi_end(CODE_OK);
    }
    return abi_end(CODE_NOT_SUPPORTED);
}
