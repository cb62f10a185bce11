// Sixteen lanes in two AVX2 registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

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
inline Lanes from_half(const uint16_t *p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
inline __m256 bfloat8(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
inline Lanes from_bfloat(const uint16_t *p) { return {bfloat8(p), bfloat8(p + 8)}; }
inline Lanes from_int8(const int8_t *p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8))))};
}
inline void from_nibbles(const uint8_t *p, Lanes &low, Lanes &high) {
    const __m256i mask = _mm256_set1_epi32(15);
    __m256i first = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i second = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)));
    low = {_mm256_cvtepi32_ps(_mm256_and_si256(first, mask)), _mm256_cvtepi32_ps(_mm256_and_si256(second, mask))};
    high = {_mm256_cvtepi32_ps(_mm256_srli_epi32(first, 4)), _mm256_cvtepi32_ps(_mm256_srli_epi32(second, 4))};
}
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

constexpr int TOKEN_TILE = 6;
constexpr int LANE_SUMS = 6;  // sums of sixteen lanes that the registers hold beside what is added to them
constexpr int TURNS = 2;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 1;

}  // namespace
