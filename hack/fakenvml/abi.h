/* What the exports share: a call's frame, and handles.
 *
 * A handle is the address of a slot, not of a device: after MIG is reconfigured, or a GPU is swapped, the same handle means
 * whatever is there now. That is how the real library behaves, and why a reader must resolve handles anew each cycle. */
#ifndef FAKENVML_ABI_H
#define FAKENVML_ABI_H

#include "nvml_types.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct {
    State *state;
    Gpu *gpu;
    Mig *mig; /* NULL: the handle is a whole GPU */
    const char *fn;
    int index;
} Call;

nvmlDevice_t abi_gpu_handle(int gpu);
nvmlDevice_t abi_mig_handle(int gpu, int slot);
nvmlGpuInstance_t abi_gi_handle(int gpu, int gi);
int abi_gi_of(nvmlGpuInstance_t handle, int *gpu, int *gi);

/* What NVML prints for "the whole GPU, not an instance". */
unsigned abi_instance(int64_t id);

/* Enter a call about nothing, a GPU, or a GPU or MIG device. Not CODE_OK: return it; else end with abi_end.
 * `fn` NULL looks at the state without letting a fault happen. */
int abi_begin(Call *call, const char *fn);
int abi_begin_gpu(Call *call, const char *fn, nvmlDevice_t handle);
int abi_begin_any(Call *call, const char *fn, nvmlDevice_t handle);
int abi_begin_gi(Call *call, const char *fn, nvmlGpuInstance_t handle, int *gi);
int abi_end(int code);

/* End the call with a value: NOT_SUPPORTED for ABSENT, INVALID_ARGUMENT for no place to put it. */
int abi_give_unsigned(int64_t value, unsigned *out);
int abi_give_u64(int64_t value, unsigned long long *out);
int abi_give_text(const char *value, char *out, unsigned size);

void abi_fill_pci(const Gpu *gpu, const char *bus_id, nvmlPciInfo_t *out);

#endif
