// A weight matrix repacked so that sixteen neighbouring rows stand side by side: one register holds one column of them.
//
// Sixteen rows are a group. A group is a row of blocks, each of `block` columns:
//   quantized   16 scales | 16 minimums, if it has any | the quants, column by column
//   float       16 values, column by column
// Nibbles hold two columns in a byte: the even one low, the odd one high.
#pragma once

#include <cstdint>

constexpr int GROUP_ROWS = 16;

enum WeightKind : int32_t { KIND_F32 = 0, KIND_F16 = 1, KIND_BF16 = 2, KIND_NIBBLE = 3, KIND_BYTE = 4 };

struct PackedWeight {
    int32_t kind;
    int32_t block;        // columns under one scale; 1 for float kinds
    int32_t scale_bytes;  // 2: half precision, 4: single
    int32_t has_minimum;
    int64_t num_rows;
    int64_t num_columns;
    int64_t num_groups;
    int64_t block_bytes;
    int64_t group_bytes;
    uint8_t *data;
};

// Returns the number of bytes that `pack_weight` will write, and fills in everything but `data`; 0: format unknown.
extern "C" int64_t pagoda_describe_weight(const char *format, int64_t num_rows, int64_t num_columns, PackedWeight *weight);
// `raw` is the matrix as it stands in the file, row after row; rows [first, last) must be whole groups or the end.
extern "C" void pagoda_pack_weight(
    const char *format, const uint8_t *raw, PackedWeight *weight, int64_t first_group, int64_t last_group);
