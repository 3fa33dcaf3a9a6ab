/* The state file's grammar: one record a line, `kind key=value ...`, every key exactly once, "-" where a board lacks it.
 *
 * Strict on purpose: a typo that read as a default would be a healthy GPU. Text values are percent-encoded. */
#include "state.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { NUMBER, TEXT, LIST } Kind;

typedef struct {
    const char *name;
    Kind kind;
    size_t offset;
    int64_t min, max;
    int nullable;
} Key;

#define N(type, field, min, max) {#field, NUMBER, offsetof(type, field), min, max, 0}
#define O(type, field, min, max) {#field, NUMBER, offsetof(type, field), min, max, 1}
#define T(type, field) {#field, TEXT, offsetof(type, field), 0, 0, 0}
#define L(type, field) {#field, LIST, offsetof(type, field), 0, INT64_MAX, 1}
#define MAX INT64_MAX
#define U32 INT64_C(0xFFFFFFFF)
#define GPU (MAX_GPUS - 1)

static const Key SYSTEM_KEYS[] = {
    N(System, boot, 0, MAX), O(System, counted, 0, MAX_GPUS), T(System, driver), {0}};

static const Key GPU_KEYS[] = {
    N(Gpu, index, 0, GPU), N(Gpu, minor, 0, 255), N(Gpu, pci_device, 0, U32), N(Gpu, pci_subsystem, 0, U32),
    N(Gpu, memory, 0, MAX), N(Gpu, used, 0, MAX), N(Gpu, reserved, 0, MAX), O(Gpu, busy, 0, 100),
    O(Gpu, memory_busy, 0, 100), O(Gpu, persistence, 0, 1), O(Gpu, mig_current, 0, 1), O(Gpu, mig_pending, 0, 1),
    N(Gpu, mig_max, 0, MAX_MIG), N(Gpu, lost, 0, 1), N(Gpu, reset_required, 0, 1), N(Gpu, needs_reboot, 0, 1),
    N(Gpu, resets, 0, MAX), O(Gpu, recovery_action, 0, 7), O(Gpu, remap_correctable, 0, U32),
    O(Gpu, remap_uncorrectable, 0, U32), O(Gpu, remap_pending, 0, 1), O(Gpu, remap_failed, 0, 1),
    O(Gpu, retired_pending, 0, 1), O(Gpu, ecc_volatile_corrected, 0, MAX), O(Gpu, ecc_volatile_uncorrected, 0, MAX),
    O(Gpu, ecc_aggregate_corrected, 0, MAX), O(Gpu, ecc_aggregate_uncorrected, 0, MAX),
    O(Gpu, sram_uncorrected, 0, MAX), O(Gpu, sram_volatile, 0, MAX), O(Gpu, sram_threshold, 0, 1), N(Gpu, fabric_version, 0, 3),
    O(Gpu, fabric_state, 0, 3), N(Gpu, fabric_status, 0, 999), N(Gpu, fabric_clique, 0, U32),
    N(Gpu, fabric_mask, 0, U32), N(Gpu, fabric_summary, 0, 3), N(Gpu, nvlinks, 0, MAX_LINKS),
    N(Gpu, nvlink_mbps, 0, U32), N(Gpu, numa_node, -1, 1023), O(Gpu, clocks, 0, MAX),
    O(Gpu, temperature, -100, 200), O(Gpu, power_mw, 0, U32), N(Gpu, events, 0, MAX), O(Gpu, drain, 0, 1),
    O(Gpu, licence, 0, 1), O(Gpu, licence_expiry, 0, MAX), L(Gpu, numa_memory), T(Gpu, uuid), T(Gpu, name), T(Gpu, pci),
    T(Gpu, fabric_uuid), {0}};

static const Key LINK_KEYS[] = {
    N(Link, gpu, 0, GPU), N(Link, link, 0, MAX_LINKS - 1), N(Link, state, 0, 3), O(Link, remote, 0, 255),
    O(Link, remote_link, 0, MAX_LINKS), T(Link, remote_pci), {0}};

static const Key MIG_KEYS[] = {
    N(Mig, gpu, 0, GPU), N(Mig, slot, 0, MAX_MIG - 1), N(Mig, gi, 0, MAX_GI - 1), N(Mig, ci, 0, 7), N(Mig, profile, 0, 255),
    N(Mig, start, 0, 11), N(Mig, size, 1, 12), N(Mig, compute_slices, 1, 8), N(Mig, gpu_slices, 1, 8), N(Mig, sm, 1, U32),
    N(Mig, memory_mib, 1, MAX), T(Mig, uuid), T(Mig, name), {0}};

static const Key PROCESS_KEYS[] = {
    N(Process, gpu, 0, GPU), N(Process, pid, 1, U32), O(Process, used, 0, MAX), O(Process, gi, 0, U32),
    O(Process, ci, 0, U32), {0}};

static const Key FAULT_KEYS[] = {
    O(Fault, gpu, 0, GPU), O(Fault, error, 1, 999), O(Fault, slow_ms, 1, MAX), N(Fault, hang, 0, 1),
    N(Fault, segfault, 0, 1), N(Fault, grow, 0, 1), O(Fault, times, 1, MAX), T(Fault, fn), {0}};

static const Key FIELD_KEYS[] = {
    N(Field, gpu, 0, GPU), N(Field, id, 1, U32), N(Field, scope, 0, U32), N(Field, value, INT64_MIN + 1, MAX),
    O(Field, error, 1, 999), {0}};

static const Key EVENT_KEYS[] = {
    N(Event, seq, 1, MAX), N(Event, gpu, 0, GPU), N(Event, type, 1, MAX), N(Event, data, 0, MAX), O(Event, gi, 0, U32),
    O(Event, ci, 0, U32), {0}};

static const char *const FUNCTIONS[] = {
    "*",
#define FUNCTION(name) #name,
#include "functions.def"
#undef FUNCTION
    NULL};

typedef union {
    System system;
    Gpu gpu;
    Link link;
    Mig mig;
    Process process;
    Fault fault;
    Field field;
    Event event;
} Record;

static const char *add_system(State *s, const Record *r) {
    if (s->systems++) return "a second system line";
    s->system = r->system;
    return NULL;
}

static const char *add_gpu(State *s, const Record *r) {
    if (r->gpu.index != s->gpu_count) return "index: gpu lines must be in order";
    if (!r->gpu.uuid[0] || !r->gpu.pci[0]) return "uuid and pci must not be empty";
    s->gpus[s->gpu_count++] = r->gpu;
    return NULL;
}

static const char *add_link(State *s, const Record *r) {
    if (r->link.gpu >= s->gpu_count) return "gpu: no such gpu";
    if (r->link.link >= s->gpus[r->link.gpu].nvlinks) return "link: beyond the gpu's nvlinks";
    s->gpus[r->link.gpu].links[r->link.link] = r->link;
    return NULL;
}

static const char *add_mig(State *s, const Record *r) {
    if (r->mig.gpu >= s->gpu_count) return "gpu: no such gpu";
    if (r->mig.slot >= s->gpus[r->mig.gpu].mig_max) return "slot: beyond the gpu's mig_max";
    if (!r->mig.uuid[0]) return "uuid: must not be empty";
    s->gpus[r->mig.gpu].mig[r->mig.slot] = r->mig;
    return NULL;
}

static const char *add_process(State *s, const Record *r) {
    if (r->process.gpu >= s->gpu_count) return "gpu: no such gpu";
    if (s->process_count == MAX_PROCESSES) return "too many lines of this kind";
    s->processes[s->process_count++] = r->process;
    return NULL;
}

static const char *add_fault(State *s, const Record *r) {
    const Fault *f = &r->fault;
    int known = 0;
    for (int i = 0; FUNCTIONS[i]; i++) known |= strcmp(FUNCTIONS[i], f->fn) == 0;
    if (!known) return "fn: no such function";
    if (f->gpu != ABSENT && f->gpu >= s->gpu_count) return "gpu: no such gpu";
    if ((f->error != ABSENT) + (f->slow_ms != ABSENT) + (f->hang != 0) + (f->segfault != 0) + (f->grow != 0) != 1)
        return "exactly one of error, slow_ms, hang, segfault, grow";
    if (s->fault_count == MAX_FAULTS) return "too many lines of this kind";
    s->faults[s->fault_count++] = *f;
    return NULL;
}

static const char *add_field(State *s, const Record *r) {
    if (r->field.gpu >= s->gpu_count) return "gpu: no such gpu";
    if (s->field_count == MAX_FIELDS) return "too many lines of this kind";
    s->fields[s->field_count++] = r->field;
    return NULL;
}

static const char *add_event(State *s, const Record *r) {
    if (r->event.gpu >= s->gpu_count) return "gpu: no such gpu";
    if (s->event_count == MAX_EVENTS) return "too many lines of this kind";
    if (s->event_count && s->events[s->event_count - 1].seq >= r->event.seq) return "seq: must rise";
    s->events[s->event_count++] = r->event;
    return NULL;
}

static const struct {
    const char *name;
    const Key *keys;
    const char *(*add)(State *, const Record *);
} LINES[] = {
    {"system", SYSTEM_KEYS, add_system},
    {"gpu", GPU_KEYS, add_gpu},
    {"link", LINK_KEYS, add_link},
    {"mig", MIG_KEYS, add_mig},
    {"process", PROCESS_KEYS, add_process},
    {"fault", FAULT_KEYS, add_fault},
    {"field", FIELD_KEYS, add_field},
    {"event", EVENT_KEYS, add_event},
};

static const char *read_number(const char *text, const Key *key, int64_t *out) {
    if (strcmp(text, "-") == 0) {
        *out = ABSENT;
        return key->nullable ? NULL : "must be a number";
    }
    char *end;
    errno = 0;
    /* strtoll alone would take " 1" and "+1" too. */
    if (!isdigit((unsigned char)text[0]) && !(text[0] == '-' && isdigit((unsigned char)text[1]))) return "must be a number";
    long long value = strtoll(text, &end, 10);
    if (*end) return "must be a number";
    if (errno || value < key->min || value > key->max) return "out of range";
    *out = value;
    return NULL;
}

static const char *read_list(char *text, const Key *key, List *out) {
    out->count = 0;
    if (strcmp(text, "-") == 0) return NULL;
    Key item = *key;
    item.nullable = 0;
    for (char *part; (part = strsep(&text, ","));) {
        if (out->count == MAX_LIST) return "list too long";
        const char *wrong = read_number(part, &item, &out->values[out->count++]);
        if (wrong) return wrong;
    }
    return NULL;
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static const char *read_text(const char *text, char *out) {
    size_t n = 0;
    for (; *text; text++) {
        char c = *text;
        if (c == '%') {
            if (hex(text[1]) < 0 || hex(text[2]) < 0) return "bad percent encoding";
            c = (char)(hex(text[1]) * 16 + hex(text[2]));
            text += 2;
        }
        if (n == TEXT_SIZE - 1 || c == 0) return "text too long, or with a zero byte";
        out[n++] = c;
    }
    out[n] = 0;
    return NULL;
}

static const char *read_value(char *text, const Key *key, Record *record) {
    void *field = (char *)record + key->offset;
    switch (key->kind) {
    case NUMBER: return read_number(text, key, field);
    case LIST: return read_list(text, key, field);
    case TEXT: return read_text(text, field);
    }
    return "unknown kind of key";
}

/* Read `key=value ...` into `record`; NULL, or what is wrong with `*name` naming the key. */
static const char *read_pairs(char *rest, const Key *keys, Record *record, const char **name) {
    uint64_t seen = 0;
    for (char *token; (token = strsep(&rest, " "));) {
        if (!*token) continue;
        char *value = strchr(token, '=');
        *name = token;
        if (!value) return "not key=value";
        *value++ = 0;
        int k = 0;
        while (keys[k].name && strcmp(keys[k].name, token) != 0) k++;
        if (!keys[k].name) return "unknown key";
        if (seen & (UINT64_C(1) << k)) return "given twice";
        seen |= UINT64_C(1) << k;
        const char *wrong = read_value(value, &keys[k], record);
        if (wrong) return wrong;
    }
    for (int k = 0; keys[k].name; k++) {
        *name = keys[k].name;
        if (!(seen & (UINT64_C(1) << k))) return "missing";
    }
    *name = "line";
    return NULL;
}

static const char *read_line(char *line, State *state, Record *record, const char **name) {
    char *rest = line;
    char *kind = strsep(&rest, " ");
    *name = kind;
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        if (strcmp(LINES[i].name, kind) != 0) continue;
        memset(record, 0, sizeof *record);
        const char *wrong = read_pairs(rest, LINES[i].keys, record, name);
        return wrong ? wrong : LINES[i].add(state, record);
    }
    return "unknown kind of line";
}

int state_parse(char *text, State *state, char *why, size_t why_size) {
    memset(state, 0, sizeof *state);
    Record record;
    int number = 0;
    const char *wrong = NULL;
    const char *name = "file";
    for (char *line; !wrong && (line = strsep(&text, "\n"));) {
        number++;
        if (number == 1) {
            wrong = strcmp(line, "fakenvml 1") ? "the first line must be `fakenvml 1`" : NULL;
        } else if (*line && *line != '#') {
            wrong = read_line(line, state, &record, &name);
        }
    }
    if (!wrong && !state->systems) wrong = "no system line";
    if (wrong) snprintf(why, why_size, "line %d: %s: %s", number, name, wrong);
    return wrong ? -1 : 0;
}
