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

constexpr int TOKEN_TILE = 12;
constexpr int TURNS = 4;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 2;

}  // namespace
