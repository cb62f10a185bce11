// What instruction sets that cannot turn a block of registers do token by token. Included behind their lanes.
#pragma once

namespace {

// Lane t of the result is the largest size among the 32 numbers at blocks[t].
inline Lanes largest_sizes(const float *const *blocks, int64_t count) {
    float sizes[16] = {};
    for (int64_t t = 0; t < count; t++) sizes[t] = fold_max(max(absolute(load(blocks[t])), absolute(load(blocks[t] + 16))));
    return load(sizes);
}

// The sums of 16 digits, a lane for each token.
struct DigitSums {
    Lanes first, second;
};

// Rounds the 32 numbers of each token, times its factor, to bytes: word u goes to place u, the tokens side by side.
inline DigitSums put_digits(const float *const *blocks, const float *factors, int64_t count, uint8_t *to, int64_t stride) {
    float sums[2][16] = {};
    for (int64_t t = 0; t < count; t++) {
        int8_t digits[32];
        for (int half = 0; half < 2; half++) {
            const Lanes rounded = nearest(mul(load(blocks[t] + 16 * half), set1(factors[t])));
            to_int8(digits + 16 * half, rounded);
            sums[half][t] = fold_add(rounded);
        }
        for (int u = 0; u < 8; u++) std::memcpy(to + u * stride + 4 * t, digits + 4 * u, 4);
    }
    return {load(sums[0]), load(sums[1])};
}

inline void store_some(float *p, Lanes x, int64_t count) {
    float lanes[16];
    store(lanes, x);
    std::memcpy(p, lanes, (size_t)count * sizeof(float));
}

}  // namespace
