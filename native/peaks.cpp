// What Python calls to measure a machine; it takes the times itself.
#include "peaks.h"

#include <atomic>
#include <cstring>

#include "pool.h"

Peaks scalar_peaks();
#if defined(__x86_64__)
Peaks avx2_peaks();
Peaks avx512_peaks();
#elif defined(__aarch64__)
Peaks neon_peaks();
Peaks neon_dot_peaks();
#endif
extern "C" int32_t pagoda_supports(const char *instruction_set);

namespace {

Peaks peaks_for(const char *name) {
#if defined(__x86_64__)
    if (!std::strcmp(name, "avx512") && pagoda_supports(name)) return avx512_peaks();
    if (!std::strcmp(name, "avx2") && pagoda_supports(name)) return avx2_peaks();
#elif defined(__aarch64__)
    if (!std::strcmp(name, "neon_dot") && pagoda_supports(name)) return neon_dot_peaks();
    if (!std::strcmp(name, "neon") && pagoda_supports(name)) return neon_peaks();
#endif
    return scalar_peaks();
}

struct Multiplying {
    int64_t (*work)(int64_t num_rounds);
    int64_t num_rounds;
    std::atomic<int64_t> num_operations{0};
};

void multiply(void *context, int, int, Barrier &) {
    Multiplying &job = *static_cast<Multiplying *>(context);
    job.num_operations += job.work(job.num_rounds);
}

struct Reading {
    const uint64_t *words;
    int64_t count;
    std::atomic<uint64_t> sum{0};
};

void read(void *context, int thread, int num_threads, Barrier &) {
    Reading &job = *static_cast<Reading *>(context);
    const uint64_t *word = job.words + job.count * thread / num_threads;
    const uint64_t *end = job.words + job.count * (thread + 1) / num_threads;
    uint64_t sums[8] = {};
    for (; word + 8 <= end; word += 8)
        for (int lane = 0; lane < 8; lane++) sums[lane] += word[lane];
    for (; word < end; word++) sums[0] += *word;
    for (uint64_t sum : sums) job.sum += sum;
}

}  // namespace

// Every thread does the rounds; how many operations they did together. `in_bytes`: products of bytes, else of singles.
extern "C" int64_t pagoda_multiply(const char *instruction_set, int32_t in_bytes, int64_t num_rounds, int32_t num_threads) {
    const Peaks peaks = peaks_for(instruction_set);
    Multiplying job{in_bytes ? peaks.bytes : peaks.singles, num_rounds};
    run_together(num_threads, multiply, &job);
    return job.num_operations;
}

// The threads read the words once, each its share; their sum.
extern "C" uint64_t pagoda_read(const uint64_t *words, int64_t count, int32_t num_threads) {
    Reading job{words, count};
    run_together(num_threads, read, &job);
    return job.sum;
}
