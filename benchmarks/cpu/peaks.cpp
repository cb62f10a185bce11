// What this machine can do at most: bytes read from memory, and multiply-adds in registers, on some threads.
// Prints one line of JSON. Usage: peaks THREADS
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The best rate of several tries; each thread does `work` and says how much it was.
double best_rate(int num_threads, int num_tries, const std::function<double(int)>& work) {
    double best = 0;
    for (int attempt = 0; attempt < num_tries; ++attempt) {
        std::vector<double> done(num_threads, 0.0);
        std::vector<std::thread> threads;
        const auto start = Clock::now();
        for (int i = 0; i < num_threads; ++i) threads.emplace_back([&, i] { done[i] = work(i); });
        for (auto& thread : threads) thread.join();
        double total = 0;
        for (double amount : done) total += amount;
        best = std::max(best, total / seconds_since(start));
    }
    return best;
}

std::atomic<uint64_t> sink{0};

double read_memory(const uint64_t* data, size_t num_words) {
    uint64_t sums[8] = {};
    for (size_t i = 0; i + 8 <= num_words; i += 8) {
        for (int lane = 0; lane < 8; ++lane) sums[lane] += data[i + lane];
    }
    for (uint64_t sum : sums) sink += sum;
    return double(num_words) * sizeof(uint64_t);
}

constexpr int kChains = 12;
constexpr int64_t kRounds = 20'000'000;

#if defined(__AVX512F__)
double float_operations(int) {
    __m512 sums[kChains];
    const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(0.001f);
    for (auto& sum : sums) sum = term;
    for (int64_t round = 0; round < kRounds; ++round) {
        for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, factor, term);
    }
    float total = 0;
    for (auto& sum : sums) total += _mm512_reduce_add_ps(sum);
    sink += uint64_t(total);
    return double(kRounds) * kChains * 16 * 2;
}
#else
double float_operations(int) {
    __m256 sums[kChains];
    const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
    for (auto& sum : sums) sum = term;
    for (int64_t round = 0; round < kRounds; ++round) {
        for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, factor, term);
    }
    float lanes[8];
    for (auto& sum : sums) {
        _mm256_storeu_ps(lanes, sum);
        sink += uint64_t(lanes[0]);
    }
    return double(kRounds) * kChains * 8 * 2;
}
#endif

#if defined(__AVX512VNNI__)
double byte_operations(int thread) {
    __m512i sums[kChains];
    const __m512i a = _mm512_set1_epi8(char(1 + thread)), b = _mm512_set1_epi8(2);
    for (auto& sum : sums) sum = _mm512_setzero_si512();
    for (int64_t round = 0; round < kRounds; ++round) {
        for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
    }
    for (auto& sum : sums) sink += uint64_t(_mm512_reduce_add_epi32(sum));
    return double(kRounds) * kChains * 64 * 2;
}
#else
double byte_operations(int thread) {
    __m256i sums[kChains];
    const __m256i a = _mm256_set1_epi8(char(1 + thread)), b = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
    for (auto& sum : sums) sum = _mm256_setzero_si256();
    for (int64_t round = 0; round < kRounds; ++round) {
        for (auto& sum : sums) {
            // The factor depends on the sum, or the compiler would take the product out of the loop.
            const __m256i pairs = _mm256_maddubs_epi16(_mm256_xor_si256(a, sum), b);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
    }
    int32_t lanes[8];
    for (auto& sum : sums) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sum);
        sink += uint64_t(lanes[0]);
    }
    return double(kRounds) * kChains * 32 * 2;
}
#endif

}  // namespace

int main(int argc, char** argv) {
    const int num_threads = argc > 1 ? std::atoi(argv[1]) : 1;
    const size_t num_words = size_t(512) << 20 >> 3;  // 512 MiB, more than any cache holds
    std::vector<uint64_t> data(num_words, 1);
    const size_t share = num_words / num_threads;
    const double bytes =
        best_rate(num_threads, 7, [&](int i) { return read_memory(data.data() + i * share, share); });
    const double floats = best_rate(num_threads, 5, float_operations);
    const double integers = best_rate(num_threads, 5, byte_operations);
    std::printf("{\"threads\": %d, \"bytes_per_second\": %.4g, \"f32_per_second\": %.4g, \"int8_per_second\": %.4g}\n",
                num_threads, bytes, floats, integers);
    return 0;
}
