/* Passes over memory that torch makes in several steps, each in one.

   Work is shared among `threads` by rows, which do not depend on each other; only sums over rows depend on how many
   threads there are, not on which was first. */

#include "common.h"

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#endif

/* Numbers that are gone through in one piece. */
#define PIECE 1024

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

/* out = weight * x / sqrt(mean(x^2) + eps) for x (rows, size); scale (rows): what x was multiplied by. */
void mmrl_rms_norm(const float *x, const float *weight, float eps, i64 rows, i64 size, float *out, float *scale,
                   int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (i64 row = 0; row < rows; row++) {
        const float *from = x + row * size;
        float *to = out + row * size, squares = 0.0f;
#pragma omp simd reduction(+ : squares)
        for (i64 i = 0; i < size; i++) squares += from[i] * from[i];
        float by = 1.0f / sqrtf(squares / (float)size + eps);
        for (i64 i = 0; i < size; i++) to[i] = from[i] * by * weight[i];
        scale[row] = by;
    }
}

/* grad_x = s*w*g - x*s^3/size*sum(w*g*x), with s the scale. grad_weight (threads, size): of each thread's rows, sum of
   g*x*s, added to what is there. Both may be missing. */
void mmrl_rms_norm_backward(const float *grad, const float *x, const float *weight, const float *scale, i64 rows,
                            i64 size, float *grad_x, float *grad_weight, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (i64 row = 0; row < rows; row++) {
        const float *g = grad + row * size, *from = x + row * size;
        float by = scale[row], along = 0.0f;
        if (grad_x) {
            float *to = grad_x + row * size;
#pragma omp simd reduction(+ : along)
            for (i64 i = 0; i < size; i++) along += g[i] * weight[i] * from[i];
            along *= by * by * by / (float)size;
            for (i64 i = 0; i < size; i++) to[i] = g[i] * weight[i] * by - from[i] * along;
        }
        if (grad_weight) {
            float *total = grad_weight + omp_get_thread_num() * size;
            for (i64 i = 0; i < size; i++) total[i] += g[i] * from[i] * by;
        }
    }
}

/* out = silu(gate) * up. gate, up: (outer, inner) with strides, out contiguous. */
void mmrl_silu_mul(const float *gate, i64 gate_stride, const float *up, i64 up_stride, i64 outer, i64 inner, float *out,
                   int threads) {
    i64 pieces = (inner + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (i64 piece = 0; piece < outer * pieces; piece++) {
        i64 row = piece / pieces, start = piece % pieces * PIECE;
        i64 count = inner - start < PIECE ? inner - start : PIECE;
        const float *g = gate + row * gate_stride + start, *u = up + row * up_stride + start;
        float *to = out + row * inner + start;
        for (i64 i = 0; i < count; i++) to[i] = g[i] * sigmoid(g[i]) * u[i];
    }
}

/* Of h = silu(gate) * up: h again where it is asked for, and the gradients of gate (written over that of h) and up. */
void mmrl_silu_mul_backward(const float *gate, i64 gate_stride, const float *up, i64 up_stride, i64 outer, i64 inner,
                            float *grad, float *grad_up, float *h, int threads) {
    i64 pieces = (inner + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (i64 piece = 0; piece < outer * pieces; piece++) {
        i64 row = piece / pieces, start = piece % pieces * PIECE;
        i64 count = inner - start < PIECE ? inner - start : PIECE, at = row * inner + start;
        const float *restrict g = gate + row * gate_stride + start, *restrict u = up + row * up_stride + start;
        float *restrict of_h = grad + at, *restrict of_up = grad_up + at, *restrict again = h ? h + at : 0;
        for (i64 i = 0; i < count; i++) {
            float s = sigmoid(g[i]), active = g[i] * s, d = of_h[i];
            if (again) again[i] = active * u[i];
            of_up[i] = d * active;
            of_h[i] = d * u[i] * s * (1.0f + g[i] * (1.0f - s));
        }
    }
}

/* out = x * cos + direction * rotate_half(x) * sin, for x (outer, inner, heads, dim) of which outer, inner and heads have
   strides; cos, sin (outer, inner, dim), `turn_stride` between those of outer, 0 where all have the same. out as x with
   its own strides, or x itself. */
void mmrl_rotate(const float *x, i64 x_outer, i64 x_inner, i64 x_head, const float *cosine, const float *sine,
                 i64 turn_stride, i64 outer, i64 inner, i64 heads, i64 dim, float direction, float *out, i64 out_outer,
                 i64 out_inner, i64 out_head, int threads) {
    i64 half = dim / 2;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (i64 token = 0; token < outer * inner; token++) {
        i64 row = token / inner, column = token % inner;
        const float *c = cosine + row * turn_stride + column * dim, *s = sine + row * turn_stride + column * dim;
        for (i64 head = 0; head < heads; head++) {
            const float *from = x + row * x_outer + column * x_inner + head * x_head;
            float *to = out + row * out_outer + column * out_inner + head * out_head;
#pragma omp simd
            for (i64 i = 0; i < half; i++) {
                float a = from[i], b = from[i + half];
                to[i] = a * c[i] - direction * b * s[i];
                to[i + half] = b * c[i + half] + direction * a * s[i + half];
            }
        }
    }
}
