// Sixteen lanes in two AVX2 registers.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

struct Lanes {
    __m256 a, b;
};

inline Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float *p, Lanes x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
inline Lanes fma(Lanes x, Lanes y, Lanes z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline Lanes mul(Lanes x, Lanes y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Lanes div(Lanes x, Lanes y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Lanes add(Lanes x, Lanes y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Lanes sub(Lanes x, Lanes y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Lanes max(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Lanes min(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline Lanes nearest(Lanes x) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, mode), _mm256_round_ps(x.b, mode)};
}
inline __m256 power_of_two(__m256 n) {
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline Lanes power_of_two(Lanes n) { return {power_of_two(n.a), power_of_two(n.b)}; }
inline Lanes times_power_of_two(Lanes x, Lanes n) { return mul(x, power_of_two(n)); }
inline Lanes from_half(const uint16_t *p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
inline __m256 bfloat8(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
inline Lanes from_bfloat(const uint16_t *p) { return {bfloat8(p), bfloat8(p + 8)}; }
inline __m256 int8_part(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
inline Lanes from_int8(const int8_t *p) { return {int8_part(p), int8_part(p + 8)}; }
inline __m256i words(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
inline Lanes absolute(Lanes x) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
// 0 where x lies below the limit, else the value; what is no number is not below.
inline Lanes zero_below(Lanes value, Lanes x, float limit) {
    const __m256 bound = _mm256_set1_ps(limit);
    return {_mm256_and_ps(value.a, _mm256_cmp_ps(x.a, bound, _CMP_NLT_UQ)),
            _mm256_and_ps(value.b, _mm256_cmp_ps(x.b, bound, _CMP_NLT_UQ))};
}
// Lanes eight, four, two and one apart are put together.
inline float fold_add(Lanes x) {
    __m256 eight = _mm256_add_ps(x.a, x.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float fold_max(Lanes x) {
    __m256 eight = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// Halves, rounded to the nearest, to the even one between two.
inline void to_half(uint16_t *p, Lanes x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
// Whole numbers of at most 127 in size.
inline void to_int8(int8_t *p, Lanes x) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}
inline Lanes keep_bits(Lanes x, uint32_t bits) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32((int)bits));
    return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
// 1 where x > y, else 0, lane by lane from the lowest bit on.
inline uint32_t where_greater(Lanes x, Lanes y) {
    const int a = _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ));
    const int b = _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ));
    return (uint32_t)(a | b << 8);
}
inline Lanes zero_where_greater(Lanes values, Lanes x, Lanes y) {
    return {_mm256_andnot_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), values.a),
            _mm256_andnot_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ), values.b)};
}

// Products of small whole numbers: the lanes that one register of sums holds.
typedef __m256 Part;
typedef __m256i Bytes;
constexpr int NUM_PARTS = 2;
constexpr int SIGNED_OFFSET = 0;

inline Part part_set1(float x) { return _mm256_set1_ps(x); }
inline Part fma(Part x, Part y, Part z) { return _mm256_fmadd_ps(x, y, z); }
inline Part mul(Part x, Part y) { return _mm256_mul_ps(x, y); }
inline Part sub(Part x, Part y) { return _mm256_sub_ps(x, y); }
inline void store(float *p, Part x) { _mm256_storeu_ps(p, x); }
inline Part part_half(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
inline Part part_int8(const int8_t *p) { return int8_part(p); }
inline Part part_load(const float *p) { return _mm256_loadu_ps(p); }
inline Bytes load_bytes(const uint8_t *p) { return words(p); }
inline void store_bytes(uint8_t *p, Bytes a) { _mm256_storeu_si256((__m256i *)p, a); }
inline Bytes bits_and(Bytes a, int byte) { return _mm256_and_si256(a, _mm256_set1_epi8((char)byte)); }
inline Bytes bits_or(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
// Bits that come over from the neighbouring byte must be masked away after.
inline Bytes shift_left(Bytes a, int count) { return _mm256_slli_epi16(a, count); }
inline Bytes shift_right(Bytes a, int count) { return _mm256_srli_epi16(a, count); }
inline Bytes look_up(Bytes nibbles, const int8_t *table) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table)), nibbles);
}

// Column `i` of a unit, its bytes signed.
inline Part column(Bytes half, int i) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(half, 24 - 8 * i), 24));
}
inline Lanes column(const Bytes (&unit)[NUM_PARTS], int i) { return {column(unit[0], i), column(unit[1], i)}; }

// Adds four products a lane and unit. The sums of pairs have 16 bits: LIMIT units fit them before they must be widened.
template <bool SIGNED, int LIMIT>
struct Dot {
    struct Quants {
        __m256i size, sign;  // the sizes are unsigned; signs go to the other factor
    };
    __m256i narrow = _mm256_setzero_si256(), sum = _mm256_setzero_si256();

    // What is kept of quants for many tokens, and what is made of it for each few.
    static inline Bytes ready(Bytes a) { return a; }
    static inline Quants prepare(Bytes a) {
        if constexpr (SIGNED) return {_mm256_abs_epi8(a), a};
        return {a, a};
    }
    inline void add(int unit, Quants quants, const int8_t *x) {
        int32_t four;
        std::memcpy(&four, x, 4);
        __m256i factor = _mm256_set1_epi32(four);
        if constexpr (SIGNED) factor = _mm256_sign_epi8(factor, quants.sign);
        const __m256i pairs = _mm256_maddubs_epi16(quants.size, factor);
        narrow = unit % LIMIT == 0 ? pairs : _mm256_add_epi16(narrow, pairs);
        if (unit % LIMIT == LIMIT - 1) sum = _mm256_add_epi32(sum, _mm256_madd_epi16(narrow, _mm256_set1_epi16(1)));
    }
    inline Part total() const {
        return _mm256_cvtepi32_ps(sum);
    }
};

constexpr int TOKEN_TILE = 6;
constexpr int QUERY_TILE = 6;  // of attention
constexpr int LANE_SUMS = 6;  // sums of sixteen lanes that the registers hold beside what is added to them
constexpr int TURNS = 2;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 1;
constexpr int INTEGER_TILE = 12;  // tokens whose rounded inputs stand side by side
constexpr int INTEGER_SUMS = 8;  // of tokens and groups, that the registers hold
constexpr int PACKED_TOKENS = 4;  // for more, groups are made ready, so many at once:
constexpr int READY_GROUPS = 2;
constexpr bool IS_ANCHORED = false;  // whether sums of products start at the anchor
constexpr int INTEGER_TURNS = 1;

}  // namespace

#include "simd_plain.h"
