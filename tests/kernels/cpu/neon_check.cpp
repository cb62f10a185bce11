// Runs every instruction on the plain kernels and on those of the sets named on the command line, and compares the bits.
// Prints what was compared, or what first differs; 2: the machine lacks a set.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "half.h"
#include "integer.h"
#include "program.h"
#include "sampling.h"

extern "C" {
int32_t pagoda_supports(const char *instruction_set);
void pagoda_run(const Program *program, const Step *step, const char *instruction_set, int32_t num_threads);
void pagoda_pack(const char *format, const uint8_t *raw, PackedWeight *weight, int32_t num_threads);
void pagoda_sample(const Sampling *in, const char *instruction_set, int32_t num_threads);
void pagoda_score(const Scoring *in, const char *instruction_set, int32_t num_threads);
}

// lanes_check.cpp
void scalar_lanes(const float *x, const float *y, float *out);
void neon_lanes(const float *x, const float *y, float *out);

namespace {

constexpr int MOST_THREADS = 2;
constexpr int64_t SCRATCH_FLOATS = 1 << 16;
constexpr int BOTH = 3;  // barriers: threads meet in steps of one token and of many

std::vector<std::string> sets;
int64_t num_words = 0;

struct Random {
    uint64_t state;

    uint32_t bits() {
        state += 0x9E3779B97F4A7C15u;
        uint64_t x = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
        x = (x ^ x >> 27) * 0x94D049BB133111EBu;
        return (uint32_t)(x >> 32);
    }
    float uniform(float low, float high) { return low + (high - low) * ((float)(bits() >> 8) * 0x1p-24f); }
    float normal() { return uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1); }
    float any() {
        const uint32_t word = bits();
        float x;
        std::memcpy(&x, &word, 4);
        return x;
    }
};

// What is no number may be any such: its bits carry nothing. Where words hold other things than numbers, all bits count.
enum Compared { NOTHING, NUMBERS, BITS };

void compare(const std::string &what, const std::vector<float> &expected, const std::vector<float> &actual, Compared how) {
    for (size_t i = 0; i < expected.size() && how != NOTHING; i++) {
        if (!std::memcmp(&expected[i], &actual[i], 4)) continue;
        if (how == NUMBERS && expected[i] != expected[i] && actual[i] != actual[i]) continue;
        std::printf("%s: number %zu is %a, plain kernels say %a\n", what.c_str(), i, (double)actual[i], (double)expected[i]);
        std::exit(1);
    }
    if (how != NOTHING) num_words += (int64_t)expected.size();
}

// A program and the memory that it changes.
struct Bench {
    std::deque<std::vector<float>> memory;
    std::vector<Compared> compared;
    std::deque<std::vector<uint8_t>> packed;
    std::vector<Instruction> instructions;
    std::vector<Buffer> buffers;
    std::vector<PackedWeight> weights;
    std::vector<Vector> vectors;
    std::vector<Rope> ropes;
    std::vector<LayerPages> layers;

    // Holds what is no number until something is written.
    float *reserve(int64_t count, Compared how = NUMBERS) {
        memory.emplace_back((size_t)count);
        std::memset(memory.back().data(), 0xff, (size_t)count * 4);
        compared.push_back(how);
        return memory.back().data();
    }
    int64_t buffer(int64_t width, int64_t num_rows) {
        buffers.push_back({reserve(width * num_rows), width, width, 0, 0});
        return (int64_t)buffers.size() - 1;
    }
    int64_t vector(int64_t length, Random &random) {
        float *data = reserve(length);
        for (int64_t i = 0; i < length; i++) data[i] = random.normal();
        vectors.push_back({data, length});
        return (int64_t)vectors.size() - 1;
    }
    void then(Operation operation, std::vector<int64_t> arguments, double factor_0 = 0, double factor_1 = 0) {
        Instruction in{operation, BOTH, {}, {factor_0, factor_1}, 0};
        std::copy(arguments.begin(), arguments.end(), in.arguments);
        instructions.push_back(in);
    }

    void run(Step step, const char *set, int num_threads) {
        std::vector<float> scratch(SCRATCH_FLOATS * MOST_THREADS), parts(1 << 18);
        std::vector<int32_t> arrivals(1 << 10), claims(instructions.size());
        step.scratch = scratch.data();
        step.scratch_stride = SCRATCH_FLOATS;
        step.parts = parts.data();
        step.num_part_floats = (int64_t)parts.size();
        step.arrivals = arrivals.data();
        step.num_arrivals = (int64_t)arrivals.size();
        step.claims = claims.data();
        const Program program{instructions.data(), (int64_t)instructions.size(), buffers.data(), weights.data(),
                              vectors.data(), ropes.data(), layers.data(), 16};
        pagoda_run(&program, &step, set, num_threads);
    }

    // Leaves in memory what the plain kernels made.
    void check(const std::string &what, const Step &step) {
        const std::deque<std::vector<float>> before = memory;
        run(step, "scalar", 1);
        const std::deque<std::vector<float>> expected = memory;
        for (const std::string &set : sets)
            for (int threads = 1; threads <= MOST_THREADS; threads++) {
                for (size_t i = 0; i < memory.size(); i++) std::copy(before[i].begin(), before[i].end(), memory[i].begin());
                run(step, set.c_str(), threads);
                for (size_t i = 0; i < memory.size(); i++)
                    compare(what + ", " + set + ", " + std::to_string(threads) + " thread(s), memory " + std::to_string(i),
                            expected[i], memory[i], compared[i]);
            }
        for (size_t i = 0; i < memory.size(); i++) std::copy(expected[i].begin(), expected[i].end(), memory[i].begin());
    }
};

struct Format {
    const char *name;
    int columns, bytes;
    std::vector<int> halves;  // where scales and minimums stand
};

const Format FORMATS[] = {
    {"F32", 1, 4, {}},          {"F16", 1, 2, {}},          {"BF16", 1, 2, {}},        {"Q4_0", 32, 18, {0}},
    {"Q4_1", 32, 20, {0, 2}},   {"Q5_0", 32, 22, {0}},      {"Q5_1", 32, 24, {0, 2}},  {"Q8_0", 32, 34, {0}},
    {"Q2_K", 256, 84, {80, 82}}, {"Q3_K", 256, 110, {108}}, {"Q4_K", 256, 144, {0, 2}}, {"Q5_K", 256, 176, {0, 2}},
    {"Q6_K", 256, 210, {208}},  {"IQ4_NL", 32, 18, {0}},    {"IQ4_XS", 256, 136, {0}},
};

// Scales of the usual size, or of every finite size, subnormal ones and zeros among them.
uint16_t random_half(Random &random, bool is_usual) {
    if (is_usual) return float_to_half(random.uniform(-0.05f, 0.05f));
    const uint16_t half = (uint16_t)random.bits();
    return (half & 0x7c00) == 0x7c00 ? (uint16_t)(half & 0x83ff) : half;
}

std::vector<uint8_t> random_weight(const Format &format, int64_t rows, int64_t columns, Random &random, bool is_usual) {
    std::vector<uint8_t> raw((size_t)(rows * columns / format.columns * format.bytes));
    for (uint8_t &byte : raw) byte = (uint8_t)random.bits();
    for (size_t block = 0; block < raw.size(); block += (size_t)format.bytes) {
        for (int place : format.halves) {
            const uint16_t half = random_half(random, is_usual);
            std::memcpy(&raw[block + (size_t)place], &half, 2);
        }
        if (format.columns > 1) continue;
        const float value = random.normal();
        const uint16_t half = is_usual ? float_to_half(value) : random_half(random, false);
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        const uint16_t upper = (uint16_t)(bits >> 16);
        if (format.bytes == 4) std::memcpy(&raw[block], &value, 4);
        if (format.bytes == 2) std::memcpy(&raw[block], std::strcmp(format.name, "F16") ? &upper : &half, 2);
    }
    return raw;
}

// Rows of every sort: with and without what stands out, zeros, tiny, large, halfway between two steps, broken.
void fill_row(float *x, int64_t width, int64_t sort, Random &random) {
    for (int64_t i = 0; i < width; i++) {
        x[i] = random.normal();
        if (sort == 1 && random.bits() % 64 == 0) x[i] *= 30;
        if (sort == 2) x[i] = i % 2 ? -0.0f : 0.0f;
        if (sort == 3) x[i] *= 1e-30f;
        if (sort == 4) x[i] *= 1e15f;
        if (sort == 5) x[i] = i % 32 ? std::floor(random.uniform(-100, 100)) + 0.5f : 127.0f;
    }
    if (sort == 6) x[width / 3] = NAN;
    if (sort == 7) x[width / 2] = -INFINITY;
}

void check_product(const Format &format, int64_t num_rows, int64_t num_columns, int64_t num_tokens, bool is_usual) {
    Random random{(uint64_t)(num_rows + num_columns * 100 + num_tokens * 100000)};
    Bench bench;
    PackedWeight weight{};
    bench.packed.emplace_back((size_t)pagoda_describe_weight(format.name, num_rows, num_columns, &weight));
    weight.data = bench.packed.back().data();
    pagoda_pack(format.name, random_weight(format, num_rows, num_columns, random, is_usual).data(), &weight, 1);
    bench.weights.push_back(weight);
    const int64_t out_width = weight.num_groups * 16;
    const int64_t x = bench.buffer(num_columns, num_tokens), out = bench.buffer(out_width, num_tokens);
    const int64_t embedded = bench.buffer(num_columns, num_tokens), bias = bench.vector(out_width, random);
    for (int64_t t = 0; t < num_tokens; t++)
        fill_row(bench.buffers[(size_t)x].data + t * num_columns, num_columns, (t + num_tokens) % 8, random);
    bench.then(OP_EMBED, {0, embedded});
    bench.then(OP_LINEAR, {x, 0, out, num_tokens % 2 ? bias : -1});
    if (format.columns > 1) {
        const int64_t in_bytes = bench.buffer(integer_row_bytes(num_columns) / 4, num_tokens);
        bench.compared.back() = num_tokens == 1 ? BITS : NOTHING;  // sets may lay out more in tiles of their own
        const int64_t whole = bench.buffer(out_width, num_tokens);
        bench.then(OP_QUANTIZE, {x, in_bytes, 1});
        bench.then(OP_LINEAR_INTEGER, {in_bytes, 0, whole, num_tokens % 2 ? bias : -1});
    }
    std::vector<int32_t> token_ids;
    for (int64_t t = 0; t < num_tokens; t++) token_ids.push_back((int32_t)(t * 7 % num_rows));
    Step step{};
    step.token_ids = token_ids.data();
    step.num_tokens = num_tokens;
    bench.check(std::string(format.name) + " " + std::to_string(num_rows) + "x" + std::to_string(num_columns) + ", " +
                    std::to_string(num_tokens) + " token(s), memory 0-5: x, float, embedded, bias, bytes, integer",
                step);
}

void check_products() {
    for (const Format &format : FORMATS) {
        for (int64_t num_tokens : {1, 2, 3, 4, 5, 6, 7, 8, 13}) check_product(format, 69, 256, num_tokens, true);
        for (int64_t num_tokens : {1, 9}) check_product(format, 37, 1024, num_tokens, true);
        for (int64_t num_tokens : {1, 8}) check_product(format, 100, 256, num_tokens, false);
        check_product(format, 1, 256, 2, true);
    }
}

// Where something changes.
const float TURNS[] = {0.0f, -0.0f, 1.0f, -1.0f, 87.0f, -87.0f, -87.00001f, 88.0f, -88.0f, -88.00001f, 88.4f, 88.8f, 89.0f, 89.1f, 2.5f,
                       3.5f, 65504.0f, 65520.0f, 6e-8f, 3e-8f, 1e-38f, 1e-45f, -1e-45f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN, -NAN,
                       0.34657359f, -0.34657359f};
constexpr int64_t NUM_TURNS = sizeof TURNS / sizeof *TURNS;

// The vocabulary of the lanes itself: which of two numbers is taken where one is none, and such.
void check_lanes() {
    Random random{4};
    for (int round = 0; round < 2000; round++) {
        std::vector<float> x(16), y(16), expected(11 * 16), actual(11 * 16);
        for (size_t i = 0; i < 16; i++) {
            x[i] = random.bits() % 4 ? TURNS[random.bits() % NUM_TURNS] : random.uniform(-200, 200);
            y[i] = random.bits() % 4 ? TURNS[random.bits() % NUM_TURNS] : random.uniform(-200, 200);
            if (round % 2 && y[i] != y[i]) y[i] = x[i] = random.normal();
        }
        scalar_lanes(x.data(), y.data(), expected.data());
        neon_lanes(x.data(), y.data(), actual.data());
        compare("lanes, sixteen for each result", expected, actual, NUMBERS);
    }
}

// What the elementary functions are given: a fine net, any bits at all, and the places where something changes.
void fill_any(float *x, int64_t count, float size, Random &random) {
    for (int64_t i = 0; i < count; i++) x[i] = i % 3 ? random.uniform(-size, size) : random.any();
    for (int64_t i = 0; i < NUM_TURNS * NUM_TURNS && i < count / 4; i++) x[4 * i] = TURNS[size > 50 ? i / NUM_TURNS : i % NUM_TURNS];
}

void check_elements() {
    constexpr int64_t width = 512, num_tokens = 24;
    Random random{1};
    Bench bench;
    const int64_t a = bench.buffer(width, num_tokens), b = bench.buffer(width, num_tokens), rows = bench.buffer(width, num_tokens);
    fill_any(bench.buffers[(size_t)a].data, width * num_tokens, 100, random);
    fill_any(bench.buffers[(size_t)b].data, width * num_tokens, 10, random);
    for (int64_t t = 0; t < num_tokens; t++) fill_row(bench.buffers[(size_t)rows].data + t * width, width, t % 8, random);
    auto out = [&] { return bench.buffer(width, num_tokens); };
    bench.then(OP_ADD, {a, b, out()});
    bench.then(OP_SCALE, {a, out()}, 0.3);
    for (Operation gate : {OP_GATED_SILU, OP_GATED_GELU})
        for (int64_t x : {a, b, rows}) bench.then(gate, {x, rows, out()});
    for (double cap : {30.0, 0.5}) bench.then(OP_SOFT_CAP, {a, out()}, cap);
    for (int64_t x : {b, rows})
        for (int64_t part : {width, (int64_t)64}) bench.then(OP_RMS_NORM, {x, bench.vector(part, random), out(), part}, 1e-6, 1.0);
    Step step{};
    step.num_tokens = num_tokens;
    bench.check("sums, activations, caps and norms", step);
}

void check_rope() {
    constexpr int64_t width = 64, num_pairs = 24, num_tokens = 17;
    Random random{2};
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < num_tokens; t++) positions.push_back((int32_t)(t * t * 13));
    for (int64_t interleaved : {0, 1}) {
        Bench bench;
        const int64_t x = bench.buffer(2 * width, num_tokens), out = bench.buffer(2 * width, num_tokens);
        for (int64_t t = 0; t < num_tokens; t++) fill_row(bench.buffers[(size_t)x].data + t * 2 * width, 2 * width, t % 8, random);
        float *frequencies = bench.reserve(num_pairs), *cos = bench.reserve(num_pairs * num_tokens);
        for (int64_t i = 0; i < num_pairs; i++) frequencies[i] = (float)std::pow(10000.0, -(double)i / num_pairs);
        bench.ropes.push_back({frequencies, 1.1, num_pairs, interleaved, cos, bench.reserve(num_pairs * num_tokens), 0});
        bench.then(OP_ROPE_TABLE, {0});
        bench.then(OP_ROPE, {x, out, width, 0});
        Step step{};
        step.positions = positions.data();
        step.num_tokens = num_tokens;
        bench.check("rope", step);
    }
}

struct Row {
    int32_t num_new, context_len;
    std::vector<int32_t> pages;
};

// The tokens that come, row after row.
struct Batch {
    static constexpr int64_t STRIDE = 12;
    std::vector<int32_t> starts{0}, lens, tables, order;
    PageTables table{};
    Step step{};

    explicit Batch(const std::vector<Row> &rows) {
        for (const Row &row : rows) {
            starts.push_back(starts.back() + row.num_new);
            lens.push_back(row.context_len);
            tables.insert(tables.end(), (size_t)STRIDE, -1);
            std::copy(row.pages.begin(), row.pages.end(), tables.end() - STRIDE);
        }
        order.resize(rows.size());
        table = {tables.data(), STRIDE, order.data()};
        step.row_starts = starts.data();
        step.context_lens = lens.data();
        step.tables = &table;
        step.num_tables = 1;
        step.num_tokens = starts.back();
        step.num_rows = (int64_t)rows.size();
    }
    Batch(const Batch &) = delete;
};

struct Shape {
    int64_t width, kv_heads, heads, window;
};

void check_attention(const Shape &shape, KVType type, float size, bool is_broken) {
    constexpr int64_t num_pages = 24, most_tokens = 200;
    const int64_t number_bytes = type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1, slots = num_pages * shape.kv_heads * 16;
    Random random{(uint64_t)(shape.width + 1000 * type)};
    Bench bench;
    const int64_t queries = bench.buffer(shape.heads * shape.width, most_tokens), out = bench.buffer(shape.heads * shape.width, most_tokens);
    const int64_t keys = bench.buffer(shape.kv_heads * shape.width, most_tokens), values = bench.buffer(shape.kv_heads * shape.width, most_tokens);
    for (int64_t buffer : {queries, keys, values})
        for (float &x : bench.memory[(size_t)buffer]) x = random.normal() * size;
    if (is_broken) {
        bench.memory[(size_t)keys][(size_t)shape.width * 3] = INFINITY;
        bench.memory[(size_t)keys][(size_t)shape.width * 160] = NAN;
        bench.memory[(size_t)values][(size_t)shape.width * 20 + 5] = -INFINITY;
        bench.memory[(size_t)values][(size_t)shape.width * 170 + 1] = NAN;
    }
    const int64_t page_words = slots * shape.width * number_bytes / 4;
    float *scales = type == KV_INT8 ? bench.reserve(2 * slots) : nullptr;
    float *key_pages = bench.reserve(page_words, BITS), *value_pages = bench.reserve(page_words, BITS);
    bench.layers.push_back({key_pages, value_pages, scales, scales ? scales + slots : nullptr, type, number_bytes, shape.kv_heads, shape.width});
    bench.then(OP_WRITE, {keys, values, 0, 0});
    bench.then(OP_ATTENTION, {queries, out, 0, 0, shape.heads, shape.window}, 1.0 / std::sqrt((double)shape.width));
    const std::vector<int32_t> first{3, 1, 4, 15, 9, 2, 6, 5, 8, 7}, second{10, 11, 12}, third{13, 14};
    std::vector<int32_t> shared(first.begin(), first.begin() + 8), other = shared;
    shared.push_back(16);
    other.push_back(17);
    const std::string what = "attention, width " + std::to_string(shape.width) + ", type " + std::to_string(type);
    bench.check(what + ", prompts", Batch({{150, 150, first}, {33, 33, second}, {17, 17, third}}).step);
    // Among them rows that begin with the pages of others.
    bench.check(what + ", answers", Batch({{1, 151, first}, {6, 39, second}, {1, 18, third}, {1, 129, shared}, {1, 129, other},
                                           {1, 17, {13, 18}}}).step);
    bench.check(what + ", one answer", Batch({{1, 152, first}}).step);
}

void check_attention() {
    for (KVType type : {KV_F32, KV_F16, KV_INT8}) {
        for (const Shape &shape : {Shape{16, 2, 2, 0}, Shape{64, 1, 3, 0}, Shape{80, 1, 2, 40}, Shape{32, 1, 5, 130}, Shape{16, 1, 26, 0}})
            check_attention(shape, type, 1, false);
        check_attention({32, 2, 4, 0}, type, 20, false);  // weights that vanish
        check_attention({32, 1, 2, 0}, type, 1e-22f, false);  // numbers too small for halves
        check_attention({48, 1, 2, 50}, type, 1, true);
    }
}

void check_sampling() {
    constexpr int64_t num_rows = 40, vocab_size = 1003, stride = 1008, width = 5;
    Random random{3};
    std::vector<float> logits(num_rows * stride), temperature(num_rows), top_p(num_rows), typical_p(num_rows, 1.0f);
    std::vector<uint64_t> seeds(num_rows);
    std::vector<int32_t> indices(num_rows), positions(num_rows), top_k(num_rows), num_top(num_rows), wanted(num_rows);
    std::vector<double> log_min_p(num_rows);
    std::vector<int64_t> rows(num_rows);
    for (float &x : logits) x = random.normal() * 5;
    for (size_t r = 0; r < num_rows; r++) {
        temperature[r] = r % 5 ? random.uniform(0.2f, 2) : 0;
        top_p[r] = r % 3 ? random.uniform(0.3f, 1) : 1;
        seeds[r] = random.bits();
        positions[r] = (int32_t)r * 11;
        top_k[r] = r % 4 ? 0 : 20;
        log_min_p[r] = r % 7 ? -INFINITY : -3;
        rows[r] = (int64_t)r;
        num_top[r] = (int32_t)(r % (width + 1));
        wanted[r] = (int32_t)(random.bits() % vocab_size);
    }
    logits[7 * stride + 5] = NAN;
    auto sample = [&](const char *set, int threads) {
        std::vector<float> found(5 * num_rows + 2 * num_rows * width);
        int32_t *numbers = (int32_t *)found.data();
        const Sampling sampling{logits.data(), num_rows, stride, vocab_size, temperature.data(), seeds.data(), indices.data(),
                                positions.data(), top_k.data(), top_p.data(), log_min_p.data(), typical_p.data(), {}, {}, {}, {},
                                nullptr, nullptr, nullptr, numbers, numbers + num_rows};
        const Scoring scoring{logits.data(), stride, vocab_size, num_rows, width, rows.data(), wanted.data(), num_top.data(),
                              found.data() + 2 * num_rows, numbers + 3 * num_rows, numbers + 5 * num_rows,
                              found.data() + (5 + width) * num_rows, numbers + 4 * num_rows};
        pagoda_sample(&sampling, set, threads);
        pagoda_score(&scoring, set, threads);
        return found;
    };
    for (const std::string &set : sets)
        for (int threads = 1; threads <= MOST_THREADS; threads++)
            compare("sampling, " + set, sample("scalar", 1), sample(set.c_str(), threads), BITS);
}

}  // namespace

int main(int count, char **names) {
    sets.assign(names + 1, names + count);
    for (const std::string &set : sets)
        if (!pagoda_supports(set.c_str())) {
            std::printf("%s: this machine lacks it\n", set.c_str());
            return 2;
        }
    check_lanes();
    check_elements();
    check_rope();
    check_attention();
    check_sampling();
    check_products();
    std::printf("%lld numbers are the same\n", (long long)num_words);
}
