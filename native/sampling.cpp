// What Python calls to sample and to score. Rows go to whichever thread is free; each is one thread's alone.
#include "sampling.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>

#include "pool.h"

Samplers scalar_samplers();
#if defined(__x86_64__)
Samplers avx2_samplers();
Samplers avx512_samplers();
#elif defined(__aarch64__)
Samplers neon_samplers();
Samplers neon_dot_samplers();
#endif
extern "C" int32_t pagoda_supports(const char *instruction_set);

namespace {

Samplers samplers_for(const char *name) {
#if defined(__x86_64__)
    if (!std::strcmp(name, "avx512") && pagoda_supports(name)) return avx512_samplers();
    if (!std::strcmp(name, "avx2") && pagoda_supports(name)) return avx2_samplers();
#elif defined(__aarch64__)
    if (!std::strcmp(name, "neon_dot") && pagoda_supports(name)) return neon_dot_samplers();
    if (!std::strcmp(name, "neon") && pagoda_supports(name)) return neon_samplers();
#endif
    return scalar_samplers();
}

template <typename Record>
struct Rows {
    const Record *record;
    void (*work)(const Record &, int64_t row);
    int64_t count;
    std::atomic<int64_t> next{0};
};

template <typename Record>
void take_rows(void *context, int, int, Barrier &) {
    Rows<Record> &rows = *static_cast<Rows<Record> *>(context);
    for (int64_t r = rows.next.fetch_add(1); r < rows.count; r = rows.next.fetch_add(1)) rows.work(*rows.record, r);
}

template <typename Record>
void share(const Record &record, void (*work)(const Record &, int64_t), int64_t count, int32_t num_threads) {
    if (count <= 1 || num_threads <= 1) {
        for (int64_t r = 0; r < count; r++) work(record, r);
        return;
    }
    Rows<Record> rows{&record, work, count};
    run_together(num_threads, take_rows<Record>, &rows);
}

// Memory that is touched only where it is used.
template <typename Number>
void reserve(std::unique_ptr<Number[]> &memory, int64_t count, Number *&data) {
    memory.reset(new Number[(size_t)count]);
    data = memory.get();
}

struct OwnScratch {
    int64_t vocab_size = 0;
    std::unique_ptr<float[]> shaped;
    std::unique_ptr<int32_t[]> block_keys, some_keys;
    std::unique_ptr<uint64_t[]> best;
    Scratch scratch{};
};

}  // namespace

Scratch &scratch_for(int64_t vocab_size) {
    static thread_local OwnScratch own;
    if (own.vocab_size < vocab_size) {
        own.vocab_size = vocab_size;
        reserve(own.shaped, vocab_size, own.scratch.shaped);
        reserve(own.block_keys, vocab_size, own.scratch.block_keys);
        reserve(own.some_keys, vocab_size, own.scratch.some_keys);
        reserve(own.best, vocab_size, own.scratch.best);
    }
    return own.scratch;
}

int32_t kth_largest(int32_t *numbers, int64_t count, int64_t k) {
    std::nth_element(numbers, numbers + (k - 1), numbers + count, std::greater<int32_t>());
    return numbers[k - 1];
}

int64_t sort_best(uint64_t *numbers, int64_t count, int64_t wanted) {
    wanted = std::min(wanted, count);
    if (wanted < count) std::nth_element(numbers, numbers + wanted, numbers + count, std::greater<uint64_t>());
    std::sort(numbers, numbers + wanted, std::greater<uint64_t>());
    return wanted;
}

extern "C" void pagoda_sample(const Sampling *in, const char *instruction_set, int32_t num_threads) {
    share(*in, samplers_for(instruction_set).sample, in->num_rows, num_threads);
}

extern "C" void pagoda_score(const Scoring *in, const char *instruction_set, int32_t num_threads) {
    share(*in, samplers_for(instruction_set).score, in->num_entries, num_threads);
}
