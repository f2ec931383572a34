// Runs megakernel.cu on a CPU. Every thread of every block is a fiber with its own stack; a fiber runs until it waits for its
// warp, its block or a message. Blocks run in an order that a seed shuffles, some of them rarely, so that messages come early
// and late. Memory is that of one processor: what the GPU's weaker ordering would allow is not tried.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#define EMULATED
#define FN inline
#define __host__
#define __device__
#define __global__
#define __expf expf

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct Index {
    int x;
};
static Index threadIdx, blockIdx;

// Switch to another stack; x86-64 only.
extern "C" void switch_stack(void** from, void* to);
asm(R"(
.globl switch_stack
switch_stack:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

constexpr int STACK = 1 << 15, MAX_BLOCKS = 1024, LANES_OF_WARP = 32, BLOCK_THREADS = 256, BLOCK_WARPS = BLOCK_THREADS / 32;
struct Fiber {
    void* stack_pointer;
    int block, thread;
    bool is_done;
};
struct Meeting {  // of a warp or of a block
    int arrived, count;
};
static Fiber* running;
static void* scheduler;
static Meeting blocks[MAX_BLOCKS], warps[MAX_BLOCKS][BLOCK_WARPS];
static uint32_t lanes[MAX_BLOCKS][BLOCK_WARPS][LANES_OF_WARP];

static void run_others() { switch_stack(&running->stack_pointer, scheduler); }
static void meet(Meeting& meeting, int all) {
    const int before = meeting.count;
    if (++meeting.arrived == all)
        meeting.arrived = 0, ++meeting.count;
    else
        while (meeting.count == before) run_others();
}
static void __syncthreads() { meet(blocks[running->block], BLOCK_THREADS); }
template <class Value>
static Value __shfl_xor_sync(unsigned, Value value, int by) {
    const int warp = running->thread / 32, lane = running->thread % 32;
    auto& shared = lanes[running->block][warp];
    Meeting& meeting = warps[running->block][warp];
    memcpy(&shared[lane], &value, 4);
    meet(meeting, 32);
    memcpy(&value, &shared[lane ^ by], 4);
    meet(meeting, 32);
    return value;
}
static float __uint_as_float(unsigned u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static unsigned __float_as_uint(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}

// The memory that the kernel may read as vectors and as messages; anything else is counted. No ranges: not checked.
struct Range {
    const char* first;
    size_t bytes;
};
static const Range* ranges;
static int range_count, outside, silent_block;
static bool is_readable(const void* p, size_t bytes) {
    if (range_count == 0) return true;
    for (int i = 0; i < range_count; ++i)
        if (p >= ranges[i].first && (const char*)p + bytes <= ranges[i].first + ranges[i].bytes) return true;
    ++outside;
    return false;
}
template <class T>
static uint4 load_weights(const T* p) {
    uint4 v = {0, 0, 0, 0};
    if (is_readable(p, 16)) memcpy(&v, p, 16);
    return v;
}
static void post(unsigned long long* p, unsigned value, unsigned epoch) {
    if (running->block != silent_block && is_readable(p, 8)) *p = (unsigned long long)epoch << 32 | value;
}
static void look(const unsigned long long* p, unsigned long long& a, unsigned long long& b) {
    run_others();
    a = b = 0;
    if (is_readable(p, 16) && (uintptr_t)p % 16 == 0) a = p[0], b = p[1];
}
static int read_flag(const int* p) { return *p; }
static void raise_flag(int* p) { *p = 1; }

#include SOURCE

static Arguments arguments;
static std::vector<Shared*> shared;
static void entry() {
    megakernel(arguments, *shared[running->block]);
    running->is_done = true;
    for (;;) run_others();
}
static uint32_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

extern "C" int mail_words() { return MAIL_WORDS; }
extern "C" int shared_bytes() { return sizeof(Shared); }

// Run a launch; return how many reads were outside of the ranges. Messages of `silent` (−1: of no block) get lost.
extern "C" int run(const Arguments* given, const Range* allowed, int count, int seed, int silent) {
    arguments = *given, ranges = allowed, range_count = count, outside = 0, silent_block = silent;
    random_state = seed;
    memset(blocks, 0, sizeof blocks);
    memset(warps, 0, sizeof warps);
    shared.assign(BLOCKS, nullptr);
    for (auto& s : shared) {
        s = (Shared*)aligned_alloc(64, (sizeof(Shared) + 63) / 64 * 64);
        memset((void*)s, 0xff, sizeof(Shared));  // not numbers
    }
    const size_t threads = (size_t)BLOCKS * BLOCK_THREADS;
    char* stacks = (char*)aligned_alloc(4096, threads * STACK);
    std::vector<Fiber> fibers(threads);
    for (size_t i = 0; i < threads; ++i) {
        void** top = (void**)(stacks + (i + 1) * STACK - i % 61 * 64);  // at different places in the CPU's cache
        *--top = nullptr, *--top = (void*)entry;
        for (int k = 0; k < 6; ++k) *--top = nullptr;
        fibers[i] = {top, (int)(i / BLOCK_THREADS), (int)(i % BLOCK_THREADS), false};
    }
    for (bool is_left = true; is_left;) {
        is_left = false;
        const int start = seed ? random_below(BLOCKS) : 0, rare = seed ? random_below(BLOCKS) : -1;
        for (int b = 0; b < BLOCKS; ++b) {
            const int block = (b + start) % BLOCKS;
            const int turns = block == rare ? 0 : seed ? 1 + random_below(3) : 1;
            for (int i = 0; i < BLOCK_THREADS; ++i) is_left |= !fibers[block * BLOCK_THREADS + i].is_done;
            for (int turn = 0; turn < turns; ++turn)
                for (int i = 0; i < BLOCK_THREADS; ++i) {
                    Fiber& fiber = fibers[block * BLOCK_THREADS + i];
                    if (fiber.is_done) continue;
                    running = &fiber, threadIdx.x = fiber.thread, blockIdx.x = fiber.block;
                    switch_stack(&scheduler, fiber.stack_pointer);
                }
        }
    }
    free(stacks);
    for (auto s : shared) free(s);
    return outside;
}

// The CUDA driver's functions that cooperative.py calls, for one GPU that runs the emulator. What it has can be set.
static void *const CONTEXT = (void*)0x7000000000000001, *const MODULE = (void*)0x7000000000000002;
static void *const LAYOUT = (void*)0x7000000000000003, *const KERNEL = (void*)0x7000000000000004;
static void* const STREAM = (void*)0x7000000000000005;
static int cooperative_launch, shared_memory, blocks_per_processor, launch_status, contexts, prepared;

extern "C" void set_gpu(int cooperative, int memory, int resident, int status) {
    cooperative_launch = cooperative, shared_memory = memory, blocks_per_processor = resident, launch_status = status;
    contexts = prepared = 0;
}
extern "C" int context_depth() { return contexts; }

extern "C" int cuGetErrorString(int status, const char** text) {
    *text = status == 720 ? "too many blocks in cooperative launch" : nullptr;
    return *text ? 0 : 1;
}
extern "C" int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 95 ? cooperative_launch : attribute == 97 ? shared_memory : 0;
    return 0;
}
extern "C" int cuDevicePrimaryCtxRetain(void** context, int) { return *context = CONTEXT, 0; }
extern "C" int cuCtxPushCurrent_v2(void* context) { return ++contexts, context == CONTEXT ? 0 : 201; }
extern "C" int cuCtxPopCurrent_v2(void** context) { return --contexts, *context = nullptr, 0; }
extern "C" int cuModuleLoadData(void** module, const void* image) {
    *module = MODULE;
    return memcmp(image, "cubin\0\1", 7) ? 200 : 0;
}
extern "C" int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = !strcmp(name, "layout") ? LAYOUT : !strcmp(name, "megakernel") ? KERNEL : nullptr;
    return module == MODULE && *function && contexts ? 0 : 500;
}
extern "C" int cuLaunchKernel(
    void* function, int, int, int, int, int, int, int, void* stream, void** parameters, void** extra) {
    if (function != LAYOUT || stream != STREAM || extra || !contexts) return 400;
    layout(*(int**)parameters[0]);
    return 0;
}
extern "C" int cuFuncSetAttribute(void* function, int attribute, int value) {
    prepared = value;
    return function == KERNEL && attribute == 8 && value <= shared_memory ? 0 : 1;
}
extern "C" int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* resident, void* function, int threads, size_t memory) {
    *resident = blocks_per_processor;
    return function == KERNEL && threads == BLOCK_THREADS && memory == sizeof(Shared) ? 0 : 1;
}
extern "C" int cuLaunchCooperativeKernel(
    void* function, int x, int y, int z, int across, int down, int deep, int memory, void* stream, void** parameters) {
    if (launch_status) return launch_status;
    const bool grid = x == BLOCKS && y == 1 && z == 1 && across == BLOCK_THREADS && down == 1 && deep == 1;
    if (function != KERNEL || !grid || memory != prepared || memory != sizeof(Shared)) return 1;
    if (stream != STREAM || !contexts) return 1;
    run((const Arguments*)parameters[0], nullptr, 0, 0, -1);
    return 0;
}
