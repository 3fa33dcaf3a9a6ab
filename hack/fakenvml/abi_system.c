/* Exports: init and shutdown, the driver's version, enumeration, and the sizes that the ABI test asks for. */
#include "abi.h"

#include <string.h>

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return state_init(__func__);
}

EXPORT nvmlReturn_t nvmlShutdown(void) { return state_shutdown(__func__); }

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size) {
    Call call;
    int code = abi_begin(&call, __func__);
    return code ? code : abi_give_text(call.state->system.driver, version, size);
}

static int counted(const State *state) {
    return state->system.counted == ABSENT ? state->gpu_count : (int)state->system.counted;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    Call call;
    int code = abi_begin(&call, __func__);
    return code ? code : abi_give_unsigned(counted(call.state), count);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    Call call;
    int code = abi_begin(&call, NULL);
    if (code) return code;
    int there = index < (unsigned)call.state->gpu_count, expected = index < (unsigned)counted(call.state);
    abi_end(CODE_OK);
    /* Under its own index, so that its own faults and condition count. */
    code = there && expected ? abi_begin_any(&call, __func__, abi_gpu_handle((int)index)) : abi_begin(&call, __func__);
    if (code) return code;
    if (!device || !expected) return abi_end(CODE_INVALID_ARGUMENT);
    if (!there) return abi_end(CODE_NOT_FOUND);
    *device = abi_gpu_handle((int)index);
    return abi_end(CODE_OK);
}

static int has_pci(const Gpu *gpu, const char *bus_id) {
    nvmlPciInfo_t own, wanted;
    abi_fill_pci(NULL, gpu->pci, &own);
    abi_fill_pci(NULL, bus_id, &wanted);
    return strcmp(own.busId, wanted.busId) == 0;
}

EXPORT nvmlReturn_t nvmlDeviceQueryDrainState(nvmlPciInfo_t *pci, unsigned *state) {
    Call call;
    int code = abi_begin(&call, __func__);
    if (code) return code;
    if (!pci) return abi_end(CODE_INVALID_ARGUMENT);
    for (int i = 0; i < call.state->gpu_count; i++)
        if (has_pci(&call.state->gpus[i], pci->busId)) return abi_give_unsigned(call.state->gpus[i].drain, state);
    return abi_end(CODE_NOT_FOUND);
}

#define SIZE(type) {#type, sizeof(type)}
static const struct {
    const char *name;
    size_t size;
} SIZES[] = {
    SIZE(nvmlPciInfo_t), SIZE(nvmlMemory_t), SIZE(nvmlMemory_v2_t), SIZE(nvmlUtilization_t), SIZE(nvmlDeviceAttributes_t),
    SIZE(nvmlGpuInstancePlacement_t), SIZE(nvmlGpuInstanceInfo_t), SIZE(nvmlValue_t), SIZE(nvmlFieldValue_t), SIZE(nvmlEccSramErrorStatus_t),
    SIZE(nvmlGpuFabricInfo_t), SIZE(nvmlGpuFabricInfo_v2_t), SIZE(nvmlGpuFabricInfo_v3_t), SIZE(nvmlTemperature_t), SIZE(nvmlProcessInfo_t),
    SIZE(nvmlEventData_t), SIZE(nvmlGridLicenseExpiry_t), SIZE(nvmlGridLicensableFeature_t),
    SIZE(nvmlGridLicensableFeatures_t),
};

/* 0 for a type that the fake does not know. */
EXPORT unsigned long fakenvml_sizeof(const char *name) {
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        if (strcmp(SIZES[i].name, name) == 0) return SIZES[i].size;
    return 0;
}
