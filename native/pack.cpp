// From the block formats of GGUF to groups of sixteen rows. Every value stays what it was: only its place changes.
#include <cstring>

#include "half.h"
#include "weight.h"

namespace {

constexpr int MAX_BLOCK_COLUMNS = 256;
constexpr int MAX_SCALES = 16;

// One block of one row, taken apart: value = scale * quant + minimum.
struct Block {
    int16_t quants[MAX_BLOCK_COLUMNS];
    float scales[MAX_SCALES];
    float minimums[MAX_SCALES];
};

uint16_t read_u16(const uint8_t *p) {
    uint16_t value;
    std::memcpy(&value, p, 2);
    return value;
}
float read_half(const uint8_t *p) { return half_to_float(read_u16(p)); }

void halves(const uint8_t *quants, Block &out, int offset) {
    for (int j = 0; j < 16; j++) {
        out.quants[j] = (int16_t)((quants[j] & 15) + offset);
        out.quants[j + 16] = (int16_t)((quants[j] >> 4) + offset);
    }
}

void q4_0(const uint8_t *b, Block &out) {
    out.scales[0] = read_half(b);
    out.minimums[0] = -8.0f * out.scales[0];
    halves(b + 2, out, 0);
}
void q4_1(const uint8_t *b, Block &out) {
    out.scales[0] = read_half(b);
    out.minimums[0] = read_half(b + 2);
    halves(b + 4, out, 0);
}
void fifth_bits(const uint8_t *bits, Block &out) {
    uint32_t high;
    std::memcpy(&high, bits, 4);
    for (int j = 0; j < 32; j++) out.quants[j] = (int16_t)(out.quants[j] + (((high >> j) & 1) << 4));
}
void q5_0(const uint8_t *b, Block &out) {
    out.scales[0] = read_half(b);
    halves(b + 6, out, -16);
    fifth_bits(b + 2, out);
}
void q5_1(const uint8_t *b, Block &out) {
    out.scales[0] = read_half(b);
    out.minimums[0] = read_half(b + 2);
    halves(b + 8, out, 0);
    fifth_bits(b + 4, out);
}
void q8_0(const uint8_t *b, Block &out) {
    out.scales[0] = read_half(b);
    for (int j = 0; j < 32; j++) out.quants[j] = (int8_t)b[2 + j];
}
void q2_k(const uint8_t *b, Block &out) {
    float scale = read_half(b + 80), minimum = read_half(b + 82);
    for (int s = 0; s < 16; s++) {
        out.scales[s] = scale * (float)(b[s] & 15);
        out.minimums[s] = -minimum * (float)(b[s] >> 4);
        const uint8_t *quants = b + 16 + 32 * (s / 8) + 16 * (s % 2);
        for (int l = 0; l < 16; l++) out.quants[16 * s + l] = (quants[l] >> (2 * ((s % 8) / 2))) & 3;
    }
}
void q3_k(const uint8_t *b, Block &out) {
    const uint8_t *mask = b, *packed = b + 96;
    float scale = read_half(b + 108);
    for (int s = 0; s < 16; s++) {
        int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
        int high = (packed[8 + s % 4] >> (2 * (s / 4))) & 3;
        out.scales[s] = scale * (float)((low | (high << 4)) - 32);
        const uint8_t *quants = b + 32 + 32 * (s / 8) + 16 * (s % 2);
        int bit = s / 2;
        for (int l = 0; l < 16; l++) {
            int value = (quants[l] >> (2 * ((s % 8) / 2))) & 3;
            int set = (mask[16 * (s % 2) + l] >> bit) & 1;
            out.quants[16 * s + l] = (int16_t)(value - (set ? 0 : 4));
        }
    }
}
void six_bit_scales(const uint8_t *packed, int s, int &scale, int &minimum) {
    if (s < 4) {
        scale = packed[s] & 63;
        minimum = packed[s + 4] & 63;
    } else {
        scale = (packed[s + 4] & 15) | ((packed[s - 4] >> 6) << 4);
        minimum = (packed[s + 4] >> 4) | ((packed[s] >> 6) << 4);
    }
}
void k_scales(const uint8_t *b, Block &out) {
    float scale = read_half(b), minimum = read_half(b + 2);
    for (int s = 0; s < 8; s++) {
        int own, lowest;
        six_bit_scales(b + 4, s, own, lowest);
        out.scales[s] = scale * (float)own;
        out.minimums[s] = -minimum * (float)lowest;
    }
}
void q4_k(const uint8_t *b, Block &out) {
    k_scales(b, out);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++) out.quants[32 * s + l] = (b[16 + 32 * (s / 2) + l] >> (4 * (s % 2))) & 15;
}
void q5_k(const uint8_t *b, Block &out) {
    k_scales(b, out);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++) {
            int low = (b[48 + 32 * (s / 2) + l] >> (4 * (s % 2))) & 15;
            out.quants[32 * s + l] = (int16_t)(low + (((b[16 + l] >> s) & 1) << 4));
        }
}
void q6_k(const uint8_t *b, Block &out) {
    float scale = read_half(b + 208);
    for (int s = 0; s < 16; s++) out.scales[s] = scale * (float)(int8_t)b[192 + s];
    for (int n = 0; n < 2; n++)
        for (int part = 0; part < 4; part++)
            for (int l = 0; l < 32; l++) {
                int low = (b[64 * n + 32 * (part % 2) + l] >> (4 * (part / 2))) & 15;
                int high = (b[128 + 32 * n + l] >> (2 * part)) & 3;
                out.quants[128 * n + 32 * part + l] = (int16_t)((low | (high << 4)) - 32);
            }
}
const int8_t CODEBOOK[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
void iq4_nl(const uint8_t *b, Block &out) {
    out.scales[0] = read_half(b);
    for (int j = 0; j < 16; j++) {
        out.quants[j] = CODEBOOK[b[2 + j] & 15];
        out.quants[j + 16] = CODEBOOK[b[2 + j] >> 4];
    }
}
void iq4_xs(const uint8_t *b, Block &out) {
    float scale = read_half(b);
    uint16_t high = read_u16(b + 2);
    for (int s = 0; s < 8; s++) {
        int own = ((b[4 + s / 2] >> (4 * (s % 2))) & 15) | (((high >> (2 * s)) & 3) << 4);
        out.scales[s] = scale * (float)(own - 32);
        for (int j = 0; j < 16; j++) {
            out.quants[32 * s + j] = CODEBOOK[b[8 + 16 * s + j] & 15];
            out.quants[32 * s + j + 16] = CODEBOOK[b[8 + 16 * s + j] >> 4];
        }
    }
}

struct Format {
    const char *name;
    int columns;      // in one block of the file
    int bytes;        // of that block
    int scale_block;  // columns under one scale
    WeightKind kind;
    int scale_bytes;
    bool has_minimum;
    void (*take_apart)(const uint8_t *, Block &);
};

// Half-precision scales where the file has just those; products of scales need single precision to stay exact.
const Format FORMATS[] = {
    {"F32", 1, 4, 1, KIND_F32, 0, false, nullptr},
    {"F16", 1, 2, 1, KIND_F16, 0, false, nullptr},
    {"BF16", 1, 2, 1, KIND_BF16, 0, false, nullptr},
    {"Q4_0", 32, 18, 32, KIND_NIBBLE, 4, true, q4_0},
    {"Q4_1", 32, 20, 32, KIND_NIBBLE, 2, true, q4_1},
    {"Q5_0", 32, 22, 32, KIND_BYTE, 2, false, q5_0},
    {"Q5_1", 32, 24, 32, KIND_BYTE, 2, true, q5_1},
    {"Q8_0", 32, 34, 32, KIND_BYTE, 2, false, q8_0},
    {"Q2_K", 256, 84, 16, KIND_NIBBLE, 4, true, q2_k},
    {"Q3_K", 256, 110, 16, KIND_BYTE, 4, false, q3_k},
    {"Q4_K", 256, 144, 32, KIND_NIBBLE, 4, true, q4_k},
    {"Q5_K", 256, 176, 32, KIND_BYTE, 4, true, q5_k},
    {"Q6_K", 256, 210, 16, KIND_BYTE, 4, false, q6_k},
    {"IQ4_NL", 32, 18, 32, KIND_BYTE, 2, false, iq4_nl},
    {"IQ4_XS", 256, 136, 32, KIND_BYTE, 4, false, iq4_xs},
};

const Format *find(const char *name) {
    for (const Format &format : FORMATS)
        if (std::strcmp(format.name, name) == 0) return &format;
    return nullptr;
}

void put_scale(uint8_t *place, int scale_bytes, int lane, float value, uint16_t half) {
    if (scale_bytes == 2)
        std::memcpy(place + 2 * lane, &half, 2);
    else
        std::memcpy(place + 4 * lane, &value, 4);
}

void put_quant(uint8_t *quants, WeightKind kind, int column, int lane, int quant) {
    if (kind == KIND_BYTE)
        quants[column * GROUP_ROWS + lane] = (uint8_t)(int8_t)quant;
    else
        quants[(column / 2) * GROUP_ROWS + lane] |= (uint8_t)(quant << (4 * (column % 2)));
}

void pack_row(const Format &format, const uint8_t *row, const PackedWeight &weight, uint8_t *group, int lane) {
    Block block;
    std::memset(&block, 0, sizeof block);
    int scales_bytes = GROUP_ROWS * format.scale_bytes;
    for (int64_t first = 0; first < weight.num_columns; first += format.columns) {
        const uint8_t *raw = row + first / format.columns * format.bytes;
        format.take_apart(raw, block);
        for (int s = 0; s < format.columns / format.scale_block; s++) {
            uint8_t *place = group + (first / format.scale_block + s) * weight.block_bytes;
            // With half-precision scales the file's own bytes are kept: the first two, then the minimum's.
            put_scale(place, format.scale_bytes, lane, block.scales[s], read_u16(raw));
            if (format.has_minimum) put_scale(place + scales_bytes, format.scale_bytes, lane, block.minimums[s], read_u16(raw + 2));
            uint8_t *quants = place + scales_bytes * (1 + format.has_minimum);
            for (int c = 0; c < format.scale_block; c++)
                put_quant(quants, format.kind, c, lane, block.quants[s * format.scale_block + c]);
        }
    }
}

void pack_float_row(int bytes, const uint8_t *row, int64_t num_columns, uint8_t *group, int lane) {
    for (int64_t c = 0; c < num_columns; c++)
        std::memcpy(group + (c * GROUP_ROWS + lane) * bytes, row + c * bytes, (size_t)bytes);
}

}  // namespace

extern "C" int64_t pagoda_describe_weight(const char *name, int64_t num_rows, int64_t num_columns, PackedWeight *weight) {
    const Format *format = find(name);
    if (!format || num_rows < 1 || num_columns < 1 || num_columns % format->columns) return 0;
    int quant_bytes = format->kind == KIND_NIBBLE ? format->scale_block / 2 : format->scale_block;
    if (!format->take_apart) quant_bytes = format->bytes;
    weight->kind = format->kind;
    weight->block = format->scale_block;
    weight->scale_bytes = format->scale_bytes;
    weight->has_minimum = format->has_minimum;
    weight->num_rows = num_rows;
    weight->num_columns = num_columns;
    weight->num_groups = (num_rows + GROUP_ROWS - 1) / GROUP_ROWS;
    weight->block_bytes = (int64_t)GROUP_ROWS * (quant_bytes + format->scale_bytes * (1 + format->has_minimum));
    weight->group_bytes = weight->block_bytes * (num_columns / format->scale_block);
    return weight->num_groups * weight->group_bytes;
}

extern "C" void pagoda_pack_weight(
    const char *name, const uint8_t *raw, PackedWeight *weight, int64_t first_group, int64_t last_group) {
    const Format *format = find(name);
    int64_t row_bytes = weight->num_columns / format->columns * format->bytes;
    for (int64_t g = first_group; g < last_group; g++) {
        uint8_t *group = weight->data + g * weight->group_bytes;
        std::memset(group, 0, (size_t)weight->group_bytes);
        for (int lane = 0; lane < GROUP_ROWS && g * GROUP_ROWS + lane < weight->num_rows; lane++) {
            const uint8_t *row = raw + (g * GROUP_ROWS + lane) * row_bytes;
            if (format->take_apart)
                pack_row(*format, row, *weight, group, lane);
            else
                pack_float_row(format->bytes, row, weight->num_columns, group, lane);
        }
    }
}
