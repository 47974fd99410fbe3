/* Attention of decoding: one query a row and head, over a prompt that its group shares and over the row's own tokens.

   In pieces of KEYS keys with sums that are scaled as larger scores come (arXiv 2205.14135, section 3.1). */

#include "common.h"

/* Keys that are attended to in one piece. */
#define KEYS 64
/* Largest size of a head. */
#define MOST_DIM 256

INLINE float sum_of(wide numbers) {
    float parts[WIDE], sum = 0.0f;
    store(parts, numbers);
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < WIDE; i++) sum += parts[i];
    return sum;
}

/* What `queries` (at most 4) of one head have seen so far: largest score, sum of weights, weighted values. */
typedef struct {
    float scores[4][KEYS], most[4], total[4];
    float query[4 * MOST_DIM], sums[4 * MOST_DIM];
} Seen;

/* scores of up to KEYS keys that lie one behind the other, (count, dim). */
INLINE void score_rows(Seen *seen, i64 queries, i64 dim, const float *keys, i64 count) {
    for (i64 key = 0; key < count; key++) {
        for (i64 q = 0; q < queries; q++) {
            wide products = {0};
            for (i64 i = 0; i < dim; i += WIDE)
                products += load(seen->query + q * dim + i) * load(keys + key * dim + i);
            seen->scores[q][key] = sum_of(products);
        }
    }
}

/* scores of up to KEYS keys that lie next to each other, (dim, room), room and place being multiples of WIDE. */
INLINE void score_columns(Seen *seen, i64 queries, i64 dim, const float *keys, i64 room, i64 count) {
    for (i64 key = 0; key < count; key += 2 * WIDE) {
        wide first[4] = {{0}}, second[4] = {{0}};
        i64 next = key + WIDE < count ? key + WIDE : key;
        for (i64 i = 0; i < dim; i++) {
            wide one = load(keys + i * room + key), other = load(keys + i * room + next);
            for (i64 q = 0; q < queries; q++) {
                first[q] += seen->query[q * dim + i] * one;
                second[q] += seen->query[q * dim + i] * other;
            }
        }
        for (i64 q = 0; q < queries; q++) {
            store(seen->scores[q] + key, first[q]);
            store(seen->scores[q] + next, second[q]);
        }
    }
}

/* Takes `count` scored keys with their values (count, dim) into the sums. */
INLINE void take_values(Seen *seen, i64 queries, i64 dim, const float *values, const float *mask, i64 count) {
    i64 padded = (count + WIDE - 1) / WIDE * WIDE;
    for (i64 q = 0; q < queries; q++) {
        float *scores = seen->scores[q], highest = seen->most[q], sum = 0.0f;
        if (mask)
            for (i64 key = 0; key < count; key++) scores[key] += mask[key];
        for (i64 key = count; key < padded; key++) scores[key] = -INFINITY;
#pragma omp simd reduction(max : highest)
        for (i64 key = 0; key < padded; key++) highest = scores[key] > highest ? scores[key] : highest;
        float of = highest == -INFINITY ? 0.0f : highest, before = exponential(seen->most[q] - of);
#pragma omp simd reduction(+ : sum)
        for (i64 key = 0; key < padded; key++) {
            scores[key] = exponential(scores[key] - of);
            sum += scores[key];
        }
        seen->total[q] = seen->total[q] * before + sum;
        seen->most[q] = highest;
        for (i64 i = 0; i < dim; i++) seen->sums[q * dim + i] *= before;
    }
    for (i64 start = 0; start < dim; start += 4 * WIDE) {
        i64 parts = dim - start < 4 * WIDE ? (dim - start) / WIDE : 4;
        wide sums[4][4];
        for (i64 q = 0; q < queries; q++)
            for (i64 i = 0; i < parts; i++) sums[q][i] = load(seen->sums + q * dim + start + i * WIDE);
        for (i64 key = 0; key < count; key++)
            for (i64 i = 0; i < parts; i++) {
                wide value = load(values + key * dim + start + i * WIDE);
                for (i64 q = 0; q < queries; q++) sums[q][i] += seen->scores[q][key] * value;
            }
        for (i64 q = 0; q < queries; q++)
            for (i64 i = 0; i < parts; i++) store(seen->sums + q * dim + start + i * WIDE, sums[q][i]);
    }
}

INLINE void attend_some(const float *query, i64 queries, i64 dim, float scaling, const float *keys, i64 key_room,
                        const float *values, const float *mask, i64 length, const float *own_keys,
                        const float *own_values, i64 own, float *out, float *log_sums) {
    Seen seen;
    for (i64 q = 0; q < queries; q++) seen.most[q] = -INFINITY, seen.total[q] = 0.0f;
    for (i64 i = 0; i < queries * dim; i++) seen.query[i] = query[i] * scaling, seen.sums[i] = 0.0f;
    for (i64 key = 0; key < length; key += KEYS) {
        i64 count = length - key < KEYS ? length - key : KEYS;
        score_columns(&seen, queries, dim, keys + key, key_room, count);
        take_values(&seen, queries, dim, values + key * dim, mask ? mask + key : 0, count);
    }
    for (i64 key = 0; key < own; key += KEYS) {
        i64 count = own - key < KEYS ? own - key : KEYS;
        score_rows(&seen, queries, dim, own_keys + key * dim, count);
        take_values(&seen, queries, dim, own_values + key * dim, 0, count);
    }
    for (i64 q = 0; q < queries; q++) {
        for (i64 i = 0; i < dim; i++) out[q * dim + i] = seen.sums[q * dim + i] / seen.total[q];
        if (log_sums) log_sums[q] = seen.most[q] + logf(seen.total[q]);
    }
}

/* One query a row and head over the tokens of its prompt and over its own, see GroupLayer.attend: query (B, K, R, dim),
   keys (P, K, dim, key_room), key_room being L rounded up to a multiple of 16, values (P, K, L, dim), mask (P * K, L)
   or missing, prompt_of_row (B), own keys and values (B, K, room, dim) of which `own` are filled, out (B, K, R, dim),
   log_sums (B, K, R) or missing. dim: a multiple of 16, at most MOST_DIM. */
void mmrl_attend_group(const float *query, const float *keys, const float *values, const float *mask,
                       const i64 *prompt_of_row, const float *own_keys, const float *own_values, i64 rows, i64 heads,
                       i64 queries, i64 dim, i64 length, i64 key_room, i64 room, i64 own, float scaling, float *out,
                       float *log_sums, int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (i64 part = 0; part < rows * heads; part++) {
        i64 row = part / heads, shared = prompt_of_row[row] * heads + part % heads;
        const float *of_keys = keys + shared * dim * key_room, *of_values = values + shared * length * dim;
        const float *own_k = own_keys + part * room * dim, *own_v = own_values + part * room * dim;
        const float *seen = mask ? mask + shared * length : 0;
        for (i64 q = 0; q < queries; q += 4) {
            const float *asked = query + (part * queries + q) * dim;
            float *to = out + (part * queries + q) * dim, *logs = log_sums ? log_sums + part * queries + q : 0;
#define ATTEND(some, size) \
    attend_some(asked, some, size, scaling, of_keys, key_room, of_values, seen, length, own_k, own_v, own, to, logs)
#define ATTEND_OF(some)                 \
    do {                                \
        if (dim == 64)                  \
            ATTEND(some, 64);           \
        else if (dim == 128)            \
            ATTEND(some, 128);          \
        else                            \
            ATTEND(some, dim);          \
    } while (0)
            switch (queries - q) {
                case 1: ATTEND_OF(1); break;
                case 2: ATTEND_OF(2); break;
                case 3: ATTEND_OF(3); break;
                default: ATTEND_OF(4);
            }
        }
    }
}
