// Sixteen lanes in four NEON registers, and the dot products of ARMv8.2 where the compiler may use them.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace {

struct Lanes {
    float32x4_t a, b, c, d;
};

// f on each register.
template <typename F>
inline __attribute__((always_inline)) Lanes quarters(Lanes x, F f) {
    return {f(x.a), f(x.b), f(x.c), f(x.d)};
}
template <typename F>
inline __attribute__((always_inline)) Lanes quarters(Lanes x, Lanes y, F f) {
    return {f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)};
}

// vmaxq_f32 and vminq_f32 make NaN of NaN and a number; the lanes promise the second argument.
inline float32x4_t larger(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
inline float32x4_t smaller(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
inline float32x4_t and_not(float32x4_t x, uint32x4_t mask) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), mask));
}

inline Lanes set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline Lanes zero() { return set1(0.0f); }
inline Lanes load(const float *p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
inline void store(float *p, Lanes x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
inline Lanes fma(Lanes x, Lanes y, Lanes z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
}
inline Lanes mul(Lanes x, Lanes y) {
    return quarters(x, y, [](float32x4_t p, float32x4_t q) { return vmulq_f32(p, q); });
}
inline Lanes div(Lanes x, Lanes y) {
    return quarters(x, y, [](float32x4_t p, float32x4_t q) { return vdivq_f32(p, q); });
}
inline Lanes add(Lanes x, Lanes y) {
    return quarters(x, y, [](float32x4_t p, float32x4_t q) { return vaddq_f32(p, q); });
}
inline Lanes sub(Lanes x, Lanes y) {
    return quarters(x, y, [](float32x4_t p, float32x4_t q) { return vsubq_f32(p, q); });
}
inline Lanes max(Lanes x, Lanes y) { return quarters(x, y, larger); }
inline Lanes min(Lanes x, Lanes y) { return quarters(x, y, smaller); }
inline Lanes nearest(Lanes x) {
    return quarters(x, [](float32x4_t p) { return vrndnq_f32(p); });
}
inline float32x4_t power_of_two(float32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
}
inline Lanes power_of_two(Lanes n) {
    return quarters(n, [](float32x4_t p) { return power_of_two(p); });
}
inline Lanes times_power_of_two(Lanes x, Lanes n) { return mul(x, power_of_two(n)); }
inline Lanes from_half(const uint16_t *p) {
    const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(p)), high = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
}
inline float32x4_t bfloat4(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
inline Lanes from_bfloat(const uint16_t *p) { return {bfloat4(p), bfloat4(p + 4), bfloat4(p + 8), bfloat4(p + 12)}; }
inline Lanes from_int8(const int8_t *p) {
    const int8x16_t bytes = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}
inline Lanes absolute(Lanes x) {
    return quarters(x, [](float32x4_t p) { return vabsq_f32(p); });
}
// 0 where x lies below the limit, else the value; what is no number is not below.
inline Lanes zero_below(Lanes value, Lanes x, float limit) {
    const float32x4_t bound = vdupq_n_f32(limit);
    return quarters(value, x, [=](float32x4_t p, float32x4_t q) { return and_not(p, vcltq_f32(q, bound)); });
}
// Lanes eight, four, two and one apart are put together.
inline float fold_add(Lanes x) {
    const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
inline float fold_max(Lanes x) {
    const float32x4_t four = larger(larger(x.a, x.c), larger(x.b, x.d));
    const float32x4_t two = larger(four, vextq_f32(four, four, 2));
    const float first = vgetq_lane_f32(two, 0), second = vgetq_lane_f32(two, 1);
    return first > second ? first : second;
}
// Halves, rounded to the nearest, to the even one between two.
inline void to_half(uint16_t *p, Lanes x) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d)));
}
// Whole numbers of at most 127 in size.
inline void to_int8(int8_t *p, Lanes x) {
    const int16x8_t low = vmovn_high_s32(vmovn_s32(vcvtq_s32_f32(x.a)), vcvtq_s32_f32(x.b));
    const int16x8_t high = vmovn_high_s32(vmovn_s32(vcvtq_s32_f32(x.c)), vcvtq_s32_f32(x.d));
    vst1q_s8(p, vmovn_high_s16(vmovn_s16(low), high));
}
inline Lanes keep_bits(Lanes x, uint32_t bits) {
    const uint32x4_t mask = vdupq_n_u32(bits);
    return quarters(x, [=](float32x4_t p) { return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(p), mask)); });
}
// 1 where x > y, else 0, lane by lane from the lowest bit on.
inline uint32_t where_greater(Lanes x, Lanes y) {
    const uint32x4_t bits = {1, 2, 4, 8};
    const uint32x4_t low = vorrq_u32(vandq_u32(vcgtq_f32(x.a, y.a), bits), vandq_u32(vcgtq_f32(x.b, y.b), vshlq_n_u32(bits, 4)));
    const uint32x4_t high = vorrq_u32(vandq_u32(vcgtq_f32(x.c, y.c), vshlq_n_u32(bits, 8)),
                                      vandq_u32(vcgtq_f32(x.d, y.d), vshlq_n_u32(bits, 12)));
    return vaddvq_u32(vorrq_u32(low, high));
}
inline Lanes zero_where_greater(Lanes values, Lanes x, Lanes y) {
    return {and_not(values.a, vcgtq_f32(x.a, y.a)), and_not(values.b, vcgtq_f32(x.b, y.b)),
            and_not(values.c, vcgtq_f32(x.c, y.c)), and_not(values.d, vcgtq_f32(x.d, y.d))};
}

// Products of small whole numbers: all sixteen lanes at once, so that a weight is read from memory in one stream.
typedef Lanes Part;
constexpr int NUM_PARTS = 1;
constexpr int SIGNED_OFFSET = 0;

struct Bytes {
    uint8x16_t a, b, c, d;
};

template <typename F>
inline __attribute__((always_inline)) Bytes quarters(Bytes x, F f) {
    return {f(x.a), f(x.b), f(x.c), f(x.d)};
}

inline Part part_set1(float x) { return set1(x); }
inline Part part_half(const uint16_t *p) { return from_half(p); }
inline Part part_int8(const int8_t *p) { return from_int8(p); }
inline Part part_load(const float *p) { return load(p); }
inline void store_bytes(uint8_t *p, Bytes a) {
    vst1q_u8(p, a.a);
    vst1q_u8(p + 16, a.b);
    vst1q_u8(p + 32, a.c);
    vst1q_u8(p + 48, a.d);
}
inline Bytes load_bytes(const uint8_t *p) { return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}; }
inline Bytes bits_and(Bytes a, int byte) {
    const uint8x16_t mask = vdupq_n_u8((uint8_t)byte);
    return quarters(a, [=](uint8x16_t p) { return vandq_u8(p, mask); });
}
inline Bytes bits_or(Bytes a, Bytes b) { return {vorrq_u8(a.a, b.a), vorrq_u8(a.b, b.b), vorrq_u8(a.c, b.c), vorrq_u8(a.d, b.d)}; }
// The compiler's own shifts of vectors: counts that it knows become part of the instruction.
inline Bytes shift_left(Bytes a, int count) {
    const uint8x16_t counts = vdupq_n_u8((uint8_t)count);
    return quarters(a, [=](uint8x16_t p) { return p << counts; });
}
inline Bytes shift_right(Bytes a, int count) {
    const uint8x16_t counts = vdupq_n_u8((uint8_t)count);
    return quarters(a, [=](uint8x16_t p) { return p >> counts; });
}
inline Bytes look_up(Bytes nibbles, const int8_t *table) {
    const uint8x16_t entries = vreinterpretq_u8_s8(vld1q_s8(table));
    return quarters(nibbles, [=](uint8x16_t p) { return vqtbl1q_u8(entries, p); });
}

// Column `i` of a unit, its bytes signed.
inline float32x4_t column(uint8x16_t words, int i) {
    const uint32x4_t raised = vreinterpretq_u32_u8(words) << vdupq_n_u32((uint32_t)(24 - 8 * i));
    return vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(raised), 24));
}
inline Lanes column(const Bytes (&unit)[NUM_PARTS], int i) {
    return {column(unit[0].a, i), column(unit[0].b, i), column(unit[0].c, i), column(unit[0].d, i)};
}

// The other factor of four columns, and what adds their products to each lane. Quants without a sign are 63 at most, so all
// may count as signed.
#if defined(__ARM_FEATURE_DOTPROD)
typedef int8x8_t Factor;
inline Factor factor_of(int32_t four) { return vreinterpret_s8_s32(vset_lane_s32(four, vdup_n_s32(0), 0)); }
inline int32x4_t add_products(int32x4_t sum, uint8x16_t quants, Factor factor) {
    return vdotq_lane_s32(sum, vreinterpretq_s8_u8(quants), factor, 0);
}
#else
typedef int8x16_t Factor;
inline Factor factor_of(int32_t four) { return vreinterpretq_s8_s32(vdupq_n_s32(four)); }
inline int32x4_t add_products(int32x4_t sum, uint8x16_t quants, Factor factor) {
    const int8x16_t own = vreinterpretq_s8_u8(quants);
    // Two products fit 16 bits: 2 * 128 * 127 at most.
    const int16x8_t low = vmull_s8(vget_low_s8(own), vget_low_s8(factor)), high = vmull_high_s8(own, factor);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
#endif

// Adds four products a lane and unit. LIMIT: how many units fit the narrow sums of instruction sets that have such.
template <bool SIGNED, int LIMIT>
struct Dot {
    typedef Bytes Quants;
    int32x4_t a = vdupq_n_s32(0), b = vdupq_n_s32(0), c = vdupq_n_s32(0), d = vdupq_n_s32(0);

    // What is kept of quants for many tokens, and what is made of it for each few.
    static inline Bytes ready(Bytes quants) { return quants; }
    static inline Quants prepare(Bytes quants) { return quants; }
    inline void add(int, Quants quants, const int8_t *x) {
        int32_t four;
        std::memcpy(&four, x, 4);
        const Factor factor = factor_of(four);
        a = add_products(a, quants.a, factor);
        b = add_products(b, quants.b, factor);
        c = add_products(c, quants.c, factor);
        d = add_products(d, quants.d, factor);
    }
    inline Part total() const { return {vcvtq_f32_s32(a), vcvtq_f32_s32(b), vcvtq_f32_s32(c), vcvtq_f32_s32(d)}; }
};

constexpr int TOKEN_TILE = 5;
constexpr int QUERY_TILE = 5;  // of attention
constexpr int LANE_SUMS = 5;  // sums of sixteen lanes that the registers hold beside what is added to them
constexpr int TURNS = 2;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 1;
constexpr int INTEGER_TILE = 4;  // tokens whose rounded inputs stand side by side
constexpr int INTEGER_SUMS = 4;  // of tokens and groups, that the registers hold
constexpr int PACKED_TOKENS = 4;  // for more, groups are made ready, so many at once:
constexpr int READY_GROUPS = 1;
constexpr bool IS_ANCHORED = false;  // whether sums of products start at the anchor
constexpr int INTEGER_TURNS = 2;

}  // namespace

#include "simd_plain.h"
