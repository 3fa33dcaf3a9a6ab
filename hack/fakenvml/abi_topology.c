/* Exports: NVLink, fabric, NUMA, and the field batch. */
#include "abi.h"

#include <stdio.h>
#include <string.h>

#define FABRIC_V2_TAG ((unsigned)(sizeof(nvmlGpuFabricInfo_v2_t) | 2u << 24u))
#define FABRIC_V3_TAG ((unsigned)(sizeof(nvmlGpuFabricInfo_v3_t) | 3u << 24u))

enum { /* field ids, nvidia-ml-py 13.615 */
    FIELD_LINK_COUNT = 91,
    FIELD_REMOTE_LINK = 146,
    FIELD_LINK_SPEED = 164,
    FIELD_LINK_STATE = 165,
    FIELD_RECOVERY_ACTION = 230,
};

static const Link *link_of(const Call *call, unsigned link, int *code) {
    *code = !call->gpu->nvlinks ? CODE_NOT_SUPPORTED : link >= call->gpu->nvlinks ? CODE_INVALID_ARGUMENT : CODE_OK;
    return *code ? NULL : &call->gpu->links[link];
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *is_active) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    const Link *found = link_of(&call, link, &code);
    return code ? abi_end(code) : abi_give_unsigned(found->state == 1, is_active);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    const Link *found = link_of(&call, link, &code);
    return code ? abi_end(code) : abi_give_unsigned(found->remote, type);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    const Link *found = link_of(&call, link, &code);
    if (code || !pci) return abi_end(code ? code : CODE_INVALID_ARGUMENT);
    if (!found->remote_pci[0]) return abi_end(CODE_NOT_SUPPORTED);
    abi_fill_pci(NULL, found->remote_pci, pci);
    return abi_end(CODE_OK);
}

static void fill_cluster(const Gpu *gpu, unsigned char *cluster) {
    for (size_t i = 0; i < 16; i++) {
        unsigned byte = 0;
        sscanf(gpu->fabric_uuid + 2 * i, "%2x", &byte);
        cluster[i] = (unsigned char)byte;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!info) return abi_end(CODE_INVALID_ARGUMENT);
    if (call.gpu->fabric_state == ABSENT) return abi_end(CODE_NOT_SUPPORTED);
    fill_cluster(call.gpu, info->clusterUuid);
    info->status = (unsigned)call.gpu->fabric_status;
    info->cliqueId = (unsigned)call.gpu->fabric_clique;
    info->state = (unsigned)call.gpu->fabric_state;
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!info) return abi_end(CODE_INVALID_ARGUMENT);
    const Gpu *gpu = call.gpu;
    int version = info->version == FABRIC_V3_TAG ? 3 : info->version == FABRIC_V2_TAG ? 2 : 99;
    if (version > gpu->fabric_version) return abi_end(CODE_VERSION_MISMATCH);
    if (gpu->fabric_state == ABSENT) return abi_end(CODE_NOT_SUPPORTED);
    fill_cluster(gpu, info->clusterUuid);
    info->status = (unsigned)gpu->fabric_status;
    info->cliqueId = (unsigned)gpu->fabric_clique;
    info->state = (unsigned)gpu->fabric_state;
    info->healthMask = (unsigned)gpu->fabric_mask;
    if (version == 3) info->healthSummary = (unsigned char)gpu->fabric_summary; /* beyond the end of a v2 */
    return abi_end(CODE_OK);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words, unsigned long *mask, unsigned scope) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!mask || !words || scope > 1) return abi_end(CODE_INVALID_ARGUMENT);
    if (!call.gpu->numa_memory.count) return abi_end(CODE_NOT_SUPPORTED);
    memset(mask, 0, words * sizeof *mask);
    for (int i = 0; i < call.gpu->numa_memory.count; i++) {
        unsigned long node = (unsigned long)call.gpu->numa_memory.values[i];
        if (node / 64 < words) mask[node / 64] |= 1ul << node % 64;
    }
    return abi_end(CODE_OK);
}

static int64_t built_in_field(const Gpu *gpu, unsigned id, unsigned scope) {
    const Link *link = scope < gpu->nvlinks ? &gpu->links[scope] : NULL;
    switch (id) {
    case FIELD_LINK_COUNT: return gpu->nvlinks ? gpu->nvlinks : ABSENT;
    case FIELD_LINK_SPEED: return link ? gpu->nvlink_mbps : ABSENT;
    case FIELD_LINK_STATE: return link ? link->state : ABSENT;
    case FIELD_REMOTE_LINK: return link ? link->remote_link : ABSENT;
    case FIELD_RECOVERY_ACTION: return gpu->recovery_action;
    default: return ABSENT;
    }
}

static void fill_field(const Call *call, nvmlFieldValue_t *field) {
    int64_t value = built_in_field(call->gpu, field->fieldId, field->scopeId);
    int code = value == ABSENT ? CODE_NOT_SUPPORTED : CODE_OK;
    for (int i = 0; i < call->state->field_count; i++) {
        const Field *own = &call->state->fields[i];
        if (own->gpu != call->index || own->id != field->fieldId || own->scope != field->scopeId) continue;
        code = own->error == ABSENT ? CODE_OK : (int)own->error;
        value = own->value;
    }
    field->timestamp = 0;
    field->latencyUsec = 0;
    field->nvmlReturn = (unsigned)code;
    field->valueType = 1; /* NVML_VALUE_TYPE_UNSIGNED_INT */
    memset(&field->value, 0, sizeof field->value);
    if (!code) field->value.ullVal = (unsigned long long)value;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!values || count < 1) return abi_end(CODE_INVALID_ARGUMENT);
    int succeeded = 0;
    for (int i = 0; i < count; i++) {
        fill_field(&call, &values[i]);
        succeeded |= values[i].nvmlReturn == CODE_OK;
    }
    /* The call succeeds if any field did; otherwise it fails as the first field did. */
    return abi_end(succeeded ? CODE_OK : (int)values[0].nvmlReturn);
}
