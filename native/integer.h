// How rows of inputs are kept once they are rounded to bytes.
//
// Tokens that are multiplied together are a tile of N. Of every 32 columns a tile keeps sixteen fields, each N words, a word
// for each token: eight of digits (four columns a word), the scale, the sum of the digits of all 32 columns and of the two
// halves, the same three times the scale, and the anchor times the scale. Behind its blocks follow each token's outliers: how many, their columns, their
// values.
#pragma once

#include <cstdint>

constexpr int INTEGER_BLOCK = 32;
constexpr int NUM_FIELDS = 16;
constexpr int FIELD_SCALE = 8;
constexpr int FIELD_SUM = 9;   // of the block, then of its halves
constexpr int FIELD_LOW = 12;  // the same, times the scale
constexpr int FIELD_ANCHOR = 15;  // the anchor, times the scale, negative

// A sum of products that starts at the bits of this number is a float without being converted: the anchor plus the sum. It
// is taken away again when the sum is multiplied by the scale, in one operation and to the same bits, since scales end in two
// zero bits and so the anchor times a scale is exact.
constexpr float ANCHOR = 12582912.0f;  // 1.5 * 2^23: sums may have 22 bits
constexpr uint32_t SCALE_BITS = ~3u;

// An input beyond so many times the root mean square of its row is kept as it is. Measured on SmolLM2: at five, next-token
// distributions stray from single precision a quarter as far as with all in bytes, and one input in 260 is kept.
constexpr float OUTLIER_SIZE = 5.0f;
constexpr float SMALLEST_OUTLIER = 1.0e-18f;
constexpr float SMALLEST_SIZE = 1.0e-30f;  // a block of nothing larger counts as zeros
constexpr float LARGEST_INPUT = 1.0e30f;  // beyond it the anchor times a scale would not be finite

// No more than one in 25 can be that large; rounding may let one more through.
inline int64_t most_outliers(int64_t num_columns) { return num_columns / 25 + 2; }

inline int64_t field_bytes(int64_t num_columns) { return num_columns / INTEGER_BLOCK * NUM_FIELDS * 4; }

inline int64_t outlier_bytes(int64_t num_columns) { return (4 + 8 * most_outliers(num_columns) + 63) / 64 * 64; }

// What a token takes.
inline int64_t integer_row_bytes(int64_t num_columns) { return field_bytes(num_columns) + outlier_bytes(num_columns); }

// What a thread needs for products of many tokens, in floats: for some columns of the weight groups that are made ready, and
// the outliers of the tokens with the values of their columns.
constexpr int64_t MOST_READY_GROUPS = 3;
constexpr int64_t READY_FLOATS = 18;   // a column
constexpr int64_t READY_COLUMNS = 640;  // if the weight has no more, all are made ready at once,
constexpr int64_t SOME_COLUMNS = 512;   // else so many

inline int64_t outlier_floats(int64_t num_columns, int64_t num_tokens) {
    const int64_t values = MOST_READY_GROUPS * 16 * (num_columns + 1), starts = 2 * num_tokens + 3;
    return values + num_columns + starts + 3 * num_tokens * most_outliers(num_columns);
}

inline int64_t integer_scratch(int64_t num_columns, int64_t num_tokens) {
    return READY_FLOATS * READY_COLUMNS + outlier_floats(num_columns, num_tokens);
}
