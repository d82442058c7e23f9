/* Part of every native library: may this CPU run it, arguments from NumPy, one call, scratch memory.
 *
 * The compiled kernels take a pointer to their arguments in 8-byte slots, as Numba stores them. They
 * call Numba's runtime for scratch arrays only; the functions here replace it. No function of Python
 * is called: the library serves every version of it. build.py defines CPU_HAS_FEATURES.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#ifdef NEEDS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Whether the CPU and the operating system support the tier; libgcc asks CPUID and XGETBV. */
int fc_supported(void) {
    __builtin_cpu_init();
    if (!(CPU_HAS_FEATURES)) return 0;
#ifdef NEEDS_TILES
    /* Linux grants the state of the tile registers on request: ARCH_REQ_XCOMP_PERM, XTILEDATA */
    if (syscall(SYS_arch_prctl, 0x1023, 18) != 0) return 0;
#endif
    return 1;
}

/* The fields of a NumPy array after the head of the Python object: NumPy's public C struct. */
typedef struct {
    char *data;
    int nd;
    intptr_t *shape, *strides;
    void *base;
    char *descr;
    int flags;
} Array;

/* The fields of a dtype after the head. */
typedef struct {
    void *type_object;
    char kind, type, byteorder, former_flags;
    int type_number;
} Descr;

/* What an argument must be; type_number < 0: a number, stored as it is. */
typedef struct {
    int64_t type_number, itemsize, nd, flags_mask, flags;
} Kind;

/* Fill the slots from the values, numbers or addresses of arrays; 0 if an array is of another kind.
 * head: size of the head of a Python object. */
int fc_pack(const Kind *kinds, int64_t n, const int64_t *values, int64_t head, int64_t *slots) {
    for (int64_t i = 0; i < n; i++) {
        const Kind *kind = &kinds[i];
        if (kind->type_number < 0) {
            *slots++ = values[i];
            continue;
        }
        const Array *array = (const Array *)(values[i] + head);
        const Descr *descr = (const Descr *)(array->descr + head);
        if (array->nd != kind->nd || descr->type_number != kind->type_number) return 0;
        if ((array->flags & kind->flags_mask) != kind->flags || descr->byteorder == '>') return 0;
        int64_t items = 1;
        for (int d = 0; d < array->nd; d++) items *= array->shape[d];
        *slots++ = 0; /* owner of the memory: the caller */
        *slots++ = 0;
        *slots++ = items;
        *slots++ = kind->itemsize;
        *slots++ = (int64_t)array->data;
        for (int d = 0; d < array->nd; d++) *slots++ = array->shape[d];
        for (int d = 0; d < array->nd; d++) *slots++ = array->strides[d];
    }
    return 1;
}

static __thread int out_of_memory;

/* Run a kernel on rows [lo, hi): 0, 1 if memory ran out, 2 after another error. */
int fc_call(int (*kernel)(void **, void **, int64_t, int64_t, void *), int64_t lo, int64_t hi,
            void *slots) {
    void *result = NULL, *error = NULL;
    out_of_memory = 0;
    int status = kernel(&result, &error, lo, hi, slots);
    if (status == 0 || status == -2) return 0; /* -2: it returned None */
    return out_of_memory ? 1 : 2;
}

/* Numba's runtime, as far as kernels use it. */
typedef struct {
    size_t references;
    void (*destructor)(void *, size_t, void *);
    void *destructor_info, *data;
    size_t size;
    void *external;
} MemInfo;

void *NRT_Allocate(size_t size) {
    void *memory = malloc(size);
    if (!memory) out_of_memory = 1;
    return memory;
}

void NRT_Free(void *memory) { free(memory); }

MemInfo *NRT_MemInfo_alloc_aligned(size_t size, uint32_t align) {
    size_t extra = sizeof(MemInfo) + 2 * (size_t)align;
    MemInfo *info = size > SIZE_MAX - extra ? NULL : NRT_Allocate(size + extra);
    if (!info) {
        out_of_memory = 1;
        return NULL;
    }
    uintptr_t data = ((uintptr_t)(info + 1) + align - 1) / align * align;
    *info = (MemInfo){1, NULL, NULL, (void *)data, size, NULL};
    return info;
}

MemInfo *NRT_MemInfo_alloc(size_t size) { return NRT_MemInfo_alloc_aligned(size, 16); }

void NRT_MemInfo_call_dtor(MemInfo *info) { free(info); }

/* Numba formats the message of an error in lists and strings, which fc_call never reads. There is no
 * memory for lists: the kernel then ends with another error. The functions of Python are not called. */
void *NRT_MemInfo_new_varsize_dtor(void) { return NULL; }
void *NRT_MemInfo_varsize_realloc(void) { return NULL; }
void PyErr_SetString(void) { abort(); }
void PyObject_Hash(void) { abort(); }
void PyTuple_Pack(void) { abort(); }
void PyUnicode_FromKindAndData(void) { abort(); }
void *PyExc_RuntimeError;

/* Strides of a contiguous array in another shape; 0, an error in the kernel, for other arrays. */
int numba_attempt_nocopy_reshape(intptr_t nd, const intptr_t *shape, const intptr_t *strides,
                                 intptr_t new_nd, const intptr_t *new_shape, intptr_t *new_strides,
                                 intptr_t itemsize, int is_f_order) {
    intptr_t step = itemsize;
    for (intptr_t d = nd - 1; d >= 0; d--) {
        if (shape[d] != 1 && strides[d] != step) return 0;
        step *= shape[d];
    }
    if (is_f_order) return 0;
    step = itemsize;
    for (intptr_t d = new_nd - 1; d >= 0; d--) {
        new_strides[d] = step;
        step *= new_shape[d];
    }
    return 1;
}
