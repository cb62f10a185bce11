// A forward pass as a list of instructions over numbered buffers, and the step it is run on.
#pragma once

#include <cstdint>

#include "weight.h"

enum Operation : int32_t {
    OP_EMBED = 0,       // weight, out
    OP_LINEAR = 1,      // x, weight, out, bias (-1: none)
    OP_RMS_NORM = 2,    // x, vector, out, width; factor 0 is epsilon, factor 1 the offset
    OP_ADD = 3,         // x, y, out
    OP_SCALE = 4,       // x, out; factor 0
    OP_GATED_SILU = 5,  // gate, up, out
    OP_GATED_GELU = 6,  // gate, up, out
    OP_ROPE_TABLE = 7,  // rope
    OP_ROPE = 8,        // x, out, head width, rope
    OP_WRITE = 9,       // keys, values, layer, group
    OP_ATTENTION = 10,  // queries, out, layer, group, heads, window; factor 0 is the scale
    OP_TAKE_ROWS = 11,  // x, out
    OP_SOFT_CAP = 12,   // x, out; factor 0
    OP_QUANTIZE = 13,   // x, out (bytes and what belongs to them), whether sums of 16 columns are wanted
    OP_LINEAR_INTEGER = 14,  // quantized x, weight, out, bias (-1: none)
    NUM_OPERATIONS = 15,
};

struct Instruction {
    int32_t operation;
    int32_t barriers;  // what came before must be done by all threads: 1 in a step of many tokens, 2 in one of a single token
    int64_t arguments[6];
    double factors[2];
    // In a step of many tokens so many instructions from this one on go together, some rows at a time: whoever is free takes
    // the next rows through all of them. 0: it goes alone, or with one before it.
    int64_t run;
};

struct Buffer {
    float *data;
    int64_t width;
    int64_t stride;   // width rounded up to whole lanes; what lies between holds zeros or nothing of use
    int64_t is_rows;  // 0: a row for each token of the step, 1: a row for each row of logits
    int64_t own_stride;  // not 0: with a single token every thread makes this for itself, so many floats apart
};

struct Vector {
    const float *data;
    int64_t length;
};

struct Rope {
    const float *frequencies;  // radians a position, one for each turned pair
    double factor;              // on cosine and sine
    int64_t num_pairs;
    int64_t interleaved;
    float *cos;  // [tokens][num_pairs], made by OP_ROPE_TABLE
    float *sin;
    int64_t own_stride;  // as for buffers
};

enum KVType : int32_t { KV_F32 = 0, KV_F16 = 1, KV_INT8 = 2 };

// Keys stand as [page][head][element][slot], values as [page][head][slot][element], scales as [page][head][slot].
struct LayerPages {
    void *keys;
    void *values;
    float *key_scales;  // bytes have them, else null
    float *value_scales;
    int64_t type;
    int64_t number_bytes;
    int64_t num_heads;
    int64_t head_width;
};

struct PageTables {
    const int32_t *pages;
    int64_t stride;
    int32_t *order;  // the rows, those that begin with the same pages side by side; made when the step begins
};

struct Program {
    const Instruction *instructions;
    int64_t num_instructions;
    const Buffer *buffers;
    const PackedWeight *weights;
    const Vector *vectors;
    const Rope *ropes;
    const LayerPages *layers;
    int64_t page_size;
};

struct Step {
    const int32_t *token_ids;
    const int32_t *positions;
    const int32_t *row_starts;
    const int32_t *context_lens;
    const PageTables *tables;  // by cache group
    int64_t num_tables;
    const int32_t *logit_rows;
    int64_t num_tokens;
    int64_t num_rows;
    int64_t num_logit_rows;
    float *scratch;  // for all threads, scratch_stride apart
    int64_t scratch_stride;
    // Attention: what a thread found for others to use, and counts that threads share.
    float *parts;
    int64_t num_part_floats;
    int32_t *arrivals;  // 0 between instructions
    int64_t num_arrivals;
    int32_t *claims;  // by instruction; 0 when the step begins
    int64_t *nanoseconds;  // by operation, the first thread's; one more for its waiting. Null: nobody wants to know
};

// How much memory stands behind a program.
struct Limits {
    int64_t max_tokens;
    int64_t num_groups;        // page tables of the step
    const int64_t *num_pages;  // by layer
};

struct Worker {
    int thread;
    int num_threads;
    float *scratch;
    bool is_alone;  // the step has a single token: small things are done by every thread, which takes less than a meeting
    // What to do of an instruction that goes row by row; where both are 0, an even share.
    int64_t first_row, last_row;
};

// Puts rows side by side whose tables begin with the same pages.
void order_rows(const Step &step, const PageTables &tables);

typedef void (*RunInstruction)(const Program &, const Step &, const Instruction &, const Worker &);

// What is wrong with a step, by number; 0: nothing.
extern "C" int32_t pagoda_check_step(const Program *program, const Step *step, const Limits *limits);
