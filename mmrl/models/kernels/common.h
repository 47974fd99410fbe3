/* Shared by the kernels, which `__init__.py` calls and `compiling.py` compiles. All tensors are float32. */

#ifndef MMRL_COMMON_H
#define MMRL_COMMON_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef int64_t i64;

#define INLINE static inline __attribute__((always_inline))

/* e^x, within two units in the last place; 0 below -87, infinity above 88, NaN of NaN. Written out since the compiler
   turns this into vector code, and a call not. Coefficients: Taylor's, on |r| <= ln(2)/2. */
INLINE float exponential(float x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float bounded = x > 88.0f ? 88.0f : x < -88.0f ? -88.0f : x;
    float whole = (bounded * 1.44269504f + shift) - shift;
    float r = bounded - whole * 0.693145752f;
    r = r - whole * 1.42860677e-6f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    float result = p * power;
    return x < -87.0f ? 0.0f : x > 88.0f ? INFINITY : result;
}

/* Sixteen numbers; compilers without registers that wide take several. */
typedef float wide __attribute__((vector_size(64)));
#define WIDE 16

INLINE wide load(const float *from) {
    wide numbers;
    memcpy(&numbers, from, sizeof numbers);
    return numbers;
}

INLINE void store(float *to, wide numbers) { memcpy(to, &numbers, sizeof numbers); }

#endif
