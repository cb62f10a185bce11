// Sixteen lanes in one AVX-512 register.
#pragma once

#include <immintrin.h>

#include <cstdint>

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
inline void from_nibbles(const uint8_t *p, Lanes &low, Lanes &high) {
    __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    low = _mm512_cvtepi32_ps(_mm512_and_si512(wide, _mm512_set1_epi32(15)));
    high = _mm512_cvtepi32_ps(_mm512_srli_epi32(wide, 4));
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

constexpr int TOKEN_TILE = 12;
constexpr int LANE_SUMS = 24;  // sums of sixteen lanes that the registers hold beside what is added to them
constexpr int TURNS = 4;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 2;

}  // namespace
