// From logits to tokens. Where rounding could decide otherwise than the NumPy twin's, a row is left to the twin.
#pragma once

#include <cstdint>

// Cells (rows[i], token_ids[i]) of the logits; rows ascend.
struct TokenCells {
    const int32_t *rows;
    const int32_t *token_ids;
    const float *values;    // what a bias adds
    const int32_t *counts;  // how often a penalised token stands in the output
    int64_t count;
};

enum Outcome : int32_t {
    DECIDED = 0,
    BROKEN = 1,  // the logits are not all finite
    CLOSE = 2,   // two choices lie so near to each other, or the row asks for something so rare, that the twin must say
};

// Entry r of each array speaks of row r of the logits. A pointer that no row needs is null.
struct Sampling {
    const float *logits;
    int64_t num_rows;
    int64_t stride;
    int64_t vocab_size;
    const float *temperature;  // 0: the best token
    const uint64_t *seeds;
    const int32_t *sample_indices;
    const int32_t *positions;
    const int32_t *top_k;      // 0: all
    const float *top_p;        // 1: all
    const double *log_min_p;   // minus infinity: all
    const float *typical_p;    // 1: all; the only filter that is always left to the twin
    TokenCells allowed;
    TokenCells banned;
    TokenCells bias;
    TokenCells penalties;
    const float *repetition;
    const float *presence;
    const float *frequency;
    int32_t *token_ids;  // out
    int32_t *outcomes;   // out
};

// Entry i scores token_ids[i] under row rows[i] of the logits, and lists the num_top[i] best tokens of that row.
struct Scoring {
    const float *logits;
    int64_t stride;
    int64_t vocab_size;
    int64_t num_entries;
    int64_t width;  // of the two lists
    const int64_t *rows;
    const int32_t *token_ids;
    const int32_t *num_top;
    float *chosen;           // out
    int32_t *ranks;          // out
    int32_t *top_token_ids;  // out
    float *top_values;       // out
    int32_t *outcomes;       // out
};

// Each thread has one, as large as the largest vocabulary it has met.
struct Scratch {
    float *shaped;
    int32_t *block_keys;
    int32_t *some_keys;
    uint64_t *best;  // ranked tokens
    int64_t num_best;
};

Scratch &scratch_for(int64_t vocab_size);
// The k-th largest of some numbers, which change their places.
int32_t kth_largest(int32_t *numbers, int64_t count, int64_t k);
// Brings the largest `wanted` to the front, the largest first; how many there are.
int64_t sort_best(uint64_t *numbers, int64_t count, int64_t wanted);

struct Samplers {
    void (*sample)(const Sampling &, int64_t row);
    void (*score)(const Scoring &, int64_t entry);
};
