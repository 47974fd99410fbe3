/* Backward pass of attention whose output and sums are known (arXiv 2205.14135, appendix B.4), with grouped queries.

   Block by block of keys, so that scores of one block at a time exist. Keys that no query of a piece sees are left out. */

#include "common.h"

/* Keys of a block, queries of a piece; fewer where each query sees one key more than the one before it, so that little is
   computed that nobody sees. */
#define KEYS 64
#define QUERIES 96
#define CAUSAL_QUERIES 24
#define MOST_DIM 256

/* Rows of a tile of a product, whose sums stay in registers. */
#ifdef __AVX512F__
#define TILE 6
#else
#define TILE 2
#endif

/* c (rows, 16 * wides) += a (rows, depth) b (depth, 16 * wides). Of a, `a_row` and `a_step` are strides. */
INLINE void add_tile(const float *a, i64 a_row, i64 a_step, const float *b, i64 b_step, i64 depth, float *c, i64 c_row,
                     int rows, int wides) {
    wide sums[TILE][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < wides; j++) sums[i][j] = load(c + i * c_row + j * WIDE);
    for (i64 k = 0; k < depth; k++)
        for (int j = 0; j < wides; j++) {
            wide of = load(b + k * b_step + j * WIDE);
            for (int i = 0; i < rows; i++) sums[i][j] += a[i * a_row + k * a_step] * of;
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < wides; j++) store(c + i * c_row + j * WIDE, sums[i][j]);
}

INLINE void add_columns(const float *a, i64 a_row, i64 a_step, const float *b, i64 b_step, i64 depth, float *c,
                        i64 c_row, i64 rows, int wides) {
    i64 row = 0;
    for (; row + TILE <= rows; row += TILE)
        add_tile(a + row * a_row, a_row, a_step, b, b_step, depth, c + row * c_row, c_row, TILE, wides);
    for (; row < rows; row++)
        add_tile(a + row * a_row, a_row, a_step, b, b_step, depth, c + row * c_row, c_row, 1, wides);
}

/* c (rows, columns) += a (rows, depth) b (depth, columns), columns being a multiple of 16. */
static __attribute__((noinline)) void add_product(const float *a, i64 a_row, i64 a_step, const float *b, i64 b_step,
                                                  i64 depth, float *c, i64 c_row, i64 rows, i64 columns) {
    for (i64 start = 0; start < columns; start += 4 * WIDE) {
        const float *of = b + start;
        float *to = c + start;
        switch (columns - start) {
            case WIDE: add_columns(a, a_row, a_step, of, b_step, depth, to, c_row, rows, 1); break;
            case 2 * WIDE: add_columns(a, a_row, a_step, of, b_step, depth, to, c_row, rows, 2); break;
            case 3 * WIDE: add_columns(a, a_row, a_step, of, b_step, depth, to, c_row, rows, 3); break;
            default: add_columns(a, a_row, a_step, of, b_step, depth, to, c_row, rows, 4);
        }
    }
}

/* (count, dim) with `step` from key to key, to (dim, KEYS), zeros behind. */
INLINE void turn(const float *from, i64 step, i64 count, i64 dim, float *to) {
    if (count < KEYS) memset(to, 0, dim * KEYS * sizeof *to);
    for (i64 key = 0; key < count; key++)
        for (i64 i = 0; i < dim; i++) to[i * KEYS + key] = from[key * step + i];
}

/* Numbers from row to row, token to token and head to head; those of one head lie one behind the other. */
typedef struct {
    i64 row, token, head;
} Strides;

typedef struct {
    Strides query, key, value, output, log_sums, grad, grad_query, grad_key, grad_value;
} Layout;

/* query, grad_query, output and grad, its gradient: (rows, T, heads, dim). keys, values and their gradients:
   (rows, S, K, dim). log_sums (rows, T, heads): +inf where a query is padding. mask (T, S) with `mask_row` from row to
   row, added to the scores, or missing. Query t sees keys up to t + ahead. dim: a multiple of 16, at most MOST_DIM. */
void mmrl_attention_backward(const float *grad, const float *query, const float *keys, const float *values,
                             const float *output, const float *log_sums, const float *mask, i64 mask_row,
                             const Layout *layout, i64 rows, i64 length, i64 heads, i64 num_keys, i64 key_heads,
                             i64 dim, i64 ahead, float scaling, float *grad_query, float *grad_keys,
                             float *grad_values, int threads) {
    i64 queries = heads / key_heads, piece = ahead < num_keys ? CAUSAL_QUERIES : QUERIES;
    const Strides *of_q = &layout->query, *of_g = &layout->grad, *of_o = &layout->output, *of_s = &layout->log_sums;
    i64 q_step = of_q->token, g_step = of_g->token, k_step = layout->key.token, v_step = layout->value.token;
    i64 dq_step = layout->grad_query.token, dk_step = layout->grad_key.token, dv_step = layout->grad_value.token;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (i64 part = 0; part < rows * key_heads; part++) {
        i64 row = part / key_heads, key_head = part % key_heads;
        float turned_keys[MOST_DIM * KEYS], turned_values[MOST_DIM * KEYS];
        float weights[QUERIES * KEYS], changes[QUERIES * KEYS];
        const float *k = keys + row * layout->key.row + key_head * layout->key.head;
        const float *v = values + row * layout->value.row + key_head * layout->value.head;
        float *dk = grad_keys + row * layout->grad_key.row + key_head * layout->grad_key.head;
        float *dv = grad_values + row * layout->grad_value.row + key_head * layout->grad_value.head;
        for (i64 key = 0; key < num_keys; key++) {
            memset(dk + key * dk_step, 0, dim * sizeof *dk);
            memset(dv + key * dv_step, 0, dim * sizeof *dv);
        }
        for (i64 first = 0; first < num_keys; first += KEYS) {
            i64 count = num_keys - first < KEYS ? num_keys - first : KEYS;
            turn(k + first * k_step, k_step, count, dim, turned_keys);
            turn(v + first * v_step, v_step, count, dim, turned_values);
            for (i64 head = key_head * queries; head < (key_head + 1) * queries; head++) {
                const float *q = query + row * of_q->row + head * of_q->head;
                const float *g = grad + row * of_g->row + head * of_g->head;
                const float *o = output + row * of_o->row + head * of_o->head;
                const float *sums = log_sums + row * of_s->row + head * of_s->head;
                float *dq = grad_query + row * layout->grad_query.row + head * layout->grad_query.head;
                if (!first)
                    for (i64 t = 0; t < length; t++) memset(dq + t * dq_step, 0, dim * sizeof *dq);
                for (i64 start = first > ahead ? first - ahead : 0; start < length; start += piece) {
                    i64 some = length - start < piece ? length - start : piece;
                    i64 last = start + some + ahead - first, seen = last < count ? last : count;
                    i64 columns = (seen + WIDE - 1) / WIDE * WIDE;
                    const float *some_q = q + start * q_step, *some_g = g + start * g_step;
                    for (i64 i = 0; i < some; i++) {
                        memset(weights + i * KEYS, 0, columns * sizeof *weights);
                        memset(changes + i * KEYS, 0, columns * sizeof *changes);
                    }
                    add_product(some_q, q_step, 1, turned_keys, KEYS, dim, weights, KEYS, some, columns);
                    add_product(some_g, g_step, 1, turned_values, KEYS, dim, changes, KEYS, some, columns);
                    for (i64 i = 0; i < some; i++) {
                        i64 t = start + i, visible = t + ahead - first + 1 < seen ? t + ahead - first + 1 : seen;
                        const float *hidden = mask ? mask + row * mask_row + t * num_keys + first : 0;
                        float *w = weights + i * KEYS, *d = changes + i * KEYS, along = 0.0f;
                        float sum = sums[t * of_s->token];
#pragma omp simd reduction(+ : along)
                        for (i64 j = 0; j < dim; j++) along += g[t * g_step + j] * o[t * of_o->token + j];
                        for (i64 j = 0; j < columns; j++) w[j] = w[j] * scaling - sum;
                        if (hidden)
                            for (i64 j = 0; j < seen; j++) w[j] += hidden[j];
                        for (i64 j = visible; j < columns; j++) w[j] = -INFINITY;
                        for (i64 j = 0; j < columns; j++) {
                            w[j] = exponential(w[j]);
                            d[j] = w[j] * (d[j] - along) * scaling;
                        }
                    }
                    add_product(weights, 1, KEYS, some_g, g_step, some, dv + first * dv_step, dv_step, seen, dim);
                    add_product(changes, 1, KEYS, some_q, q_step, some, dk + first * dk_step, dk_step, seen, dim);
                    add_product(changes, KEYS, 1, k + first * k_step, k_step, seen, dq + start * dq_step, dq_step, some,
                                dim);
                }
            }
        }
    }
}
