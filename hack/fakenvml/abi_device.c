/* Exports: one GPU's identity, health and load. */
#include "abi.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* struct size | version << 24, as NVML builds its version tags */
#define TAG(type, version) ((unsigned)(sizeof(type) | (version) << 24u))
#define MIB (UINT64_C(1) << 20)

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size) {
    Call call;
    int code = abi_begin_any(&call, __func__, device);
    return code ? code : abi_give_text(call.mig ? call.mig->uuid : call.gpu->uuid, uuid, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size) {
    Call call;
    char text[2 * TEXT_SIZE + 8];
    int code = abi_begin_any(&call, __func__, device);
    if (code) return code;
    if (!call.mig) return abi_give_text(call.gpu->name, name, size);
    snprintf(text, sizeof text, "%s MIG %s", call.gpu->name, call.mig->name);
    return abi_give_text(text, name, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!pci) return abi_end(CODE_INVALID_ARGUMENT);
    abi_fill_pci(call.gpu, call.gpu->pci, pci);
    return abi_end(CODE_OK);
}

#define GETTER(name, field, type, give)                        \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, type *out) { \
        Call call;                                             \
        int code = abi_begin_gpu(&call, __func__, device);     \
        return code ? code : give(call.gpu->field, out);       \
    }

GETTER(nvmlDeviceGetPersistenceMode, persistence, unsigned, abi_give_unsigned)
GETTER(nvmlDeviceGetRetiredPagesPendingStatus, retired_pending, unsigned, abi_give_unsigned)
GETTER(nvmlDeviceGetPowerUsage, power_mw, unsigned, abi_give_unsigned)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, clocks, unsigned long long, abi_give_u64)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, clocks, unsigned long long, abi_give_u64) /* its name before 535 */

static uint64_t total_of(const Call *call) {
    return call->mig ? (uint64_t)call->mig->memory_mib * MIB : (uint64_t)call->gpu->memory;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    Call call;
    int code = abi_begin_any(&call, __func__, device);
    if (code) return code;
    if (!memory) return abi_end(CODE_INVALID_ARGUMENT);
    memory->total = total_of(&call);
    /* v1 counts the reserved part as used; v2 tells them apart. */
    memory->used = call.mig ? 0 : (uint64_t)(call.gpu->used + call.gpu->reserved);
    memory->free = memory->total - memory->used;
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    Call call;
    int code = abi_begin_any(&call, __func__, device);
    if (code) return code;
    if (!memory) return abi_end(CODE_INVALID_ARGUMENT);
    if (memory->version != TAG(nvmlMemory_v2_t, 2u)) return abi_end(CODE_VERSION_MISMATCH);
    memory->total = total_of(&call);
    memory->reserved = call.mig ? 0 : (uint64_t)call.gpu->reserved;
    memory->used = call.mig ? 0 : (uint64_t)call.gpu->used;
    memory->free = memory->total - memory->used - memory->reserved;
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!utilization) return abi_end(CODE_INVALID_ARGUMENT);
    /* The real one gives up on a GPU in MIG mode. */
    if (call.gpu->busy == ABSENT || call.gpu->memory_busy == ABSENT || call.gpu->mig_current == 1)
        return abi_end(CODE_NOT_SUPPORTED);
    utilization->gpu = (unsigned)call.gpu->busy;
    utilization->memory = (unsigned)call.gpu->memory_busy;
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    return sensor ? abi_end(CODE_INVALID_ARGUMENT) : abi_give_unsigned(call.gpu->temperature, celsius);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!temperature || temperature->sensorType) return abi_end(CODE_INVALID_ARGUMENT);
    if (temperature->version != TAG(nvmlTemperature_t, 1u)) return abi_end(CODE_VERSION_MISMATCH);
    return abi_give_unsigned(call.gpu->temperature, (unsigned *)&temperature->temperature);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
                                              unsigned *pending, unsigned *failed) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    const Gpu *gpu = call.gpu;
    if (!correctable || !uncorrectable || !pending || !failed) return abi_end(CODE_INVALID_ARGUMENT);
    if (gpu->remap_correctable == ABSENT || gpu->remap_uncorrectable == ABSENT || gpu->remap_pending == ABSENT ||
        gpu->remap_failed == ABSENT)
        return abi_end(CODE_NOT_SUPPORTED);
    *correctable = (unsigned)gpu->remap_correctable;
    *uncorrectable = (unsigned)gpu->remap_uncorrectable;
    *pending = (unsigned)gpu->remap_pending;
    *failed = (unsigned)gpu->remap_failed;
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned error, unsigned counter,
                                                unsigned long long *count) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (error > 1 || counter > 1) return abi_end(CODE_INVALID_ARGUMENT);
    /* error: 0 corrected, 1 uncorrected; counter: 0 volatile, 1 aggregate */
    const int64_t counts[2][2] = {{call.gpu->ecc_volatile_corrected, call.gpu->ecc_aggregate_corrected},
                                  {call.gpu->ecc_volatile_uncorrected, call.gpu->ecc_aggregate_uncorrected}};
    return abi_give_u64(counts[error][counter], count);
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!status) return abi_end(CODE_INVALID_ARGUMENT);
    if (status->version != TAG(nvmlEccSramErrorStatus_t, 1u)) return abi_end(CODE_VERSION_MISMATCH);
    if (call.gpu->sram_uncorrected == ABSENT || call.gpu->sram_volatile == ABSENT || call.gpu->sram_threshold == ABSENT)
        return abi_end(CODE_NOT_SUPPORTED);
    unsigned version = status->version;
    memset(status, 0, sizeof *status);
    status->version = version;
    status->aggregateUncSecDed = (unsigned long long)call.gpu->sram_uncorrected;
    status->volatileUncParity = (unsigned long long)call.gpu->sram_volatile;
    status->bThresholdExceeded = (unsigned)call.gpu->sram_threshold;
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *processes) {
    Call call;
    int code = abi_begin_any(&call, __func__, device);
    if (code) return code;
    if (!count) return abi_end(CODE_INVALID_ARGUMENT);
    unsigned found = 0, room = processes ? *count : 0;
    for (int i = 0; i < call.state->process_count; i++) {
        const Process *process = &call.state->processes[i];
        if (process->gpu != call.index || (call.mig && (process->gi != call.mig->gi || process->ci != call.mig->ci))) continue;
        if (found++ >= room) continue;
        nvmlProcessInfo_t *out = &processes[found - 1];
        out->pid = (unsigned)process->pid;
        out->usedGpuMemory = process->used == ABSENT ? UINT64_MAX : (unsigned long long)process->used;
        out->gpuInstanceId = abi_instance(process->gi);
        out->computeInstanceId = abi_instance(process->ci);
    }
    int grew = processes && state_grows(call.state, __func__, call.index);
    *count = grew ? room + 1 : found;
    return abi_end(grew || found > room ? CODE_INSUFFICIENT_SIZE : CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *features) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!features) return abi_end(CODE_INVALID_ARGUMENT);
    memset(features, 0, sizeof *features);
    if (call.gpu->licence == ABSENT) return abi_end(CODE_OK);
    features->isGridLicenseSupported = 1;
    features->licensableFeaturesCount = 1;
    nvmlGridLicensableFeature_t *feature = &features->gridLicensableFeatures[0];
    feature->featureCode = 1;                               /* NVML_GRID_LICENSE_FEATURE_CODE_VGPU */
    feature->featureState = call.gpu->licence ? 1u : 0u;
    feature->featureEnabled = 1;                            /* the guest runs as a vGPU, licensed or not */
    snprintf(feature->productName, sizeof feature->productName, "NVIDIA Virtual Compute Server");
    snprintf(feature->licenseInfo, sizeof feature->licenseInfo, "%s", call.gpu->licence ? "Licensed" : "Unlicensed");
    if (call.gpu->licence_expiry == ABSENT) return abi_end(CODE_OK); /* status 0: no information */
    time_t expiry = (time_t)call.gpu->licence_expiry;
    struct tm when;
    gmtime_r(&expiry, &when);
    feature->licenseExpiry = (nvmlGridLicenseExpiry_t){
        .year = (uint32_t)when.tm_year + 1900, .month = (uint16_t)(when.tm_mon + 1), .day = (uint16_t)when.tm_mday,
        .hour = (uint16_t)when.tm_hour, .min = (uint16_t)when.tm_min, .sec = (uint16_t)when.tm_sec,
        .status = 2, /* NVML_GRID_LICENSE_EXPIRY_VALID */
    };
    return abi_end(CODE_OK);
}
