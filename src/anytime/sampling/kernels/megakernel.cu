// All steps of the Transformer prior for a few rows in one launch.
//
// A step of the graph path is 45 small kernels, and starting them takes longer than reading all weights. Here BLOCKS thread
// blocks stay on the GPU, one on each multiprocessor, and share out the outputs of every matrix product. They exchange
// activations through the L2 cache. Each thread asks for its next weights before it waits for activations, so the reads and the
// exchange overlap. One read of the weights serves all rows.
//
// Messages. A message is a 64-bit word: a value of 32 bits and the epoch, the number of the layer since the mail was
// allocated. It is written and read in one access, so a word with the right epoch holds the right value. No fence and no
// barrier of the grid is needed, and nothing else is passed between blocks within a launch.
//
// A word is overwritten in the next layer, and no block may have missed it by then:
// - Every block sends HIDDEN words, and does so after it has received everything sent before them. Every block waits for all
//   HIDDEN words. So when a block goes on, all others have read the QKV, ATTENDED and OUT words of this layer, the DOWN words
//   of the layer before and the BEST words of the step before. All of them are overwritten later than that.
// - Every block sends DOWN words after it has received all HIDDEN words, and waits for all DOWN words. So all HIDDEN words are
//   read before the first one of the next layer is sent.
// This needs at least one word of HIDDEN and one of DOWN for each block, which the assertions below check.
//
// Ends. All blocks must run at the same time, which a cooperative launch guarantees, and every wait is for a message that its
// sender posts unconditionally. Should one be missing all the same, `Inbox` gives up after PATIENCE looks and reports it in
// `failed`; the launch ends soon after with codes that are in range but meaningless.
//
// Macros: LAYERS, WIDTH, HIDDEN, HEADS, LENGTH and CODEBOOK of the prior; ROWS of the batch (1, 2, 4 or 8); BLOCKS of the grid;
// BF16, which is 1 for weights, activations and KV cache in bf16, 0 for float32. Sums and layer norms are in float32.
// The roundings are those of the cuda engine's other kernels, and the buffers are those of its `StepBuffers`. For experiments,
// PATIENCE and EXCHANGE_ATTENTION may be set too.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef PATIENCE
#define PATIENCE (1 << 20)  // looks at a message, about half a second
#endif
#ifndef EXCHANGE_ATTENTION
#define EXCHANGE_ATTENTION (ROWS > 1)
#endif

#if BF16
typedef u16 Element;
#else
typedef float Element;
#endif

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int power_of_two(int n) {  // the smallest one of at least n
    return n <= 1 ? 1 : 2 * power_of_two((n + 1) / 2);
}

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int PACK = 16 / sizeof(Element);  // elements of a 16-byte vector
constexpr int WORD = 4 / sizeof(Element);   // elements of a message
constexpr int DIM = WIDTH / HEADS;
constexpr int HEAD_BLOCKS = BLOCKS / HEADS;  // blocks that share a head

// Attention. With one row, all blocks of a head compute the same attention and multiply it with their part of `out`, whose
// results are then a sum of HEADS parts. With more rows, each block attends for one row, and one more exchange joins the heads.
constexpr bool JOIN_HEADS = EXCHANGE_ATTENTION;
constexpr int OUT_PARTS = JOIN_HEADS ? 1 : HEADS;
constexpr int OUT_DEPTH = JOIN_HEADS ? WIDTH : DIM;  // length of a sum
constexpr int OUT_SHARES = JOIN_HEADS ? BLOCKS : HEAD_BLOCKS;

// Where messages are in the mail.
constexpr int QKV_MAIL = 0;                                                // [ROWS][HEADS][3 DIM / WORD]
constexpr int ATTENDED_MAIL = QKV_MAIL + ROWS * 3 * WIDTH / WORD;          // [ROWS][WIDTH / WORD]
constexpr int OUT_MAIL = ATTENDED_MAIL + ROWS * WIDTH / WORD;              // [ROWS][OUT_PARTS][WIDTH]
constexpr int HIDDEN_MAIL = OUT_MAIL + ROWS * OUT_PARTS * WIDTH;           // [ROWS][HIDDEN / WORD]
constexpr int DOWN_MAIL = HIDDEN_MAIL + ROWS * HIDDEN / WORD;              // [ROWS][WIDTH]
constexpr int BEST_MAIL = DOWN_MAIL + ROWS * WIDTH;                        // [ROWS][BLOCKS][2]
constexpr int MAIL_WORDS = BEST_MAIL + ROWS * BLOCKS * 2;

static_assert(ROWS == 1 || ROWS == 2 || ROWS == 4 || ROWS == 8, "rows");
static_assert(JOIN_HEADS || ROWS == 1, "several rows need the exchange of attention");
static_assert(WIDTH % HEADS == 0 && DIM % PACK == 0 && DIM == power_of_two(DIM) && DIM / PACK <= 32, "head size");
static_assert(HIDDEN % PACK == 0 && HIDDEN % (2 * WORD) == 0, "hidden size");
static_assert(BLOCKS % HEADS == 0 && HEAD_BLOCKS >= ROWS, "blocks of a head");
static_assert(HIDDEN / WORD >= BLOCKS && WIDTH >= BLOCKS, "every block takes part in every exchange");
static_assert(BLOCKS <= 1024, "blocks");

struct Layer {
    const Element *qkv, *qkv_bias, *out, *out_bias, *up, *up_bias, *down, *down_bias;
    const float *attention_norm, *attention_norm_bias, *norm, *norm_bias;
};

struct Arguments {
    Layer layers[LAYERS];
    const Element *tokens, *positions;  // embeddings; the last token is the start symbol
    const float *embedding_norm, *embedding_norm_bias;
    Element *keys, *values;     // [LAYERS, ROWS, HEADS, LENGTH, DIM]
    int* codes;                 // [ROWS, LENGTH]
    int* position;              // [ROWS]
    const int* request;         // [ROWS, 5]: two key words of the seed, row number, codes given, whether the row is active
    const float* temperature;   // [ROWS]
    u64* mail;                  // MAIL_WORDS
    int* failed;                // set to 1 by a launch that gave up
    float eps;
    u32 epoch;                  // layers of all launches before
    int steps;
};

// The functions of a GPU that the emulator of the tests replaces.
#ifndef EMULATED
#define FN __device__ __forceinline__
FN uint4 load_weights(const Element* p) {  // read once a step: they need no place in the L1 cache
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
FN void post(u64* p, u32 value, u32 epoch) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"((u64)epoch << 32 | value) : "memory");
}
FN void look(const u64* p, u64& a, u64& b) {  // at two messages; the pair may be torn, a message never
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
}
FN int read_flag(const int* p) {
    int v;
    asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
FN void raise_flag(int* p) { asm volatile("st.relaxed.sys.global.s32 [%0], 1;" ::"l"(p) : "memory"); }
#endif

FN const uint4* vectors(const Element* p) { return reinterpret_cast<const uint4*>(p); }
FN float low(u32 pair) { return __uint_as_float(pair << 16); }
FN float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
FN u32 to_bf16(float f) {  // the nearest one, ties to even
    u32 u = __float_as_uint(f);
    return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

// Elements in memory and in messages. `Two` is two neighbours, such as a thread has in a layer norm.
struct Two {
    float a, b;
};
#if BF16
FN float widen(Element e) { return low(e); }
FN Two two(const Element* p) {
    u32 pair = *reinterpret_cast<const u32*>(p);
    return {low(pair), high(pair)};
}
FN void set_two(Element* p, float a, float b) { *reinterpret_cast<u32*>(p) = to_bf16(a) | to_bf16(b) << 16; }
FN u32 word(const float (&values)[WORD]) { return to_bf16(values[0]) | to_bf16(values[1]) << 16; }
FN void unpack(const uint4& v, float (&f)[PACK]) {
    f[0] = low(v.x), f[1] = high(v.x), f[2] = low(v.y), f[3] = high(v.y);
    f[4] = low(v.z), f[5] = high(v.z), f[6] = low(v.w), f[7] = high(v.w);
}
#else
FN float widen(Element e) { return e; }
FN Two two(const Element* p) { return {p[0], p[1]}; }
FN void set_two(Element* p, float a, float b) { p[0] = a, p[1] = b; }
FN u32 word(const float (&values)[WORD]) { return __float_as_uint(values[0]); }
FN void unpack(const uint4& v, float (&f)[PACK]) {
    f[0] = __uint_as_float(v.x), f[1] = __uint_as_float(v.y), f[2] = __uint_as_float(v.z), f[3] = __uint_as_float(v.w);
}
#endif

FN float dot(const float (&w)[PACK], const uint4& x, float sum) {
    float f[PACK];
    unpack(x, f);
#pragma unroll
    for (int i = 0; i < PACK; ++i) sum = fmaf(w[i], f[i], sum);
    return sum;
}

template <int FROM, int TO>  // over lanes whose numbers differ in the bits from FROM to below TO
FN float lanes_sum(float v) {
#pragma unroll
    for (int by = TO / 2; by >= FROM; by /= 2) v += __shfl_xor_sync(~0u, v, by);
    return v;
}
FN float warp_sum(float v) { return lanes_sum<1, 32>(v); }

#define MINUS_INFINITY __uint_as_float(0xff800000u)

// Units of work are shared out as evenly as possible: the first one of a share.
FN int first_of(int units, int shares, int share) { return units * share / shares; }

struct Share {
    int first, count;
};
FN Share share_of(int units, int shares, int share) {
    int first = first_of(units, shares, share);
    return {first, first_of(units, shares, share + 1) - first};
}

// A block's part of a matrix product: up to COUNT outputs, each a sum over DEPTH elements, for all rows. SPAN neighbouring
// threads compute an output; with few outputs they are several warps, whose sums are added when they are read.
template <int DEPTH, int COUNT>
struct Product {
    static constexpr int LENGTH_IN_VECTORS = DEPTH / PACK;
    static constexpr int WANTED = power_of_two(THREADS / COUNT + 1) / 2;  // the largest power of two of threads for each
    static constexpr int MOST = power_of_two(LENGTH_IN_VECTORS);
    static constexpr int SPAN = larger(8, WANTED < MOST ? WANTED : MOST);
    static constexpr int LANES = SPAN < 32 ? SPAN : 32, PARTS = SPAN / LANES;
    static constexpr int AT_ONCE = THREADS / SPAN, PASSES = ceil_div(COUNT, AT_ONCE);
    static constexpr int VECTORS = ceil_div(LENGTH_IN_VECTORS, SPAN);
    static constexpr int OUTPUTS = COUNT, SUMS = PARTS * COUNT * ROWS;
    static_assert(DEPTH % PACK == 0 && SPAN <= THREADS && SPAN >= ROWS, "product");
    static_assert(PASSES * VECTORS <= 24, "the weights of a product do not fit into registers");

    uint4 weights[PASSES][VECTORS];

    // Ask for the weights. `row(i)` is the address of those of output i.
    template <class Row>
    FN void load(int count, Row row) {
        const int tid = threadIdx.x;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const int i = pass * AT_ONCE + tid / SPAN;
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                const int k = tid % SPAN + SPAN * v;
                weights[pass][v] = {0, 0, 0, 0};
                if (i < count && k < LENGTH_IN_VECTORS) weights[pass][v] = load_weights(row(i) + k * PACK);
            }
        }
    }

    // Put the sums of all outputs into shared memory; `x` is [ROWS][DEPTH]. The block must meet before they are read.
    FN void multiply(const Element* x, float* sums) const {
        const int tid = threadIdx.x, lane = tid % LANES, part = tid % SPAN / LANES;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            float sum[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) sum[r] = 0.f;
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                const int k = tid % SPAN + SPAN * v;
                if (k < LENGTH_IN_VECTORS) {
                    float w[PACK];
                    unpack(weights[pass][v], w);
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) sum[r] = dot(w, vectors(x + r * DEPTH)[k], sum[r]);
                }
            }
            const int i = pass * AT_ONCE + tid / SPAN;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float total = lanes_sum<1, LANES>(sum[r]);
                if (lane == r && i < COUNT) sums[(part * COUNT + i) * ROWS + r] = total;
            }
        }
    }

    FN static float sum(const float* sums, int i, int r) {
        float total = 0.f;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) total += sums[(part * COUNT + i) * ROWS + r];
        return total;
    }
};

typedef Product<WIDTH, WORD * ceil_div(3 * DIM / WORD, HEAD_BLOCKS)> Qkv;
typedef Product<OUT_DEPTH, ceil_div(WIDTH, OUT_SHARES)> Out;
typedef Product<WIDTH, WORD * ceil_div(HIDDEN / WORD, BLOCKS)> Up;
typedef Product<HIDDEN, ceil_div(WIDTH, BLOCKS)> Down;
typedef Product<WIDTH, ceil_div(CODEBOOK, BLOCKS)> Logits;

constexpr int MOST_SENT = larger(larger(Qkv::OUTPUTS, Up::OUTPUTS) / WORD, larger(Out::OUTPUTS, Down::OUTPUTS));
static_assert(MOST_SENT * ROWS <= THREADS, "a thread sends at most one message of a product");

constexpr int SUMS = larger(larger(larger(Qkv::SUMS, Out::SUMS), larger(Up::SUMS, Down::SUMS)), Logits::SUMS);
constexpr int ROW_THREADS = THREADS / ROWS, ROW_WARPS = WARPS / ROWS;  // of a row in a layer norm
constexpr int TWOS = ceil_div(WIDTH / 2, ROW_THREADS);                 // neighbours that a thread has of its row

struct alignas(16) Shared {
    alignas(16) Element cache[LAYERS][2][LENGTH][DIM];  // keys and values of this block's row and head
    alignas(16) Element h[ROWS][WIDTH];                 // the residual stream
    alignas(16) Element hidden[ROWS][HIDDEN];
    alignas(16) Element attended[ROWS][OUT_DEPTH];
    alignas(16) Element qkv[3 * DIM];
    float sums[SUMS];
    float partial[WARPS][DIM], most[WARPS], mass[WARPS];  // each warp's part of attention
    float row_sum[WARPS], row_squares[WARPS];
    int code[ROWS], at[ROWS];  // the last code and the position of each row
    bool is_active[ROWS];
};

// Waiting for messages. A thread that has waited too long waits no more, and neither do the others, so the launch ends.
struct Inbox {
    const u64* mail;
    int* failed;
    bool gave_up;

    FN bool is_late(int looks) {
        if (looks % 1024 == 0 && (looks >= PATIENCE || read_flag(failed))) gave_up = true, raise_flag(failed);
        return gave_up;
    }
    FN void wait(int at, u32 epoch, u64& a, u64& b) {
        for (int looks = 1; ((u32)(a >> 32) != epoch || (u32)(b >> 32) != epoch) && !gave_up && !is_late(looks); ++looks)
            look(mail + at, a, b);
    }
    // Receive N pairs of messages, STRIDE words from one to the next: all are asked for before the first one is waited for.
    template <int N>
    FN void receive(int at, int stride, int count, u32 epoch, u32 (&a)[N], u32 (&b)[N]) {
        u64 first[N], second[N];
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (i < count) look(mail + at + i * stride, first[i], second[i]);
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (i < count) {
                wait(at + i * stride, epoch, first[i], second[i]);
                a[i] = (u32)first[i], b[i] = (u32)second[i];
            }
    }
    // Receive WORDS messages into shared memory. The block must meet before they are read.
    template <int WORDS>
    FN void gather(int at, u32 epoch, u32* target) {
        constexpr int PAIRS = WORDS / 2, N = ceil_div(PAIRS, THREADS) < 8 ? ceil_div(PAIRS, THREADS) : 8;
        static_assert(WORDS % 2 == 0, "messages are read in pairs");
        for (int first = threadIdx.x; first < PAIRS; first += N * THREADS) {
            const int count = ceil_div(PAIRS - first, THREADS);
            u32 a[N], b[N];
            receive<N>(at + 2 * first, 2 * THREADS, count, epoch, a, b);
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (i < count) target[2 * (first + i * THREADS)] = a[i], target[2 * (first + i * THREADS) + 1] = b[i];
        }
    }
};

// A thread's columns of a layer norm.
struct Columns {
    static FN int row() { return threadIdx.x / ROW_THREADS; }
    static FN int at(int i) { return 2 * (threadIdx.x % ROW_THREADS + i * ROW_THREADS); }
    static FN bool has(int i) { return at(i) < WIDTH; }
};

struct NormWeights {
    Two scale[TWOS], shift[TWOS];
    FN void load(const float* weight, const float* bias) {
#pragma unroll
        for (int i = 0; i < TWOS; ++i)
            if (Columns::has(i)) {
                const int c = Columns::at(i);
                scale[i] = {weight[c], weight[c + 1]}, shift[i] = {bias[c], bias[c + 1]};
            }
    }
};

FN float row_sum(float* of_warps, float v) {  // the sum over the threads of a row
    v = warp_sum(v);
    if (ROW_WARPS == 1) return v;
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = v;
    __syncthreads();
    float total = 0.f;
    for (int i = 0; i < ROW_WARPS; ++i) total += of_warps[Columns::row() * ROW_WARPS + i];
    return total;
}

// h = norm(x) for all rows
FN void layer_norm(Shared& s, Two (&x)[TWOS], const NormWeights& by, float eps) {
    float sum = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < TWOS; ++i)
        if (Columns::has(i)) sum += x[i].a + x[i].b;
    const float mean = row_sum(s.row_sum, sum) / WIDTH;
#pragma unroll
    for (int i = 0; i < TWOS; ++i)
        if (Columns::has(i)) {
            x[i].a -= mean, x[i].b -= mean;
            squares += x[i].a * x[i].a + x[i].b * x[i].b;
        }
    const float scale = 1.f / sqrtf(row_sum(s.row_squares, squares) / WIDTH + eps);
#pragma unroll
    for (int i = 0; i < TWOS; ++i)
        if (Columns::has(i))
            set_two(&s.h[Columns::row()][Columns::at(i)], x[i].a * scale * by.scale[i].a + by.shift[i].a,
                    x[i].b * scale * by.scale[i].b + by.shift[i].b);
    __syncthreads();
}

// h = norm(h + bias + the sum of PARTS messages)
template <int PARTS>
FN void add_norm(
    Shared& s, Inbox& inbox, int mail, u32 epoch, const Element* bias, const float* weight, const float* shift, float eps) {
    NormWeights by;
    by.load(weight, shift);
    Two x[TWOS];
    u32 a[TWOS * PARTS], b[TWOS * PARTS];
    const int row = Columns::row();
#pragma unroll
    for (int i = 0; i < TWOS; ++i)
        if (Columns::has(i)) {
            const Two before = two(&s.h[row][Columns::at(i)]), constant = two(bias + Columns::at(i));
            x[i] = {before.a + constant.a, before.b + constant.b};
        }
    if (PARTS == 1) {
        const int count = Columns::has(0) ? ceil_div(WIDTH - Columns::at(0), 2 * ROW_THREADS) : 0;
        inbox.receive<TWOS * PARTS>(mail + row * WIDTH + Columns::at(0), 2 * ROW_THREADS, count, epoch, a, b);
    } else {  // one row
        static_assert(PARTS == 1 || ROWS == 1, "parts");
#pragma unroll
        for (int i = 0; i < TWOS; ++i) {
            u32 one[PARTS], other[PARTS];
            inbox.receive<PARTS>(mail + Columns::at(i), WIDTH, Columns::has(i) ? PARTS : 0, epoch, one, other);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) a[i * PARTS + part] = one[part], b[i * PARTS + part] = other[part];
        }
    }
#pragma unroll
    for (int i = 0; i < TWOS; ++i)
        if (Columns::has(i))
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                x[i].a += __uint_as_float(a[i * PARTS + part]), x[i].b += __uint_as_float(b[i * PARTS + part]);
    layer_norm(s, x, by, eps);
}

// Softmax attention of one row and head over the position `at`, which is in `qkv`, and those before, in the cache. A group of
// lanes has one position at a time. Threads below DIM / WORD return the elements of a word.
FN u32 attend(Shared& s, int layer, int at) {
    constexpr int LANES = DIM / PACK, GROUPS = THREADS / LANES, N = ceil_div(LENGTH, GROUPS);
    const int tid = threadIdx.x, warp = tid / 32, part = tid % LANES;
    const uint4 *own = vectors(s.qkv), *keys = vectors(s.cache[layer][0][0]), *values = vectors(s.cache[layer][1][0]);
    float query[PACK], score[N], most = MINUS_INFINITY, mass = 0.f, found[PACK];
    unpack(own[part], query);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int t = i * GROUPS + tid / LANES;
        float sum = 0.f;
        if (t <= at) sum = dot(query, t == at ? own[LANES + part] : keys[t * LANES + part], 0.f);
        sum = lanes_sum<1, LANES>(sum) * (1.f / sqrtf((float)DIM));
        score[i] = t <= at ? sum : MINUS_INFINITY;
        most = fmaxf(most, score[i]);
    }
#pragma unroll
    for (int by = 16; by >= LANES; by /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, by));
#pragma unroll
    for (int k = 0; k < PACK; ++k) found[k] = 0.f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int t = i * GROUPS + tid / LANES;
        if (t <= at) {
            const float weight = __expf(score[i] - most);
            float value[PACK];
            unpack(t == at ? own[2 * LANES + part] : values[t * LANES + part], value);
            mass += weight;
#pragma unroll
            for (int k = 0; k < PACK; ++k) found[k] = fmaf(weight, value[k], found[k]);
        }
    }
    mass = lanes_sum<LANES, 32>(mass);
#pragma unroll
    for (int k = 0; k < PACK; ++k) {
        found[k] = lanes_sum<LANES, 32>(found[k]);
        if (tid % 32 < LANES) s.partial[warp][part * PACK + k] = found[k];
    }
    if (tid % 32 == 0) s.most[warp] = most, s.mass[warp] = mass;
    __syncthreads();
    if (tid >= DIM / WORD) return 0;
    float of_all = MINUS_INFINITY, total = 0.f, attended[WORD];
    for (int w = 0; w < WARPS; ++w) of_all = fmaxf(of_all, s.most[w]);
    for (int k = 0; k < WORD; ++k) attended[k] = 0.f;
    for (int w = 0; w < WARPS; ++w) {
        const float scale = __expf(s.most[w] - of_all);  // 0 if the warp has no position
        total += s.mass[w] * scale;
        for (int k = 0; k < WORD; ++k) attended[k] = fmaf(s.partial[w][tid * WORD + k], scale, attended[k]);
    }
    for (int k = 0; k < WORD; ++k) attended[k] /= total;
    return word(attended);
}

// The noise of gumbel.py, hash included.
FN u32 mix(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}
FN u32 absorb(u32 word, u32 value) { return mix((word ^ value) + 0x9e3779b9u); }
FN float gumbel(u32 first, u32 second, int category) {
    const u32 bits = mix(mix((u32)category * 0x9e3779b9u + first) ^ second);
    const float uniform = ((float)(bits >> 9) + 0.5f) * 1.1920928955078125e-07f;
    return -logf(-logf(uniform));
}

struct Best {
    float score;
    int code;
};
FN void better(Best& best, float score, int code) {  // of equal ones the first
    if (score > best.score || (score == best.score && code < best.code)) best = {score, code};
}
FN Best warp_best(Best best) {
    for (int by = 16; by; by /= 2) {
        const float score = __shfl_xor_sync(~0u, best.score, by);
        better(best, score, __shfl_xor_sync(~0u, best.code, by));
    }
    return best;
}

// What a warp knows of the row that it samples for.
struct RowState {
    int at, given;
    bool is_active;  // whether it is stepped: not if it only fills the batch, or is finished
    float temperature;
    u32 first_key, second_key;
};
FN RowState row_state(const Arguments& a, int r) {
    const int* request = a.request + 5 * r;
    const int at = a.position[r], given = request[3];
    const bool is_active = request[4] != 0 && at < LENGTH;
    const u32 number = request[2];
    return {at, given, is_active, a.temperature[r], absorb(request[0], number), absorb(request[1], number)};
}
FN int code_in_range(int code) { return code >= 0 && code < CODEBOOK ? code : 0; }


// What a block does in a step. `load_…` asks for weights and biases; `send_…` multiplies, and posts the results.
struct Block {
    const Arguments& a;
    Shared& s;
    Inbox inbox;
    int tid, block, head, row;  // the row and the head that this block attends for
    bool stores;                // whether this block writes their keys and values to the buffers
    Share qkv_share, out_share, up_share, down_share, logits_share;  // qkv and up in words, the others in outputs
    Qkv qkv;
    Out out;
    Up up;
    Down down;
    Logits logits;
    float qkv_bias[WORD], up_bias[WORD];

    FN Block(const Arguments& arguments, Shared& shared)
        : a(arguments), s(shared), inbox{arguments.mail, arguments.failed, false}, tid(threadIdx.x), block(blockIdx.x) {
        const int sub = block % HEAD_BLOCKS;
        head = block / HEAD_BLOCKS, row = sub % ROWS, stores = sub < ROWS;
        qkv_share = share_of(3 * DIM / WORD, HEAD_BLOCKS, sub);
        out_share = share_of(WIDTH, OUT_SHARES, JOIN_HEADS ? block : sub);
        up_share = share_of(HIDDEN / WORD, BLOCKS, block);
        down_share = share_of(WIDTH, BLOCKS, block);
        logits_share = share_of(CODEBOOK, BLOCKS, block);
    }

    // Output i of this block's queries, keys and values as a row of the weight matrix.
    FN int qkv_row(int i) const {
        const int j = qkv_share.first * WORD + i;
        return j / DIM * WIDTH + head * DIM + j % DIM;
    }
    FN void load_qkv(const Layer& layer) {
        qkv.load(qkv_share.count * WORD, [&](int i) { return layer.qkv + (size_t)qkv_row(i) * WIDTH; });
        if (tid < qkv_share.count * ROWS)
            for (int k = 0; k < WORD; ++k) qkv_bias[k] = widen(layer.qkv_bias[qkv_row(tid / ROWS * WORD + k)]);
    }
    FN void load_out(const Layer& layer) {
        const int skipped = JOIN_HEADS ? 0 : head * DIM;
        out.load(out_share.count, [&](int i) { return layer.out + (size_t)(out_share.first + i) * WIDTH + skipped; });
    }
    FN void load_up(const Layer& layer) {
        const int first = up_share.first * WORD;
        up.load(up_share.count * WORD, [&](int i) { return layer.up + (size_t)(first + i) * WIDTH; });
        if (tid < up_share.count * ROWS)
            for (int k = 0; k < WORD; ++k) up_bias[k] = widen(layer.up_bias[first + tid / ROWS * WORD + k]);
    }
    FN void load_down(const Layer& layer) {
        down.load(down_share.count, [&](int i) { return layer.down + (size_t)(down_share.first + i) * HIDDEN; });
    }
    FN void load_logits() {
        logits.load(logits_share.count, [&](int i) { return a.tokens + (size_t)(logits_share.first + i) * WIDTH; });
    }

    FN void send(int at, u32 value, u32 epoch) const { post(a.mail + at, value, epoch); }
    FN void send_qkv(u32 epoch) {
        qkv.multiply(s.h[0], s.sums);
        __syncthreads();
        const int i = tid / ROWS, r = tid % ROWS;
        if (i < qkv_share.count) {
            float values[WORD];
            for (int k = 0; k < WORD; ++k) values[k] = Qkv::sum(s.sums, i * WORD + k, r) + qkv_bias[k];
            send(QKV_MAIL + (r * HEADS + head) * (3 * DIM / WORD) + qkv_share.first + i, word(values), epoch);
        }
    }
    FN void send_out(u32 epoch) {
        out.multiply(s.attended[0], s.sums);
        __syncthreads();
        const int i = tid / ROWS, r = tid % ROWS, part = JOIN_HEADS ? 0 : head;
        const int at = OUT_MAIL + (r * OUT_PARTS + part) * WIDTH + out_share.first + i;
        if (i < out_share.count) send(at, __float_as_uint(Out::sum(s.sums, i, r)), epoch);
    }
    FN void send_up(u32 epoch) {
        up.multiply(s.h[0], s.sums);
        __syncthreads();
        const int i = tid / ROWS, r = tid % ROWS;
        if (i < up_share.count) {
            float values[WORD];
            for (int k = 0; k < WORD; ++k) values[k] = fmaxf(Up::sum(s.sums, i * WORD + k, r) + up_bias[k], 0.f);
            send(HIDDEN_MAIL + r * (HIDDEN / WORD) + up_share.first + i, word(values), epoch);
        }
    }
    FN void send_down(u32 epoch) {
        down.multiply(s.hidden[0], s.sums);
        __syncthreads();
        const int i = tid / ROWS, r = tid % ROWS;
        const int at = DOWN_MAIL + r * WIDTH + down_share.first + i;
        if (i < down_share.count) send(at, __float_as_uint(Down::sum(s.sums, i, r)), epoch);
    }

    // Copy what earlier launches have put into the KV cache to shared memory.
    FN void load_cache(int filled) {
        constexpr int LANES = DIM / PACK;
        for (int l = 0; l < LAYERS; ++l)
            for (int kind = 0; kind < 2; ++kind) {
                const size_t from = ((size_t)(l * ROWS + row) * HEADS + head) * LENGTH * DIM;
                const uint4* source = reinterpret_cast<const uint4*>((kind ? a.values : a.keys) + from);
                uint4* target = reinterpret_cast<uint4*>(s.cache[l][kind]);
                for (int i = tid; i < filled * LANES; i += THREADS) target[i] = source[i];
            }
    }
    FN void store_cache(int layer, int at) {
        if (tid >= 2 * DIM) return;
        const int kind = tid / DIM, d = tid % DIM;
        const Element e = s.qkv[DIM + tid];
        s.cache[layer][kind][at][d] = e;
        if (stores && s.is_active[row])
            (kind ? a.values : a.keys)[((size_t)((layer * ROWS + row) * HEADS + head) * LENGTH + at) * DIM + d] = e;
    }

    FN void embed() {
        NormWeights by;
        Two x[TWOS];
        by.load(a.embedding_norm, a.embedding_norm_bias);
        const int r = Columns::row();
#pragma unroll
        for (int i = 0; i < TWOS; ++i)
            if (Columns::has(i)) {
                const Two token = two(a.tokens + (size_t)s.code[r] * WIDTH + Columns::at(i));
                const Two place = two(a.positions + (size_t)s.at[r] * WIDTH + Columns::at(i));
                x[i] = {token.a + place.a, token.b + place.b};
            }
        layer_norm(s, x, by, a.eps);
    }

    FN void run_layer(int l, u32 epoch) {
        const Layer& layer = a.layers[l];
        const int at = s.at[row];
        send_qkv(epoch);
        load_out(layer);
        load_up(layer);
        inbox.gather<3 * DIM / WORD>(QKV_MAIL + (row * HEADS + head) * (3 * DIM / WORD), epoch, reinterpret_cast<u32*>(s.qkv));
        __syncthreads();
        const u32 attended = attend(s, l, at);
        store_cache(l, at);
        if (JOIN_HEADS) {
            if (stores && tid < DIM / WORD) send(ATTENDED_MAIL + (row * WIDTH + head * DIM) / WORD + tid, attended, epoch);
            inbox.gather<ROWS * WIDTH / WORD>(ATTENDED_MAIL, epoch, reinterpret_cast<u32*>(s.attended));
        } else if (tid < DIM / WORD) {
            reinterpret_cast<u32*>(s.attended)[tid] = attended;
        }
        __syncthreads();
        send_out(epoch);
        load_down(layer);
        add_norm<OUT_PARTS>(s, inbox, OUT_MAIL, epoch, layer.out_bias, layer.attention_norm, layer.attention_norm_bias, a.eps);
        send_up(epoch);
        if (l + 1 < LAYERS)
            load_qkv(a.layers[l + 1]);
        else
            load_logits();
        inbox.gather<ROWS * HIDDEN / WORD>(HIDDEN_MAIL, epoch, reinterpret_cast<u32*>(s.hidden));
        __syncthreads();
        send_down(epoch);
        add_norm<1>(s, inbox, DOWN_MAIL, epoch, layer.down_bias, layer.norm, layer.norm_bias, a.eps);
    }

    // Warp r samples the code of row r: the best one among this block's, then the best one of all blocks.
    FN void sample(RowState& state, u32 epoch) {
        const int r = tid / 32, lane = tid % 32;
        logits.multiply(s.h[0], s.sums);
        __syncthreads();
        if (r < ROWS) {
            const u32 first = absorb(state.first_key, state.at), second = absorb(state.second_key, state.at);
            Best best = {MINUS_INFINITY, logits_share.first};
            for (int i = lane; i < logits_share.count; i += 32) {
                const int code = logits_share.first + i;
                better(best, Logits::sum(s.sums, i, r) / state.temperature + gumbel(first, second, code), code);
            }
            best = warp_best(best);
            const u32 value = lane == 0 ? __float_as_uint(best.score) : (u32)best.code;
            if (lane < 2) send(BEST_MAIL + (r * BLOCKS + block) * 2 + lane, value, epoch);
        }
        load_qkv(a.layers[0]);
        if (r < ROWS) {
            constexpr int N = ceil_div(BLOCKS, 32);
            u32 score[N], code[N];
            const int count = ceil_div(BLOCKS - lane, 32);
            inbox.receive<N>(BEST_MAIL + (r * BLOCKS + lane) * 2, 64, count, epoch, score, code);
            Best best = {MINUS_INFINITY, 0};
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (i < count) better(best, __uint_as_float(score[i]), code_in_range((int)code[i]));
            finish_step(state, warp_best(best).code);
        }
        __syncthreads();
    }

    // Note the code of an active row, given or sampled, and go on to its next position.
    FN void finish_step(RowState& state, int code) {
        const int r = tid / 32;
        if (!state.is_active) return;
        if (tid % 32 == 0) {
            int* stored = a.codes + r * LENGTH + state.at;
            if (state.at < state.given) code = code_in_range(*stored);
            s.code[r] = code;
            if (block == 0) *stored = code, a.position[r] = state.at + 1;
        }
        state.is_active = ++state.at < LENGTH;
        if (tid % 32 == 0) s.is_active[r] = state.is_active, s.at[r] = state.is_active ? state.at : LENGTH - 1;
    }
};

// Tell the host how much shared memory and mail a launch needs.
extern "C" __global__ void layout(int* bytes_and_words) {
    bytes_and_words[0] = sizeof(Shared), bytes_and_words[1] = MAIL_WORDS;
}

#ifdef EMULATED
void megakernel(const Arguments& a, Shared& s) {
#else
extern "C" __global__ void __launch_bounds__(THREADS, 1) megakernel(const __grid_constant__ Arguments a) {
    extern __shared__ uint4 memory[];
    Shared& s = *reinterpret_cast<Shared*>(memory);
#endif
    const int r = threadIdx.x / 32;
    RowState state = {LENGTH, 0, false, 1.f, 0, 0};
    if (r < ROWS) {
        state = row_state(a, r);
        const int at = state.at < LENGTH ? state.at : LENGTH - 1;  // a finished row is computed and ignored
        const int before = at > 0 ? code_in_range(a.codes[r * LENGTH + at - 1]) : CODEBOOK;
        if (threadIdx.x % 32 == 0) s.at[r] = at, s.is_active[r] = state.is_active, s.code[r] = before;
    }
    __syncthreads();
    Block block(a, s);
    block.load_qkv(a.layers[0]);
    block.load_cache(s.at[block.row]);
#pragma unroll 1
    for (int step = 0; step < a.steps; ++step) {
        const u32 epoch = a.epoch + step * LAYERS + 1;
        block.embed();
#pragma unroll 1  // unrolled, a step does not fit into the instruction cache
        for (int layer = 0; layer < LAYERS; ++layer) block.run_layer(layer, epoch + layer);
        block.sample(state, epoch);
    }
}
