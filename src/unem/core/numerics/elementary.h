/* Exponential and logarithm that any C99 compiler can vectorise: no calls, no branches (polynomials of the Cephes
 * library's kind, exact to about one unit in the last place on the ranges used here). */

#ifndef UNEM_ELEMENTARY_H
#define UNEM_ELEMENTARY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float from_bits(int32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline int32_t to_bits(float x) { int32_t bits; memcpy(&bits, &x, 4); return bits; }

/* ln x for normal x > 0 */
static inline float log_(float x) {
    int32_t bits = to_bits(x);
    int32_t exponent = (bits - 0x3f3504f3) >> 23; /* mantissa in [sqrt(1/2), sqrt(2)) */
    float f = from_bits(bits - exponent * 0x800000) - 1.0f, e = (float)exponent, z = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    return (f * z * p - 2.12194440e-4f * e - 0.5f * z) + f + 0.693359375f * e;
}

/* e^x, flushed to the smallest normal numbers below */
static inline float exp_(float x) {
    x = x > -87.0f ? (x < 88.0f ? x : 88.0f) : -87.0f; /* not a number becomes small: never an undefined conversion */
    float n = rintf(x * 1.44269504f);
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return from_bits(((int32_t)n + 127) << 23) * (p * r * r + r + 1.0f);
}

#endif
