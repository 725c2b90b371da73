/* All layers on Gram matrices, and their gradient, one task at a time, in float32: the formulas of gram_layers.py beside
 * it, with everything that belongs to a task kept in the caches.
 *
 * Rows of classes are padded to a multiple of LANES, so that loops have no rest; what is padded is never assigned
 * anything. Matrix products use the vector extensions of GCC and Clang. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "elementary.h"

#define LANES 8
#define SMALLEST exp_(-87.0f) /* what exp_ gives for everything below */
#define WIDTH 8
#ifdef __AVX512F__
#define TALL 8 /* rows of a product that are computed together: as many as the registers hold */
#else
#define TALL 4
#endif

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

/* -- matrix products ------------------------------------------------------------------------------------------------ */

/* C (+)= A B for `tall` rows and `wide` vectors of columns */
INLINE void block(const int tall, const int wide, int64_t inner, const float *a, int64_t lda, const float *b, int64_t ldb,
                  float *c, int64_t ldc, int add) {
    vec sum[TALL][3];
    for (int i = 0; i < tall; i++)
        for (int j = 0; j < wide; j++) sum[i][j] = add ? *(const vec *)(c + i * ldc + j * WIDTH) : (vec){0};
    for (int64_t k = 0; k < inner; k++) {
        vec row[3];
        for (int j = 0; j < wide; j++) row[j] = *(const vec *)(b + k * ldb + j * WIDTH);
        for (int i = 0; i < tall; i++) {
            const float x = a[i * lda + k];
            for (int j = 0; j < wide; j++) sum[i][j] += x * row[j];
        }
    }
    for (int i = 0; i < tall; i++)
        for (int j = 0; j < wide; j++) *(vec *)(c + i * ldc + j * WIDTH) = sum[i][j];
}

#define COLUMNS(tall)                                                                                                     \
    for (; j + 3 * WIDTH <= columns; j += 3 * WIDTH) block(tall, 3, inner, a, lda, b + j, ldb, c + j, ldc, add);          \
    for (; j + 2 * WIDTH <= columns; j += 2 * WIDTH) block(tall, 2, inner, a, lda, b + j, ldb, c + j, ldc, add);          \
    for (; j < columns; j += WIDTH) block(tall, 1, inner, a, lda, b + j, ldb, c + j, ldc, add);

/* C (+)= A B; the columns are a multiple of LANES */
static void product(int64_t rows, int64_t columns, int64_t inner, const float *a, int64_t lda, const float *b, int64_t ldb,
                    float *c, int64_t ldc, int add) {
    int64_t i = 0;
    for (; i + TALL <= rows; i += TALL, a += TALL * lda, c += TALL * ldc) {
        int64_t j = 0;
        COLUMNS(TALL)
    }
    for (; i + 2 <= rows; i += 2, a += 2 * lda, c += 2 * ldc) {
        int64_t j = 0;
        COLUMNS(2)
    }
    for (; i < rows; i++, a += lda, c += ldc) {
        int64_t j = 0;
        COLUMNS(1)
    }
}

/* -- a task --------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t queries, classes, layers, wide, tall; /* classes and queries, padded */
    float floor, others;                          /* epsilon, 1/(Q - 1) */
    int log;
    const float *gram, *precision, *balance, *heat, *weight, *text_weight; /* of this task; of each layer */
    int64_t stride;                                                        /* from a layer's number to the next */
    float *cross, *text, *norms, *shots;                                   /* padded copies; no text where it is NULL */
    float *kept;                                                           /* u and A of each later layer */
    float *u, *du, *dv, *a, *ma, *slope, *dprior, *ddots, *turned, *dgram, *dcross; /* [query, class] mostly */
    float *mass, *q, *assigned, *dq, *dmass, *dsums, *own, *row; /* of each class, or query */
    float *memory;
} Task;

static int open_task(Task *t, int backward, int has_text) {
    const int64_t cells = t->queries * t->wide, cross_cells = t->wide * t->tall;
    const int64_t forward_cells = 3 * cells, backward_cells = backward ? 9 * cells + cross_cells + t->queries * t->tall : 0;
    const int64_t kept = backward ? 0 : 2 * cells * (t->layers > 1 ? t->layers - 1 : 1);
    const size_t all = (size_t)(forward_cells + backward_cells + kept + 9 * t->wide + t->tall + LANES);
    float *at = t->memory = calloc(all, sizeof(float));
    if (at == NULL) return 0;
#define TAKE(name, count) (t->name = at, at += (count))
    TAKE(cross, cells), TAKE(text, cells), TAKE(u, cells);
    if (!has_text) t->text = NULL;
    if (backward) {
        TAKE(du, cells), TAKE(dv, cells), TAKE(a, cells), TAKE(ma, cells), TAKE(slope, cells), TAKE(dprior, cells);
        TAKE(ddots, cells), TAKE(dcross, cells), TAKE(turned, cross_cells), TAKE(dgram, t->queries * t->tall);
    } else {
        TAKE(kept, kept);
    }
    TAKE(norms, t->wide), TAKE(shots, t->wide), TAKE(mass, t->wide), TAKE(q, t->wide), TAKE(assigned, t->wide);
    TAKE(dq, t->wide), TAKE(dmass, t->wide), TAKE(dsums, t->wide), TAKE(row, t->wide), TAKE(own, t->tall);
#undef TAKE
    return 1;
}

static void copy_rows(float *to, int64_t wide, const float *from, int64_t rows, int64_t columns) {
    for (int64_t n = 0; n < rows; n++) memcpy(to + n * wide, from + n * columns, (size_t)columns * sizeof(float));
}

static void load(Task *t, const float *cross, const float *norms, const float *shots, const float *text) {
    copy_rows(t->cross, t->wide, cross, t->queries, t->classes);
    if (t->text != NULL) copy_rows(t->text, t->wide, text, t->queries, t->classes);
    for (int64_t k = 0; k < t->wide; k++) {
        t->norms[k] = k < t->classes ? norms[k] : 0.0f;
        t->shots[k] = k < t->classes ? shots[k] : 1.0f; /* so that what is padded stays finite */
    }
}

/* sigma of some assignments, D and q */
static void sums_of(Task *t, const float *restrict u, const float *restrict dots, float weight) {
    const int64_t wide = t->wide;
    float *restrict assigned = t->assigned, *restrict q = t->q;
    memset(assigned, 0, (size_t)wide * sizeof(float));
    memcpy(q, t->norms, (size_t)wide * sizeof(float));
    for (int64_t n = 0; n < t->queries; n++) {
        const float *restrict un = u + n * wide, *restrict an = dots + n * wide, *restrict hn = t->cross + n * wide;
#pragma omp simd
        for (int64_t k = 0; k < wide; k++) {
            assigned[k] += un[k];
            q[k] += weight * un[k] * (an[k] + hn[k]);
        }
    }
    for (int64_t k = 0; k < wide; k++) t->mass[k] = t->shots[k] + weight * assigned[k];
}

/* What a layer has for a query and a class before the scores; `v` is how much the query counts there */
#define LAYER_CELL                                                                                                        \
    const float v = weight * un[k], dot = an[k] - v * own, m = 1.0f / (mass[k] - v);                                      \
    const float e = dot - 0.5f * m * (q[k] - v * (an[k] + dot)), left = assigned[k] - un[k];                              \
    const float prior = (left > 0.0f ? left : 0.0f) * others + floor_, log_prior = log_(prior);

/* softmax of a row of scores, or its logarithm */
static void normalise(const Task *t, float *restrict row, float *restrict out, int log) {
    const int64_t classes = t->classes, wide = t->wide;
    float top = row[0], sum = 0.0f;
#pragma omp simd reduction(max : top)
    for (int64_t k = 0; k < classes; k++) top = row[k] > top ? row[k] : top;
#pragma omp simd
    for (int64_t k = 0; k < classes; k++) row[k] -= top;
    for (int64_t k = classes; k < wide; k++) row[k] = -1e4f; /* what is padded gets nothing, however large the scores */
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < wide; k++) {
        const float y = exp_(row[k]) - SMALLEST; /* nothing rather than a subnormal number, which would be slow */
        out[k] = y;
        sum += y + 0.0f * row[k]; /* what is not a number must stay so */
    }
    const float by = log ? logf(sum) : 1.0f / sum;
    if (log) {
#pragma omp simd
        for (int64_t k = 0; k < wide; k++) out[k] = row[k] - by;
    } else {
#pragma omp simd
        for (int64_t k = 0; k < wide; k++) out[k] *= by;
    }
}

static void forward_first(Task *t, float *restrict out, int log) {
    const int64_t wide = t->wide;
    const float p = *t->precision, cool = 1.0f / t->heat[0], gamma = t->text_weight[0];
    for (int64_t n = 0; n < t->queries; n++) {
        const float *restrict hn = t->cross + n * wide, *restrict tn = t->text == NULL ? hn : t->text + n * wide;
        const float says = t->text == NULL ? 0.0f : gamma;
        float *restrict row = t->row;
#pragma omp simd
        for (int64_t k = 0; k < wide; k++) {
            const float m = 1.0f / t->shots[k];
            row[k] = (p * m * (hn[k] - 0.5f * m * t->norms[k]) + says * tn[k]) * cool;
        }
        normalise(t, row, out + n * wide, log);
    }
}

static void forward_layer(Task *t, int64_t layer, const float *u, float *dots, float *restrict out, int log) {
    const int64_t wide = t->wide, at = layer * t->stride;
    const float p = *t->precision, weight = t->weight[at], beta = t->balance[at], cool = 1.0f / t->heat[at];
    const float others = t->others, floor_ = t->floor, says = t->text == NULL ? 0.0f : t->text_weight[at];
    product(t->queries, wide, t->queries, t->gram, t->queries, u, wide, dots, wide, 0);
    for (int64_t i = 0; i < t->queries * wide; i++) dots[i] = t->cross[i] + weight * dots[i];
    sums_of(t, u, dots, weight);
    for (int64_t n = 0; n < t->queries; n++) {
        const float own = t->gram[n * t->queries + n];
        const float *restrict un = u + n * wide, *restrict an = dots + n * wide;
        const float *restrict tn = t->text == NULL ? an : t->text + n * wide;
        const float *restrict mass = t->mass, *restrict q = t->q, *restrict assigned = t->assigned;
        float *restrict row = t->row;
#pragma omp simd
        for (int64_t k = 0; k < wide; k++) {
            LAYER_CELL
            row[k] = (p * m * e + beta * log_prior + says * tn[k]) * cool;
        }
        normalise(t, row, out + n * wide, log);
    }
}

/* The last assignments are left in t->u */
static void forward(Task *t) {
    const int64_t cells = t->queries * t->wide;
    for (int64_t layer = 0; layer < t->layers; layer++) {
        const int last = layer == t->layers - 1;
        float *out = last ? t->u : t->kept + 2 * cells * layer;
        if (layer == 0) {
            forward_first(t, out, last && t->log);
        } else {
            float *before = t->kept + 2 * cells * (layer - 1);
            forward_layer(t, layer, before, before + cells, out, last && t->log);
        }
    }
}

/* -- backward ------------------------------------------------------------------------------------------------------- */

typedef struct {
    float *precision, *balance, *heat, *weight, *text_weight; /* of this task, one of each layer but the first */
    int64_t stride;
} Numbers;

/* Of the scores times T, in place of that of the assignments `u` (their logarithms with `log`) */
static void through_softmax(const Task *t, const float *restrict u, float *restrict du, float cool, int log) {
    const int64_t classes = t->classes, wide = t->wide;
    for (int64_t n = 0; n < t->queries; n++, u += wide, du += wide) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < wide; k++) {
            const float term = log ? du[k] : u[k] * du[k];
            sum += k < classes ? term : 0.0f;
        }
#pragma omp simd
        for (int64_t k = 0; k < wide; k++) {
            const float by = log ? exp_(u[k]) : u[k], ds = log ? du[k] - by * sum : by * (du[k] - sum);
            du[k] = k < classes ? ds * cool : 0.0f;
        }
    }
}

static void backward_first(Task *t, const Numbers *d, double *precision) {
    const int64_t wide = t->wide;
    const float p = *t->precision, gamma = t->text_weight[0];
    double speaks = 0.0, said = 0.0;
    for (int64_t n = 0; n < t->queries; n++) {
        const float *restrict ds = t->du + n * wide, *restrict hn = t->cross + n * wide;
        const float *restrict tn = t->text == NULL ? hn : t->text + n * wide;
        float *restrict dcross = t->dcross + n * wide, likelihood = 0.0f, text = 0.0f;
#pragma omp simd reduction(+ : likelihood, text)
        for (int64_t k = 0; k < wide; k++) {
            const float m = 1.0f / t->shots[k], a = p * m * ds[k];
            likelihood += ds[k] * m * (hn[k] - 0.5f * m * t->norms[k]);
            text += ds[k] * tn[k];
            dcross[k] += a;
            t->dsums[k] -= 0.5f * m * a;
        }
        speaks += likelihood, said += text;
    }
    if (t->text == NULL) said = 0.0;
    *precision += speaks;
    d->text_weight[0] = (float)said;
    d->heat[0] = (float)(-(p * speaks + gamma * said) / t->heat[0]);
}

/* First pass: everything that a cell says by itself, and the sums over the queries */
static void backward_cells(Task *t, int64_t layer, const float *u, const float *dots, const Numbers *d, double *precision) {
    const int64_t wide = t->wide, at = layer * t->stride, to = layer * d->stride;
    const float p = *t->precision, weight = t->weight[at], beta = t->balance[at];
    const float others = t->others, floor_ = t->floor;
    double speaks = 0.0, balance = 0.0, said = 0.0;
    memset(t->dq, 0, (size_t)wide * sizeof(float));
    memset(t->dmass, 0, (size_t)wide * sizeof(float));
    memset(t->row, 0, (size_t)wide * sizeof(float)); /* sums of dprior */
    for (int64_t n = 0; n < t->queries; n++) {
        const float own = t->gram[n * t->queries + n];
        const float *restrict un = u + n * wide, *restrict an = dots + n * wide, *restrict ds = t->du + n * wide;
        const float *restrict tn = t->text == NULL ? an : t->text + n * wide;
        const float *restrict mass = t->mass, *restrict q = t->q, *restrict assigned = t->assigned;
        float *restrict an_ = t->a + n * wide, *restrict man = t->ma + n * wide, *restrict slope = t->slope + n * wide;
        float *restrict dprior = t->dprior + n * wide, *restrict dq = t->dq, *restrict dmass = t->dmass, *restrict total = t->row;
        float likelihood = 0.0f, prior_ = 0.0f, text = 0.0f, self = 0.0f;
#pragma omp simd reduction(+ : likelihood, prior_, text, self)
        for (int64_t k = 0; k < wide; k++) {
            LAYER_CELL
            const float a = p * m * ds[k], ma = m * a, dp = left > 0.0f ? beta * others * ds[k] / prior : 0.0f;
            likelihood += ds[k] * m * e;
            prior_ += ds[k] * log_prior;
            text += ds[k] * tn[k];
            self += v * (a + 0.5f * ma * v);
            dq[k] -= 0.5f * ma;
            dmass[k] += ma * (dot - 2.0f * e);
            total[k] += dp;
            an_[k] = a;
            man[k] = ma;
            slope[k] = 2.0f * m * e - own;
            dprior[k] = dp;
        }
        speaks += likelihood, balance += prior_, said += text;
        t->own[n] -= self;
    }
    if (t->text == NULL) said = 0.0;
    *precision += speaks;
    d->balance[to] = (float)balance;
    d->text_weight[to] = (float)said;
    d->heat[to] = (float)(-(p * speaks + beta * balance + t->text_weight[at] * said) / t->heat[at]);
}

/* The rest of a layer: leaves the gradient of the assignments before it in t->du */
static void backward_layer(Task *t, int64_t layer, const float *u, const float *dots, const Numbers *d, double *precision) {
    const int64_t wide = t->wide, tall = t->tall, at = layer * t->stride;
    const float weight = t->weight[at];
    double dweight = 0.0;
    sums_of(t, u, dots, weight);
    backward_cells(t, layer, u, dots, d, precision);
    for (int64_t n = 0; n < t->queries; n++) {
        const float *restrict un = u + n * wide, *restrict an = t->a + n * wide, *restrict man = t->ma + n * wide;
        const float *restrict dq = t->dq;
        float *restrict ddots = t->ddots + n * wide, *restrict dcross = t->dcross + n * wide;
#pragma omp simd
        for (int64_t k = 0; k < wide; k++) {
            const float v = weight * un[k];
            ddots[k] = an[k] + v * (dq[k] + man[k]);
            dcross[k] += ddots[k] + v * dq[k];
        }
        for (int64_t k = 0; k < t->classes; k++) t->turned[k * tall + n] = weight * un[k];
    }
    product(t->queries, tall, t->classes, t->ddots, wide, t->turned, tall, t->dgram, tall, 1);
    product(t->queries, wide, t->queries, t->gram, t->queries, t->ddots, wide, t->dv, wide, 0);
    for (int64_t n = 0; n < t->queries; n++) {
        const float *restrict un = u + n * wide, *restrict an = t->a + n * wide, *restrict slope = t->slope + n * wide;
        const float *restrict dprior = t->dprior + n * wide, *restrict all = dots + n * wide, *restrict hn = t->cross + n * wide;
        const float *restrict dq = t->dq, *restrict dmass = t->dmass, *restrict total = t->row, *restrict dvn = t->dv + n * wide;
        float *restrict du = t->du + n * wide, sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < wide; k++) {
            const float dv = dvn[k] + an[k] * slope[k] + (all[k] + hn[k]) * dq[k];
            sum += un[k] * dv;
            du[k] = weight * dv - dprior[k] + total[k] + weight * dmass[k];
        }
        dweight += sum;
    }
    for (int64_t k = 0; k < t->classes; k++) {
        dweight += (double)t->assigned[k] * t->dmass[k];
        t->dsums[k] += t->dq[k];
    }
    d->weight[layer * d->stride] = (float)dweight;
}

static void backward(Task *t, const Numbers *d) {
    const int64_t cells = t->queries * t->wide;
    double precision = 0.0;
    const float *u = t->u;
    int log = t->log;
    memset(t->dgram, 0, (size_t)(t->queries * t->tall) * sizeof(float));
    memset(t->dcross, 0, (size_t)cells * sizeof(float));
    memset(t->dsums, 0, (size_t)t->wide * sizeof(float));
    memset(t->own, 0, (size_t)t->tall * sizeof(float));
    for (int64_t layer = t->layers - 1; layer >= 0; layer--) {
        through_softmax(t, u, t->du, 1.0f / t->heat[layer * t->stride], log);
        if (layer == 0) {
            backward_first(t, d, &precision);
        } else {
            u = t->kept + 2 * cells * (layer - 1);
            backward_layer(t, layer, u, u + cells, d, &precision);
        }
        log = 0;
    }
    *d->precision = (float)precision;
    for (int64_t n = 0; n < t->queries; n++) t->dgram[n * t->tall + n] += t->own[n];
}

/* -- batches -------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t tasks, queries, classes, layers, several; /* several: numbers of each task, not one for all */
    float floor;
    int32_t log, threads;
} Sizes;

static Task task_of(const Sizes *s) {
    Task t = {.queries = s->queries, .classes = s->classes, .layers = s->layers, .floor = s->floor, .log = s->log};
    t.wide = (s->classes + LANES - 1) / LANES * LANES;
    t.tall = (s->queries + LANES - 1) / LANES * LANES;
    t.others = 1.0f / (float)(s->queries > 2 ? s->queries - 1 : 1);
    t.stride = s->several ? s->tasks : 1;
    return t;
}

/* numbers: precision, balance, heat, weight, text_weight */
static void point(Task *t, const Sizes *s, int64_t task, const float *gram, const float *const *numbers) {
    const int64_t at = s->several ? task : 0;
    t->gram = gram + task * s->queries * s->queries;
    t->precision = numbers[0] + at, t->balance = numbers[1] + at, t->heat = numbers[2] + at;
    t->weight = numbers[3] + at, t->text_weight = numbers[4] + at;
}

/* Writes the last assignments, [task, query, class], and unless `kept` is NULL what the gradient needs, [task, layer - 1,
 * 2, query, padded class]. Returns 0, or -1 when there is no memory. */
int64_t unem_gram_layers(const Sizes *s, const float *gram, const float *cross, const float *norms, const float *shots,
                         const float *text, const float *const *numbers, float *out, float *kept) {
    int failed = 0;
#pragma omp parallel num_threads(s->threads) reduction(| : failed)
    {
        Task t = task_of(s);
        const int64_t all = s->queries * s->classes, keeps = 2 * s->queries * t.wide * (s->layers - 1);
        const int opened = open_task(&t, 0, text != NULL);
        failed |= !opened;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->tasks; i++) {
            if (!opened) continue;
            point(&t, s, i, gram, numbers);
            load(&t, cross + i * all, norms + i * s->classes, shots + i * s->classes, text == NULL ? NULL : text + i * all);
            if (kept != NULL) t.kept = kept + i * keeps;
            forward(&t);
            for (int64_t n = 0; n < s->queries; n++)
                memcpy(out + i * all + n * s->classes, t.u + n * t.wide, (size_t)s->classes * sizeof(float));
        }
        free(t.memory);
    }
    return failed ? -1 : 0;
}

/* dnumbers: [task] of the precision, [layer, task] of the others */
int64_t unem_gram_layers_gradient(const Sizes *s, const float *gram, const float *cross, const float *norms,
                                  const float *shots, const float *text, const float *const *numbers, const float *out,
                                  float *kept, const float *gradient, float *dgram, float *dcross, float *dnorms,
                                  float *const *dnumbers) {
    int failed = 0;
#pragma omp parallel num_threads(s->threads) reduction(| : failed)
    {
        Task t = task_of(s);
        const int64_t all = s->queries * s->classes, keeps = 2 * s->queries * t.wide * (s->layers - 1);
        const int opened = open_task(&t, 1, text != NULL);
        failed |= !opened;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->tasks; i++) {
            if (!opened) continue;
            Numbers d = {dnumbers[0] + i, dnumbers[1] + i, dnumbers[2] + i, dnumbers[3] + i, dnumbers[4] + i, s->tasks};
            point(&t, s, i, gram, numbers);
            load(&t, cross + i * all, norms + i * s->classes, shots + i * s->classes, text == NULL ? NULL : text + i * all);
            copy_rows(t.u, t.wide, out + i * all, s->queries, s->classes);
            copy_rows(t.du, t.wide, gradient + i * all, s->queries, s->classes);
            t.kept = kept + i * keeps;
            backward(&t, &d);
            for (int64_t n = 0; n < s->queries; n++) {
                memcpy(dgram + (i * s->queries + n) * s->queries, t.dgram + n * t.tall, (size_t)s->queries * sizeof(float));
                memcpy(dcross + i * all + n * s->classes, t.dcross + n * t.wide, (size_t)s->classes * sizeof(float));
            }
            memcpy(dnorms + i * s->classes, t.dsums, (size_t)s->classes * sizeof(float));
        }
        free(t.memory);
    }
    return failed ? -1 : 0;
}
