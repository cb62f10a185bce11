// From the block formats of GGUF to groups of sixteen rows. Every value stays what it was: only its place changes.
#include <cstring>

#include "weight.h"

namespace {

constexpr int MAX_BLOCK_COLUMNS = 256;
constexpr int MAX_SCALES = 16;
constexpr uint32_t EACH_BYTE = 0x01010101;

// One block of one row, taken apart: the quants as they are packed, and scales and minimums of formats that have bytes.
struct Block {
    uint8_t quants[MAX_BLOCK_COLUMNS];  // a signed quant by its bits
    uint16_t scale;    // halves, as in the file
    uint16_t minimum;
    int8_t scales[MAX_SCALES];
    int8_t minimums[MAX_SCALES];
};

uint16_t read_u16(const uint8_t *p) {
    uint16_t value;
    std::memcpy(&value, p, 2);
    return value;
}

void halves(const uint8_t *quants, Block &out) {
    for (int j = 0; j < 16; j++) {
        out.quants[j] = quants[j] & 15;
        out.quants[j + 16] = quants[j] >> 4;
    }
}

void q4_0(const uint8_t *b, Block &out) {
    out.scale = read_u16(b);
    halves(b + 2, out);
}
void q4_1(const uint8_t *b, Block &out) {
    out.scale = read_u16(b);
    out.minimum = read_u16(b + 2);
    halves(b + 4, out);
}
void fifth_bits(const uint8_t *bits, Block &out) {
    uint32_t high;
    std::memcpy(&high, bits, 4);
    for (int j = 0; j < 32; j++) out.quants[j] = (uint8_t)(out.quants[j] | ((high >> j) & 1) << 4);
}
void q5_0(const uint8_t *b, Block &out) {
    out.scale = read_u16(b);
    halves(b + 6, out);
    fifth_bits(b + 2, out);
}
void q5_1(const uint8_t *b, Block &out) {
    out.scale = read_u16(b);
    out.minimum = read_u16(b + 2);
    halves(b + 8, out);
    fifth_bits(b + 4, out);
}
void q8_0(const uint8_t *b, Block &out) {
    out.scale = read_u16(b);
    std::memcpy(out.quants, b + 2, 32);
}
void q2_k(const uint8_t *b, Block &out) {
    out.scale = read_u16(b + 80);
    out.minimum = read_u16(b + 82);
    for (int s = 0; s < 16; s++) {
        out.scales[s] = (int8_t)(b[s] & 15);
        out.minimums[s] = (int8_t)(b[s] >> 4);
        const uint8_t *quants = b + 16 + 32 * (s / 8) + 16 * (s % 2);
        for (int l = 0; l < 16; l++) out.quants[16 * s + l] = (quants[l] >> (2 * ((s % 8) / 2))) & 3;
    }
}
void q3_k(const uint8_t *b, Block &out) {
    const uint8_t *mask = b, *packed = b + 96;
    out.scale = read_u16(b + 108);
    for (int s = 0; s < 16; s++) {
        int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
        int high = (packed[8 + s % 4] >> (2 * (s / 4))) & 3;
        out.scales[s] = (int8_t)((low | (high << 4)) - 32);
        const uint8_t *quants = b + 32 + 32 * (s / 8) + 16 * (s % 2);
        for (int l = 0; l < 16; l++) {
            int value = (quants[l] >> (2 * ((s % 8) / 2))) & 3;
            int set = (mask[16 * (s % 2) + l] >> (s / 2)) & 1;
            out.quants[16 * s + l] = (uint8_t)(value + 4 * set);
        }
    }
}
void six_bit_scales(const uint8_t *b, Block &out) {
    const uint8_t *packed = b + 4;
    out.scale = read_u16(b);
    out.minimum = read_u16(b + 2);
    for (int s = 0; s < 4; s++) {
        out.scales[s] = packed[s] & 63;
        out.minimums[s] = packed[s + 4] & 63;
        out.scales[s + 4] = (int8_t)((packed[s + 8] & 15) | ((packed[s] >> 6) << 4));
        out.minimums[s + 4] = (int8_t)((packed[s + 8] >> 4) | ((packed[s + 4] >> 6) << 4));
    }
}
void q4_k(const uint8_t *b, Block &out) {
    six_bit_scales(b, out);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++) out.quants[32 * s + l] = (b[16 + 32 * (s / 2) + l] >> (4 * (s % 2))) & 15;
}
void q5_k(const uint8_t *b, Block &out) {
    six_bit_scales(b, out);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++) {
            int low = (b[48 + 32 * (s / 2) + l] >> (4 * (s % 2))) & 15;
            out.quants[32 * s + l] = (uint8_t)(low | ((b[16 + l] >> s) & 1) << 4);
        }
}
void q6_k(const uint8_t *b, Block &out) {
    out.scale = read_u16(b + 208);
    std::memcpy(out.scales, b + 192, 16);
    for (int n = 0; n < 2; n++)
        for (int part = 0; part < 4; part++)
            for (int l = 0; l < 32; l++) {
                int low = (b[64 * n + 32 * (part % 2) + l] >> (4 * (part / 2))) & 15;
                int high = (b[128 + 32 * n + l] >> (2 * part)) & 3;
                out.quants[128 * n + 32 * part + l] = (uint8_t)(low | high << 4);
            }
}
void iq4_nl(const uint8_t *b, Block &out) {
    out.scale = read_u16(b);
    halves(b + 2, out);
}
void iq4_xs(const uint8_t *b, Block &out) {
    out.scale = read_u16(b);
    uint16_t high = read_u16(b + 2);
    for (int s = 0; s < 8; s++) {
        int own = ((b[4 + s / 2] >> (4 * (s % 2))) & 15) | (((high >> (2 * s)) & 3) << 4);
        out.scales[s] = (int8_t)(own - 32);
        for (int j = 0; j < 16; j++) {
            out.quants[32 * s + j] = b[8 + 16 * s + j] & 15;
            out.quants[32 * s + j + 16] = b[8 + 16 * s + j] >> 4;
        }
    }
}

struct Format {
    const char *name;
    int columns;  // in one block of the file
    int bytes;    // of that block
    int block;    // columns under one scale
    WeightKind kind;
    int scale_bytes;
    bool has_minimum;
    int offset;
    void (*take_apart)(const uint8_t *, Block &);
};

const Format FORMATS[] = {
    {"F32", 1, 4, 1, KIND_F32, 0, false, 0, nullptr},
    {"F16", 1, 2, 1, KIND_F16, 0, false, 0, nullptr},
    {"BF16", 1, 2, 1, KIND_BF16, 0, false, 0, nullptr},
    {"Q4_0", 32, 18, 32, KIND_NIBBLE, 2, false, 8, q4_0},
    {"Q4_1", 32, 20, 32, KIND_NIBBLE, 2, true, 0, q4_1},
    {"Q5_0", 32, 22, 32, KIND_NIBBLE_1, 2, false, 16, q5_0},
    {"Q5_1", 32, 24, 32, KIND_NIBBLE_1, 2, true, 0, q5_1},
    {"Q8_0", 32, 34, 32, KIND_BYTE, 2, false, 0, q8_0},
    {"Q2_K", 256, 84, 16, KIND_NIBBLE, 1, true, 0, q2_k},
    {"Q3_K", 256, 110, 16, KIND_NIBBLE, 1, false, 4, q3_k},
    {"Q4_K", 256, 144, 32, KIND_NIBBLE, 1, true, 0, q4_k},
    {"Q5_K", 256, 176, 32, KIND_NIBBLE_1, 1, true, 0, q5_k},
    {"Q6_K", 256, 210, 16, KIND_NIBBLE_2, 1, false, 32, q6_k},
    {"IQ4_NL", 32, 18, 32, KIND_CODE, 2, false, 0, iq4_nl},
    {"IQ4_XS", 256, 136, 32, KIND_CODE, 1, false, 0, iq4_xs},
};

const Format *find(const char *name) {
    for (const Format &format : FORMATS)
        if (std::strcmp(format.name, name) == 0) return &format;
    return nullptr;
}

int plane_bits(WeightKind kind) { return kind == KIND_NIBBLE_1 ? 1 : kind == KIND_NIBBLE_2 ? 2 : 0; }

int quant_bits(WeightKind kind) { return kind == KIND_BYTE ? 8 : 4 + plane_bits(kind); }

// The four quants of a unit at once: each keeps to its own byte, in whatever order the machine reads them.
uint32_t unit_of(const uint8_t *quants, int unit) {
    uint32_t four;
    std::memcpy(&four, quants + UNIT * unit, UNIT);
    return four;
}

void put_unit(uint8_t *quants, int unit, int lane, uint32_t four) {
    std::memcpy(quants + unit * UNIT_BYTES + lane * UNIT, &four, UNIT);
}

// One row's quants of a block into their places.
void put_quants(uint8_t *place, const Format &format, int lane, const uint8_t *quants) {
    const int num_units = format.block / UNIT;
    if (format.kind == KIND_BYTE) {
        for (int unit = 0; unit < num_units; unit++) put_unit(place, unit, lane, unit_of(quants, unit));
        return;
    }
    for (int pair = 0; pair < num_units / 2; pair++) {
        const uint32_t low = unit_of(quants, 2 * pair), high = unit_of(quants, 2 * pair + 1);
        put_unit(place, pair, lane, (low & EACH_BYTE * 15) | (high & EACH_BYTE * 15) << 4);
    }
    if (const int bits = plane_bits(format.kind)) {
        uint32_t plane = 0;
        for (int unit = 0; unit < num_units; unit++)
            plane |= (unit_of(quants, unit) >> 4 & EACH_BYTE * ((1u << bits) - 1)) << (bits * unit);
        put_unit(place, num_units / 2, lane, plane);
    }
}

void put_half(uint8_t *place, int lane, uint16_t half) { std::memcpy(place + 2 * lane, &half, 2); }

void pack_row(const Format &format, const uint8_t *row, const PackedWeight &weight, uint8_t *group, int lane) {
    Block block;
    std::memset(&block, 0, sizeof block);
    const int scales_bytes = GROUP_ROWS * format.scale_bytes;
    uint8_t *place = group;
    for (int64_t first = 0; first < weight.num_columns; first += format.columns) {
        format.take_apart(row + first / format.columns * format.bytes, block);
        if (format.scale_bytes == 1) {
            put_half(place, lane, block.scale);
            if (format.has_minimum) put_half(place + 2 * GROUP_ROWS, lane, block.minimum);
            place += weight.header_bytes;
        }
        for (int s = 0; s < format.columns / format.block; s++, place += weight.block_bytes) {
            if (format.scale_bytes == 2) {
                put_half(place, lane, block.scale);
                if (format.has_minimum) put_half(place + scales_bytes, lane, block.minimum);
            } else {
                place[lane] = (uint8_t)block.scales[s];
                if (format.has_minimum) place[scales_bytes + lane] = (uint8_t)block.minimums[s];
            }
            uint8_t *quants = place + scales_bytes * (1 + format.has_minimum);
            put_quants(quants, format, lane, block.quants + s * format.block);
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
    const bool has_bytes = format->scale_bytes == 1;
    const int quant_bytes = format->take_apart ? format->block * quant_bits(format->kind) / 8 : format->bytes;
    weight->kind = format->kind;
    weight->block = format->block;
    weight->scale_bytes = format->scale_bytes;
    weight->has_minimum = format->has_minimum;
    weight->offset = format->offset;
    weight->header_bytes = has_bytes ? 2 * GROUP_ROWS * (1 + format->has_minimum) : 0;
    weight->num_rows = num_rows;
    weight->num_columns = num_columns;
    weight->num_groups = (num_rows + GROUP_ROWS - 1) / GROUP_ROWS;
    weight->block_bytes = (int64_t)GROUP_ROWS * (quant_bytes + format->scale_bytes * (1 + format->has_minimum));
    weight->group_bytes = weight->block_bytes * (num_columns / format->block);
    if (has_bytes) weight->group_bytes += num_columns / SUPER_COLUMNS * weight->header_bytes;
    return weight->num_groups * weight->group_bytes;
}

extern "C" void pagoda_pack_weight(
    const char *name, const uint8_t *raw, PackedWeight *weight, int64_t first_group, int64_t last_group) {
    const Format *format = find(name);
    int64_t row_bytes = weight->num_columns / format->columns * format->bytes;
    for (int64_t g = first_group; g < last_group; g++) {
        uint8_t *group = weight->data + g * weight->group_bytes;
        if ((g + 1) * GROUP_ROWS > weight->num_rows) std::memset(group, 0, (size_t)weight->group_bytes);
        for (int lane = 0; lane < GROUP_ROWS && g * GROUP_ROWS + lane < weight->num_rows; lane++) {
            const uint8_t *row = raw + (g * GROUP_ROWS + lane) * row_bytes;
            if (format->take_apart)
                pack_row(*format, row, *weight, group, lane);
            else
                pack_float_row(format->bytes, row, weight->num_columns, group, lane);
        }
    }
}
