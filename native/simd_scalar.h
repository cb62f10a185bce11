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
inline void from_nibbles(const uint8_t *p, Lanes &low, Lanes &high) {
    for (int i = 0; i < 16; i++) {
        low.v[i] = (float)(p[i] & 15);
        high.v[i] = (float)(p[i] >> 4);
    }
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

constexpr int TOKEN_TILE = 4;
constexpr int LANE_SUMS = 4;  // sums of sixteen lanes that the registers hold beside what is added to them
constexpr int TURNS = 1;  // groups that take turns when there is one token
constexpr int GROUP_TILE = 1;

}  // namespace
