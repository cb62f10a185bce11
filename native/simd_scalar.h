// Sixteen lanes in plain C++: what the other headers do with instructions, the compiler does here as well as it can.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

namespace {

struct Lanes {
    float v[16];
};

inline Lanes zero() {
    Lanes r;
    for (float &x : r.v) x = 0.0f;
    return r;
}
inline Lanes set1(float x) {
    Lanes r;
    for (float &lane : r.v) lane = x;
    return r;
}
inline Lanes load(const float *p) {
    Lanes r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
}
inline void store(float *p, Lanes a) { std::memcpy(p, a.v, sizeof a.v); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
    for (int i = 0; i < 16; i++) c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
    return c;
}
inline Lanes mul(Lanes a, Lanes b) {
    for (int i = 0; i < 16; i++) a.v[i] *= b.v[i];
    return a;
}
inline Lanes div(Lanes a, Lanes b) {
    for (int i = 0; i < 16; i++) a.v[i] /= b.v[i];
    return a;
}
inline Lanes add(Lanes a, Lanes b) {
    for (int i = 0; i < 16; i++) a.v[i] += b.v[i];
    return a;
}
inline Lanes sub(Lanes a, Lanes b) {
    for (int i = 0; i < 16; i++) a.v[i] -= b.v[i];
    return a;
}
inline Lanes max(Lanes a, Lanes b) {
    for (int i = 0; i < 16; i++) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
}
inline Lanes min(Lanes a, Lanes b) {
    for (int i = 0; i < 16; i++) a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
}
inline Lanes nearest(Lanes a) {
    for (float &x : a.v) x = std::nearbyint(x);
    return a;
}
// 2^n for whole n in [-126, 128]; the last of them is infinity. Something finite for what is no number.
inline Lanes power_of_two(Lanes n) {
    for (float &x : n.v) {
        uint32_t bits = (uint32_t)((int)(x == x ? x : 0.0f) + 127) << 23;
        std::memcpy(&x, &bits, 4);
    }
    return n;
}
// x 2^n, where that is a normal number.
inline Lanes times_power_of_two(Lanes x, Lanes n) { return mul(x, power_of_two(n)); }
inline Lanes from_half(const uint16_t *p) {
    Lanes r;
    for (int i = 0; i < 16; i++) r.v[i] = half_to_float(p[i]);
    return r;
}
inline Lanes from_bfloat(const uint16_t *p) {
    Lanes r;
    for (int i = 0; i < 16; i++) {
        uint32_t bits = (uint32_t)p[i] << 16;
        std::memcpy(&r.v[i], &bits, 4);
    }
    return r;
}
inline Lanes from_int8(const int8_t *p) {
    Lanes r;
    for (int i = 0; i < 16; i++) r.v[i] = (float)p[i];
    return r;
}
inline Lanes absolute(Lanes a) {
    for (float &x : a.v) x = std::fabs(x);
    return a;
}
// 0 where x lies below the limit, else the value; what is no number is not below.
inline Lanes zero_below(Lanes value, Lanes x, float limit) {
    for (int i = 0; i < 16; i++) value.v[i] = x.v[i] < limit ? 0.0f : value.v[i];
    return value;
}
// Lanes eight, four, two and one apart are put together.
inline float fold_add(Lanes a) {
    for (int apart = 8; apart; apart /= 2)
        for (int i = 0; i < apart; i++) a.v[i] += a.v[i + apart];
    return a.v[0];
}
inline float fold_max(Lanes a) {
    for (int apart = 8; apart; apart /= 2)
        for (int i = 0; i < apart; i++) a.v[i] = a.v[i] > a.v[i + apart] ? a.v[i] : a.v[i + apart];
    return a.v[0];
}
// Halves, rounded to the nearest, to the even one between two.
inline void to_half(uint16_t *p, Lanes a) {
    for (int i = 0; i < 16; i++) p[i] = float_to_half(a.v[i]);
}
// Whole numbers of at most 127 in size.
inline void to_int8(int8_t *p, Lanes a) {
    for (int i = 0; i < 16; i++) p[i] = (int8_t)a.v[i];
}
inline Lanes keep_bits(Lanes a, uint32_t bits) {
    for (float &x : a.v) {
        uint32_t own;
        std::memcpy(&own, &x, 4);
        own &= bits;
        std::memcpy(&x, &own, 4);
    }
    return a;
}
// 1 where a > b, else 0, lane by lane from the lowest bit on.
inline uint32_t where_greater(Lanes a, Lanes b) {
    uint32_t bits = 0;
    for (int i = 0; i < 16; i++) bits |= (uint32_t)(a.v[i] > b.v[i]) << i;
    return bits;
}
inline Lanes zero_where_greater(Lanes values, Lanes a, Lanes b) {
    for (int i = 0; i < 16; i++)
        if (a.v[i] > b.v[i]) values.v[i] = 0.0f;
    return values;
}

// Products of small whole numbers: the lanes that one register of sums holds.
typedef Lanes Part;
constexpr int NUM_PARTS = 1;
constexpr int SIGNED_OFFSET = 0;

struct Bytes {
    uint8_t v[64];
};

inline Part part_set1(float x) { return set1(x); }
inline Part part_half(const uint16_t *p) { return from_half(p); }
inline Part part_int8(const int8_t *p) { return from_int8(p); }
inline Part part_load(const float *p) { return load(p); }
inline void store_bytes(uint8_t *p, const Bytes &a) { std::memcpy(p, a.v, sizeof a.v); }
inline Bytes load_bytes(const uint8_t *p) {
    Bytes r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
}
inline Bytes bits_and(Bytes a, int byte) {
    for (uint8_t &x : a.v) x = (uint8_t)(x & byte);
    return a;
}
inline Bytes bits_or(Bytes a, Bytes b) {
    for (int i = 0; i < 64; i++) a.v[i] |= b.v[i];
    return a;
}
// Other headers move bits over from the neighbouring byte: they must be masked away after.
inline Bytes shift_left(Bytes a, int count) {
    for (uint8_t &x : a.v) x = (uint8_t)(x << count);
    return a;
}
inline Bytes shift_right(Bytes a, int count) {
    for (uint8_t &x : a.v) x = (uint8_t)(x >> count);
    return a;
}
inline Bytes look_up(Bytes nibbles, const int8_t *table) {
    for (uint8_t &x : nibbles.v) x = (uint8_t)table[x];
    return nibbles;
}

// Column `i` of a unit, its bytes signed.
inline Lanes column(const Bytes (&unit)[NUM_PARTS], int i) {
    Lanes r;
    for (int lane = 0; lane < 16; lane++) r.v[lane] = (float)(int8_t)unit[0].v[4 * lane + i];
    return r;
}

// Adds four products a lane and unit. LIMIT: how many units fit the narrow sums of instruction sets that have such.
template <bool SIGNED, int LIMIT>
struct Dot {
    typedef Bytes Quants;
    int32_t sums[16] = {};

    // What is kept of quants for many tokens, and what is made of it for each few.
    static inline Bytes ready(Bytes a) { return a; }
    static inline Quants prepare(Bytes a) { return a; }
    inline void add(int, const Quants &quants, const int8_t *x) {
        for (int lane = 0; lane < 16; lane++)
            for (int i = 0; i < 4; i++) {
                const uint8_t quant = quants.v[4 * lane + i];
                sums[lane] += (SIGNED ? (int)(int8_t)quant : (int)quant) * x[i];
            }
    }
    inline Part total() const {
        Part r;
        for (int lane = 0; lane < 16; lane++) r.v[lane] = (float)sums[lane];
        return r;
    }
};

constexpr int TOKEN_TILE = 4;
constexpr int QUERY_TILE = 4;  // of attention
constexpr int LANE_SUMS = 4;  // sums of sixteen lanes that the registers hold beside what is added to them
constexpr int TURNS = 1;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 1;
constexpr int INTEGER_TILE = 4;  // tokens whose rounded inputs stand side by side
constexpr int INTEGER_SUMS = 4;  // of tokens and groups, that the registers hold
constexpr int PACKED_TOKENS = 4;  // for more, groups are made ready, so many at once:
constexpr int READY_GROUPS = 1;
constexpr bool IS_ANCHORED = false;  // whether sums of products start at the anchor
constexpr int INTEGER_TURNS = 1;

}  // namespace

#include "simd_plain.h"
