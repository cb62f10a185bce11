// Sixteen lanes in one AVX-512 register, and the dot products of VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "integer.h"

namespace {

typedef __m512 Lanes;

inline Lanes zero() { return _mm512_setzero_ps(); }
inline Lanes set1(float x) { return _mm512_set1_ps(x); }
inline Lanes load(const float *p) { return _mm512_loadu_ps(p); }
inline void store(float *p, Lanes a) { _mm512_storeu_ps(p, a); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes max(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes min(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
inline Lanes nearest(Lanes a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
inline Lanes power_of_two(Lanes n) {
    __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}
inline Lanes from_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
inline Lanes from_bfloat(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline Lanes from_int8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
// 1 where a > b, else 0, lane by lane from the lowest bit on.
inline uint32_t where_greater(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Lanes zero_where_greater(Lanes values, Lanes a, Lanes b) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NGT_UQ), values);
}
inline Lanes absolute(Lanes x) { return _mm512_abs_ps(x); }
// 0 where x lies below the limit, else the value; what is no number is not below.
inline Lanes zero_below(Lanes value, Lanes x, float limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ), value);
}
// Lanes eight, four, two and one apart are put together.
inline float fold_add(Lanes x) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float fold_max(Lanes x) {
    __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// Halves, rounded to the nearest, to the even one between two.
inline void to_half(uint16_t *p, Lanes x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
// Whole numbers of at most 127 in size.
inline void to_int8(int8_t *p, Lanes x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
}

// Products of small whole numbers: the lanes that one register of sums holds.
typedef __m512 Part;
typedef __m512i Bytes;
constexpr int NUM_PARTS = 1;
constexpr int SIGNED_OFFSET = 128;  // bytes are made unsigned: the multiplier wants them so

inline Part part_set1(float x) { return _mm512_set1_ps(x); }
inline Part part_half(const uint16_t *p) { return from_half(p); }
inline Part part_int8(const int8_t *p) { return from_int8(p); }
inline Part part_load(const float *p) { return load(p); }
inline Bytes load_bytes(const uint8_t *p) { return _mm512_loadu_si512(p); }
inline void store_bytes(uint8_t *p, Bytes a) { _mm512_storeu_si512(p, a); }
inline Bytes bits_and(Bytes a, int byte) { return _mm512_and_si512(a, _mm512_set1_epi8((char)byte)); }
inline Bytes bits_or(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
// Bits that come over from the neighbouring byte must be masked away after.
inline Bytes shift_left(Bytes a, int count) { return _mm512_slli_epi16(a, (unsigned)count); }
inline Bytes shift_right(Bytes a, int count) { return _mm512_srli_epi16(a, (unsigned)count); }
inline Bytes look_up(Bytes nibbles, const int8_t *table) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), nibbles);
}

// Column `i` of a unit, its bytes signed.
inline Lanes column(const Bytes (&unit)[NUM_PARTS], int i) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(unit[0], (unsigned)(24 - 8 * i)), 24));
}

// Adds four products a lane and unit. LIMIT: how many units fit the narrow sums of instruction sets that have such.
template <bool SIGNED, int LIMIT>
struct Dot {
    struct Quants {
        __m512i v;
    };
    __m512i sum = _mm512_castps_si512(_mm512_set1_ps(ANCHOR));

    // What is kept of quants for many tokens, and what is made of it for each few.
    static inline Bytes ready(Bytes a) { return SIGNED ? _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80)) : a; }
    static inline Quants prepare(Bytes a) { return {a}; }
    inline void add(int, Quants quants, const int8_t *x) {
        int32_t four;
        std::memcpy(&four, x, 4);
        sum = _mm512_dpbusd_epi32(sum, quants.v, _mm512_set1_epi32(four));
    }
    inline Part total() const { return _mm512_castsi512_ps(sum); }
};

constexpr int TOKEN_TILE = 12;
constexpr int LANE_SUMS = 24;  // sums of sixteen lanes that the registers hold beside what is added to them
constexpr int TURNS = 4;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 2;
constexpr int INTEGER_TILE = 12;  // tokens whose rounded inputs stand side by side
constexpr int INTEGER_SUMS = 12;  // of tokens and groups, that the registers hold
constexpr int PACKED_TOKENS = 12;  // for more, groups are made ready, so many at once:
constexpr int READY_GROUPS = 2;
constexpr bool IS_ANCHORED = true;  // whether sums of products start at the anchor
constexpr int INTEGER_TURNS = 2;

}  // namespace
