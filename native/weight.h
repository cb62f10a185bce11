// A weight matrix repacked so that sixteen neighbouring rows stand side by side: one register holds the same columns of all.
//
// Sixteen rows are a group. Float kinds hold sixteen values column by column. Quantized kinds hold blocks of `block` columns:
//   sixteen scales | sixteen minimums, if it has any | the quants
// Four columns are a unit: for each of the sixteen rows the four quants in a word of 32 bits, so that one instruction
// multiplies and adds them. A byte of the file is a byte here; nibbles hold two units in 64 bytes, the even one low, the odd
// one high; the bits above the fourth follow in a plane of their own, the first unit's lowest.
//
// Scales are halves, or, in formats that have them, bytes: then every 256 columns begin with sixteen halves that multiply the
// scales, and sixteen more for the minimums.
#pragma once

#include <cstdint>

constexpr int GROUP_ROWS = 16;
constexpr int UNIT = 4;
constexpr int UNIT_BYTES = UNIT * GROUP_ROWS;
constexpr int SUPER_COLUMNS = 256;

enum WeightKind : int32_t {
    KIND_F32 = 0,
    KIND_F16 = 1,
    KIND_BF16 = 2,
    KIND_NIBBLE = 3,
    KIND_NIBBLE_1 = 4,  // and a plane of one bit
    KIND_NIBBLE_2 = 5,  // and a plane of two bits
    KIND_CODE = 6,      // nibbles that number the entries of the codebook
    KIND_BYTE = 7,      // signed
};

constexpr int8_t CODEBOOK[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct PackedWeight {
    int32_t kind;
    int32_t block;        // columns under one scale; 1 for float kinds
    int32_t scale_bytes;  // 2: halves, 1: bytes under a half of 256 columns
    int32_t has_minimum;
    int32_t offset;        // value = scale * (quant - offset) + minimum
    int32_t header_bytes;  // before every 256 columns
    int64_t num_rows;
    int64_t num_columns;
    int64_t num_groups;
    int64_t block_bytes;
    int64_t group_bytes;
    uint8_t *data;
};

// Returns the number of bytes that `pack_weight` will write, and fills in everything but `data`; 0: format unknown.
extern "C" int64_t pagoda_describe_weight(const char *format, int64_t num_rows, int64_t num_columns, PackedWeight *weight);
// `raw` is the matrix as it stands in the file, row after row.
extern "C" void pagoda_pack_weight(
    const char *format, const uint8_t *raw, PackedWeight *weight, int64_t first_group, int64_t last_group);
