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
inline Lanes times_power_of_two(Lanes x, Lanes n) { return _mm512_scalef_ps(x, n); }
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

inline Lanes keep_bits(Lanes x, uint32_t bits) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)bits)));
}
inline void store_some(float *p, Lanes x, int64_t count) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), x); }

// Lane t of the result is the largest size among the 32 numbers at blocks[t].
inline Lanes largest_sizes(const float *const *blocks, int64_t count) {
    auto own = [&](int64_t t) {
        const float *p = blocks[t < count ? t : 0];
        return max(absolute(load(p)), absolute(load(p + 16)));
    };
    if (count == 1) return _mm512_maskz_mov_ps(1, set1(fold_max(own(0))));
    // Four registers become one: each quarter of the result holds, for its quarter of the lanes, what the four had there.
    Lanes fours[4];
    for (int i = 0; i < 4; i++) {
        const Lanes a = own(4 * i), b = own(4 * i + 1), c = own(4 * i + 2), d = own(4 * i + 3);
        const Lanes ab = max(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        const Lanes cd = max(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        fours[i] = max(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    }
    const Lanes low = max(_mm512_shuffle_f32x4(fours[0], fours[1], 0x44), _mm512_shuffle_f32x4(fours[0], fours[1], 0xee));
    const Lanes high = max(_mm512_shuffle_f32x4(fours[2], fours[3], 0x44), _mm512_shuffle_f32x4(fours[2], fours[3], 0xee));
    const Lanes all = max(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
    return _mm512_maskz_mov_ps((__mmask16)((1u << count) - 1), all);
}

// The sums of 16 digits, a lane for each token.
struct DigitSums {
    Lanes first, second;
};

inline __m256i digits_of(const float *block, float factor) {
    auto half = [&](const float *p) { return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(mul(load(p), set1(factor)))); };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(half(block)), half(block + 16), 1);
}

// Rounds the 32 numbers of each token, times its factor, to bytes: word u goes to place u, the tokens side by side.
inline DigitSums put_digits(const float *const *blocks, const float *factors, int64_t count, uint8_t *to, int64_t stride) {
    if (stride == 4) {  // a tile of one token
        const __m256i digits = digits_of(blocks[0], factors[0]);
        _mm256_storeu_si256((__m256i *)to, digits);
        const __m256i units = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), digits);
        const __m256i pairs = _mm256_add_epi32(units, _mm256_shuffle_epi32(units, 0x4e));
        const __m256 sums = _mm256_cvtepi32_ps(_mm256_add_epi32(pairs, _mm256_shuffle_epi32(pairs, 0xb1)));
        return {_mm512_castps256_ps512(sums), _mm512_castps256_ps512(_mm256_permute2f128_ps(sums, sums, 1))};
    }
    const __m512i order = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i later = _mm512_add_epi32(order, _mm512_set1_epi32(4));
    auto two_from = [&](int64_t t) {
        const int64_t first = t < count ? t : 0, second = t + 1 < count ? t + 1 : 0;
        return _mm512_inserti64x4(_mm512_castsi256_si512(digits_of(blocks[first], factors[first])),
                                  digits_of(blocks[second], factors[second]), 1);
    };
    __m512i fours[2][4];  // the words of four tokens, a quarter for each word, the first or the last four words
    for (int i = 0; i < 4; i++) {
        if (4 * i >= count) {
            fours[0][i] = fours[1][i] = _mm512_setzero_si512();
            continue;
        }
        const __m512i two = two_from(4 * i), next = two_from(4 * i + 2);
        fours[0][i] = _mm512_permutex2var_epi32(two, order, next);
        fours[1][i] = _mm512_permutex2var_epi32(two, later, next);
    }
    const __mmask16 some = (__mmask16)((1u << count) - 1);
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sums[2];
    for (int half = 0; half < 2; half++) {
        const __m512i *f = fours[half];
        const __m512i a = _mm512_shuffle_i32x4(f[0], f[1], 0x44), b = _mm512_shuffle_i32x4(f[2], f[3], 0x44);
        const __m512i c = _mm512_shuffle_i32x4(f[0], f[1], 0xee), d = _mm512_shuffle_i32x4(f[2], f[3], 0xee);
        const __m512i words[4] = {_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd),
                                  _mm512_shuffle_i32x4(c, d, 0x88), _mm512_shuffle_i32x4(c, d, 0xdd)};
        sums[half] = _mm512_setzero_si512();
        for (int u = 0; u < 4; u++) {
            _mm512_mask_storeu_epi32(to + (4 * half + u) * stride, some, words[u]);
            sums[half] = _mm512_dpbusd_epi32(sums[half], ones, words[u]);
        }
    }
    return {_mm512_cvtepi32_ps(sums[0]), _mm512_cvtepi32_ps(sums[1])};
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
constexpr int QUERY_TILE = 6;  // of attention
constexpr int LANE_SUMS = 24;  // sums of sixteen lanes that the registers hold beside what is added to them
constexpr int TURNS = 4;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 2;
constexpr int INTEGER_TILE = 12;  // tokens whose rounded inputs stand side by side
constexpr int INTEGER_SUMS = 12;  // of tokens and groups, that the registers hold
constexpr int PACKED_TOKENS = 12;  // for more, groups are made ready, so many at once:
constexpr int READY_GROUPS = 3;  // a load a cycle is all there is: three groups by four tokens need the fewest
constexpr bool IS_ANCHORED = true;  // whether sums of products start at the anchor
constexpr int INTEGER_TURNS = 2;

}  // namespace
