/* Exports: MIG mode, instances and their placement. */
#include "abi.h"

#include <string.h>

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
