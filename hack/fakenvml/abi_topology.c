/* Exports: NVLink, fabric, PCIe pairs, NUMA, and the field batch. */
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

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, device);
    if (code) return code;
    if (!info) return abi_end(CODE_INVALID_ARGUMENT);
    const Gpu *gpu = call.gpu;
    int version = info->version == FABRIC_V3_TAG ? 3 : info->version == FABRIC_V2_TAG ? 2 : 99;
    if (version > gpu->fabric_version) return abi_end(CODE_VERSION_MISMATCH);
    if (gpu->fabric_state == ABSENT) return abi_end(CODE_NOT_SUPPORTED);
    for (int i = 0; i < 16; i++) {
        unsigned byte = 0;
        sscanf(gpu->fabric_uuid + 2 * (size_t)i, "%2x", &byte);
        info->clusterUuid[i] = (unsigned char)byte;
    }
    info->status = (unsigned)gpu->fabric_status;
    info->cliqueId = (unsigned)gpu->fabric_clique;
    info->state = (unsigned)gpu->fabric_state;
    info->healthMask = (unsigned)gpu->fabric_mask;
    if (version == 3) info->healthSummary = (unsigned char)gpu->fabric_summary; /* beyond the end of a v2 */
    return abi_end(CODE_OK);
}

static int index_of(const State *state, nvmlDevice_t handle) {
    for (int i = 0; i < state->gpu_count; i++)
        if (abi_gpu_handle(i) == handle) return i;
    return -1;
}

static const Pair *pair_of(const State *state, int a, int b) {
    for (int i = 0; i < state->pair_count; i++) {
        const Pair *pair = &state->pairs[i];
        if ((pair->a == a && pair->b == b) || (pair->a == b && pair->b == a)) return pair;
    }
    return NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned *level) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, a);
    if (code) return code;
    int other = index_of(call.state, b);
    if (other < 0) return abi_end(CODE_INVALID_ARGUMENT);
    const Pair *pair = pair_of(call.state, call.index, other);
    return abi_give_unsigned(other == call.index ? 0 : pair ? pair->level : ABSENT, level);
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, unsigned capability, unsigned *status) {
    Call call;
    int code = abi_begin_gpu(&call, __func__, a);
    if (code) return code;
    int other = index_of(call.state, b);
    if (other < 0) return abi_end(CODE_INVALID_ARGUMENT);
    const Pair *pair = pair_of(call.state, call.index, other);
    if (pair && capability >= (unsigned)pair->p2p.count) return abi_end(CODE_INVALID_ARGUMENT);
    return abi_give_unsigned(pair ? pair->p2p.values[capability] : ABSENT, status);
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

/* CODE_OK, or why this one field has no value; the batch itself succeeds either way. */
static int built_in_field(const Call *call, unsigned id, unsigned scope, int64_t *value) {
    int code = CODE_OK;
    const Gpu *gpu = call->gpu;
    const Link *link;
    switch (id) {
    case FIELD_LINK_COUNT: *value = gpu->nvlinks ? gpu->nvlinks : ABSENT; break;
    case FIELD_RECOVERY_ACTION: *value = gpu->recovery_action; break;
    case FIELD_LINK_SPEED: *value = gpu->nvlinks ? gpu->nvlink_mbps : ABSENT; break;
    case FIELD_LINK_STATE:
        link = link_of(call, scope, &code);
        *value = link ? link->state : ABSENT;
        break;
    case FIELD_REMOTE_LINK:
        link = link_of(call, scope, &code);
        *value = link ? link->remote_link : ABSENT;
        break;
    default: *value = ABSENT;
    }
    return code ? code : *value == ABSENT ? CODE_NOT_SUPPORTED : CODE_OK;
}

static void fill_field(const Call *call, nvmlFieldValue_t *field) {
    int64_t value = 0;
    int code = built_in_field(call, field->fieldId, field->scopeId, &value);
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
