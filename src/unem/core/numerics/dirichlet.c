/* Maximum likelihood of the Dirichlet law, one row at a time, in float32: the same algorithm as newton.py beside it, where
 * it is explained, with everything that belongs to a row kept in the first-level cache.
 *
 * Loops are written so that any C99 compiler can vectorise them: no calls, no branches, reductions named; for that reason
 * with the exponential and the logarithm of elementary.h. */

#include <stdint.h>
#include <stdlib.h>

#include "elementary.h"

#define FLOOR 1e-4             /* of 1 - p: DISPERSION_FLOOR */
#define TOLERANCE 1e-4f        /* of the last Newton step: its error is then the square */
#define STILL 1e-6f            /* a row whose statistic moved less keeps its solution: UNMOVED */
#define EPSILON 1.1920929e-7
#define LANES 16               /* rows are padded to a multiple: what is left over would be handled number by number */

/* psi and psi' of x > 0: shifted by six in pairs, then the asymptotic series */
static inline void psi_pair(float x, float *psi, float *psi1) {
    float b = 2.0f * x + 5.0f, p = x * (x + 5.0f);
    float f0 = 1.0f / p, f1 = 1.0f / (p + 4.0f), f2 = 1.0f / (p + 6.0f), t = 1.0f / (x + 6.0f);
    float sum = f0 + f1 + f2, squares = f0 * f0 + f1 * f1 + f2 * f2, t2 = t * t;
    *psi = log_(x + 6.0f) - 0.5f * t - t2 * (8.3333333e-2f + t2 * (-8.3333333e-3f + t2 * 3.9682540e-3f)) - b * sum;
    *psi1 = t * (1.0f + 0.5f * t + t2 * (1.6666667e-1f + t2 * (-3.3333333e-2f + t2 * 2.3809524e-2f)))
            + squares * b * b - 2.0f * sum;
}

/* The same in double, for the sum of a row: what all its elements share must not carry float32's rounding */
static void psi_pair_of_sum(double x, double *psi, double *psi1) {
    *psi = *psi1 = 0.0;
    for (; x < 12.0 && x > 0.0; x += 1.0) {
        *psi -= 1.0 / x;
        *psi1 += 1.0 / (x * x);
    }
    double t = 1.0 / x, t2 = t * t;
    *psi += log(x) - 0.5 * t - t2 * (1.0 / 12 - t2 * (1.0 / 120 - t2 * (1.0 / 252 - t2 / 240)));
    *psi1 += t * (1.0 + 0.5 * t + t2 * (1.0 / 6 - t2 * (1.0 / 30 - t2 * (1.0 / 42 - t2 / 30))));
}

/* ln Gamma(x), x > 0 */
static inline float log_gamma(float x) {
    float y = x + 6.0f, p = x * (x + 5.0f), t = 1.0f / y;
    float series = t * (8.3333333e-2f + t * t * (-2.7777778e-3f + t * t * 7.9365079e-4f));
    return (y - 0.5f) * log_(y) - y + 0.91893853f + series - log_(p) - log_((p + 4.0f) * (p + 6.0f));
}

/* Newton in alpha where it grows, in 1/alpha where it shrinks */
static inline float positive_step(float alpha, float step) {
    float shrunk = alpha * alpha / (alpha - (step < 0.0f ? step : 0.0f)), grown = alpha + step;
    return step < 0.0f ? shrunk : grown;
}

/* A row's numbers, padded; `at` tells which of them exist */
typedef struct {
    int64_t dim, padded;
    float *y, *alpha, *w, *wg;
} Row;

#define at(i) ((i) < dim)

static int open_row(Row *row, int64_t dim) {
    row->dim = dim;
    row->padded = (dim + LANES - 1) / LANES * LANES;
    row->y = malloc(4 * (size_t)row->padded * sizeof(float));
    if (row->y == NULL) return 0;
    row->alpha = row->y + row->padded;
    row->w = row->alpha + row->padded;
    row->wg = row->w + row->padded;
    for (int64_t i = 0; i < 4 * row->padded; i++) row->y[i] = 1.0f; /* harmless wherever there is padding */
    return 1;
}

static float exp_sum(const Row *row) {
    const int64_t dim = row->dim, padded = row->padded;
    const float *restrict y = row->y;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < padded; i++) sum += at(i) ? exp_(y[i]) : 0.0f;
    return sum;
}

/* ln p - ln(1 - floor) where that is positive: how much the statistic must be lowered */
static float floor_excess(float p) {
    double excess = log((double)p) - log1p(-FLOOR);
    return excess > 0.0 ? (float)excess : 0.0f;
}

static int is_still(const float *restrict y, const float *restrict before, int64_t dim) {
    int moved = 0;
#pragma omp simd reduction(| : moved)
    for (int64_t i = 0; i < dim; i++) moved |= !(fabsf(y[i] - before[i]) <= STILL); /* not a number counts as moved */
    return !moved;
}

/* Minka's start and one step of the inverse digamma; returns the sum of alpha */
static float first_guess(Row *row, float shift) {
    const int64_t dim = row->dim, padded = row->padded;
    const float *restrict y = row->y;
    float *restrict alpha = row->alpha;
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < padded; i++) {
        float target = y[i] + shift, psi, psi1;
        float large = exp_(target) + 0.5f, small = -1.0f / ((target < -2.22f ? target : -2.22f) + 0.5772f);
        float a = target >= -2.22f ? large : small;
        psi_pair(a, &psi, &psi1);
        a = positive_step(a, (target - psi) / psi1);
        alpha[i] = at(i) ? a : 1.0f;
        total += at(i) ? a : 0.0f;
    }
    return total;
}

/* psi'(A) sum(wg) / (1 - psi'(A) sum(w)); the gap is positive for every alpha, and rounding must not make it zero */
static float rank_one(double psi1_total, float sum_w, float sum_wg) {
    double gap = 1.0 - psi1_total * sum_w;
    return (float)(psi1_total * sum_wg / (gap > EPSILON ? gap : EPSILON));
}

/* One Newton step with the diagonal-plus-rank-one Hessian; returns its largest relative size */
static float newton_step(Row *row, float excess, float *total) {
    const int64_t dim = row->dim, padded = row->padded;
    const float *restrict y = row->y;
    float *restrict alpha = row->alpha, *restrict w = row->w, *restrict wg = row->wg;
    double psi_total, psi1_total;
    float sum_w = 0.0f, sum_wg = 0.0f, size = 0.0f, after = 0.0f;
    psi_pair_of_sum(*total, &psi_total, &psi1_total);
    const float level = (float)(psi_total - excess), rest = (float)(psi_total - excess - level);
#pragma omp simd reduction(+ : sum_w, sum_wg)
    for (int64_t i = 0; i < padded; i++) {
        float psi, psi1;
        psi_pair(alpha[i], &psi, &psi1);
        w[i] = at(i) ? 1.0f / psi1 : 0.0f;
        wg[i] = w[i] * (y[i] - psi + level);
        sum_w += w[i];
        sum_wg += wg[i];
    }
    const float coupling = rest + rank_one(psi1_total, sum_w, sum_wg + rest * sum_w);
#pragma omp simd reduction(+ : after) reduction(max : size)
    for (int64_t i = 0; i < padded; i++) {
        float a = positive_step(alpha[i], wg[i] + coupling * w[i]); /* padding does not step: w is zero there */
        float relative = fabsf(a - alpha[i]) / a;
        size = relative > size ? relative : size;
        alpha[i] = a;
        after += at(i) ? a : 0.0f;
    }
    *total = after;
    return size;
}

static int solve_row(Row *row, int max_steps, float *log_normaliser) {
    const int64_t dim = row->dim, padded = row->padded;
    const float *restrict alpha = row->alpha;
    float p = exp_sum(row), excess = floor_excess(p), last = INFINITY;
    double spare = excess > 0.0f ? FLOOR : 1.0 - p, psi, psi1;
    psi_pair_of_sum((dim - 1 + spare) / (2.0 * spare), &psi, &psi1); /* an upper bound of the solution's sum */
    float total = first_guess(row, (float)psi - excess);
    for (int step = 0; step < max_steps; step++) {
        float size = newton_step(row, excess, &total);
        if (size <= TOLERANCE || (size <= 0.01f && size >= 0.5f * last)) break; /* settled, or down to rounding */
        last = size;
    }
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < padded; i++) sum += at(i) ? log_gamma(alpha[i]) : 0.0f;
    *log_normaliser = (float)(lgamma((double)total) - (double)sum);
    return excess > 0.0f;
}

/* The statistic of a row: y = (sums + product) / mass, or the product itself where there are no sums */
static void load_statistic(Row *row, const float *restrict product, const float *restrict sums, float mass) {
    float *restrict y = row->y;
    if (sums == NULL) {
        memcpy(y, product, (size_t)row->dim * sizeof(float));
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < row->dim; i++) y[i] = (sums[i] + product[i]) / mass;
}

/* Statistic, alpha and -ln B(alpha) of each row. `before_...` (may be null) are the previous layer's, taken over where a row
 * has not moved; where they are the output itself, such rows are left alone. Returns how many rows were capped, or -1 when
 * there is no memory. */
int64_t unem_dirichlet_solve(const float *product, const float *sums, const float *mass, const float *before_y,
                          const float *before_alpha, const float *before_norm, float *y, float *alpha, float *norm,
                          int64_t rows, int64_t dim, int max_steps, int threads) {
    const size_t bytes = (size_t)dim * sizeof(float);
    int64_t capped = 0;
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : capped) reduction(| : failed)
    {
        Row row;
        failed |= !open_row(&row, dim);
#pragma omp for schedule(dynamic, 16)
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at_row = r * dim;
            if (row.y == NULL) continue;
            load_statistic(&row, product + at_row, sums == NULL ? NULL : sums + at_row, sums == NULL ? 1.0f : mass[r]);
            if (before_y != NULL && is_still(row.y, before_y + at_row, dim)) {
                if (alpha == before_alpha) continue;
                memcpy(alpha + at_row, before_alpha + at_row, bytes);
                memcpy(y + at_row, before_y + at_row, bytes); /* what it was solved for, so that small moves add up */
                norm[r] = before_norm[r];
            } else {
                capped += solve_row(&row, max_steps, norm + r);
                memcpy(alpha + at_row, row.alpha, bytes);
                memcpy(y + at_row, row.y, bytes);
            }
        }
        free(row.y);
    }
    return failed ? -1 : capped;
}

/* w = 1/psi'(alpha) and w(J^-1 g) of the padded row, in place of g in wg */
static void gradient_row(Row *row, float grad_norm) {
    const int64_t dim = row->dim, padded = row->padded;
    const float *restrict y = row->y, *restrict alpha = row->alpha;
    float *restrict w = row->w, *restrict wg = row->wg;
    const float p = exp_sum(row), excess = floor_excess(p);
    float total = 0.0f, sum_w = 0.0f, sum_wg = 0.0f, sum = 0.0f;
    double psi_total, psi1_total;
#pragma omp simd reduction(+ : total, sum_w, sum_wg)
    for (int64_t i = 0; i < padded; i++) {
        float psi, psi1;
        psi_pair(alpha[i], &psi, &psi1);
        w[i] = at(i) ? 1.0f / psi1 : 0.0f;
        wg[i] = w[i] * (wg[i] - grad_norm * (y[i] - excess)); /* d(-ln B)/d alpha = -y at the solution */
        total += at(i) ? alpha[i] : 0.0f;
        sum_w += w[i];
        sum_wg += wg[i];
    }
    psi_pair_of_sum(total, &psi_total, &psi1_total);
    const float coupling = rank_one(psi1_total, sum_w, sum_wg);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < padded; i++) {
        wg[i] += coupling * w[i];
        sum += wg[i];
    }
    if (excess > 0.0f) { /* y was lowered by `excess`, whose gradient is softmax(y) */
        const float per_share = sum / p;
#pragma omp simd
        for (int64_t i = 0; i < padded; i++) wg[i] -= per_share * exp_(y[i]);
    }
}

/* Gradient with respect to the statistic, by the implicit function theorem. Returns 0, or -1 when there is no memory. */
int64_t unem_dirichlet_gradient(const float *mean_log, const float *alpha, const float *grad_alpha, const float *grad_norm,
                             float *out, int64_t rows, int64_t dim, int threads) {
    const size_t bytes = (size_t)dim * sizeof(float);
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Row row;
        failed |= !open_row(&row, dim);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            if (row.y == NULL) continue;
            memcpy(row.y, mean_log + r * dim, bytes);
            memcpy(row.alpha, alpha + r * dim, bytes);
            memcpy(row.wg, grad_alpha + r * dim, bytes);
            gradient_row(&row, grad_norm[r]);
            memcpy(out + r * dim, row.wg, bytes);
        }
        free(row.y);
    }
    return failed ? -1 : 0;
}
