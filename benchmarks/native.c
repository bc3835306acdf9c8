/* The loops of the benchmark by hand, in C, for one core: what a kernel can reach.
 *
 * Every function is `name(sizes..., inputs..., outputs...)`, arrays in C order, as
 * case.py says.  Vectors are written with the extension that gcc and clang share
 * where the state must stay in registers, and left to the compiler elsewhere. */

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define WIDTH 16
typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4)));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec v) { *(vec *)p = v; }

/* exp to about 1 ulp, without branches, so that loops around it vectorise. */
INLINE float exp_(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  union { int i; float f; } scale = {((int)n + 127) << 23};
  return p * scale.f;
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp_(-x)); }
INLINE float tanh_(float x) { return 1.0f - 2.0f / (1.0f + exp_(2.0f * x)); }

/* ---- maps ---- */

void logistic_scalar(long steps, const float *x0, float *last) {
  float x = *x0;
  for (long t = 0; t < steps; t++) x = 3.5f * x * (1.0f - x);
  *last = x;
}

void logistic(long steps, long n, const float *x0, float *last) {
  long i = 0;
  for (; i + 4 * WIDTH <= n; i += 4 * WIDTH) {
    vec a = load(x0 + i), b = load(x0 + i + WIDTH);
    vec c = load(x0 + i + 2 * WIDTH), d = load(x0 + i + 3 * WIDTH);
    for (long t = 0; t < steps; t++) {
      a = 3.5f * a * (1.0f - a);
      b = 3.5f * b * (1.0f - b);
      c = 3.5f * c * (1.0f - c);
      d = 3.5f * d * (1.0f - d);
    }
    store(last + i, a);
    store(last + i + WIDTH, b);
    store(last + i + 2 * WIDTH, c);
    store(last + i + 3 * WIDTH, d);
  }
  for (; i < n; i += WIDTH) { /* a short rest is done in a padded vector */
    long rest = n - i < WIDTH ? n - i : WIDTH;
    float pad[WIDTH] = {0};
    memcpy(pad, x0 + i, 4 * rest);
    vec a = load(pad);
    for (long t = 0; t < steps; t++) a = 3.5f * a * (1.0f - a);
    store(pad, a);
    memcpy(last + i, pad, 4 * rest);
  }
}

void stack_scalar(long steps, const float *x0, float *xs) {
  float x = *x0;
  for (long t = 0; t < steps; t++) xs[t] = x = 0.999f * x + 0.1f;
}

/* ---- Lorenz ---- */

#define VELOCITY(T, dx, dy, dz, x, y, z) \
  T dx = 10.0f * (y - x);                \
  T dy = x * (28.0f - z) - y;            \
  T dz = x * y - (8.0f / 3.0f) * z;

#define LORENZ_STEP(T, x, y, z)                                            \
  const float dt = 0.002f;                                                 \
  VELOCITY(T, ax, ay, az, x, y, z)                                         \
  T x1 = x + dt / 2 * ax, y1 = y + dt / 2 * ay, z1 = z + dt / 2 * az;      \
  VELOCITY(T, bx, by, bz, x1, y1, z1)                                      \
  T x2 = x + dt / 2 * bx, y2 = y + dt / 2 * by, z2 = z + dt / 2 * bz;      \
  VELOCITY(T, cx, cy, cz, x2, y2, z2)                                      \
  T x3 = x + dt * cx, y3 = y + dt * cy, z3 = z + dt * cz;                  \
  VELOCITY(T, ex, ey, ez, x3, y3, z3)                                      \
  x += dt / 6 * (ax + 2.0f * bx + 2.0f * cx + ex);                         \
  y += dt / 6 * (ay + 2.0f * by + 2.0f * cy + ey);                         \
  z += dt / 6 * (az + 2.0f * bz + 2.0f * cz + ez);

void lorenz(long steps, long n, const float *x0, const float *y0, const float *z0,
            float *xn, float *yn, float *zn) {
  long i = 0;
  for (; i + WIDTH <= n; i += WIDTH) {
    vec x = load(x0 + i), y = load(y0 + i), z = load(z0 + i);
    for (long t = 0; t < steps; t++) { LORENZ_STEP(vec, x, y, z) }
    store(xn + i, x), store(yn + i, y), store(zn + i, z);
  }
  for (; i < n; i++) {
    float x = x0[i], y = y0[i], z = z0[i];
    for (long t = 0; t < steps; t++) { LORENZ_STEP(float, x, y, z) }
    xn[i] = x, yn[i] = y, zn[i] = z;
  }
}

/* Row by row, the state of all lanes in the first cache: writing a column of 16
 * lanes at a time is twice as slow when rows are as long as a page. */
void lorenz_path(long steps, long n, const float *x0, const float *y0,
                 const float *z0, float *xs, float *ys, float *zs) {
  const float *x = x0, *y = y0, *z = z0;
  for (long t = 0; t < steps; t++, xs += n, ys += n, zs += n) {
    long i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
      vec a = load(x + i), b = load(y + i), c = load(z + i);
      LORENZ_STEP(vec, a, b, c)
      store(xs + i, a), store(ys + i, b), store(zs + i, c);
    }
    for (; i < n; i++) {
      float a = x[i], b = y[i], c = z[i];
      LORENZ_STEP(float, a, b, c)
      xs[i] = a, ys[i] = b, zs[i] = c;
    }
    x = xs, y = ys, z = zs;
  }
}

/* Each trajectory by itself, n of them a multiple of 16: starts (n, 3), paths
 * (n, steps, 3); a tile of 16 lanes is transposed a few steps at a time. */
void lorenz_vmap(long steps, long n, const float *starts, float *paths) {
  enum { BLOCK = 32 };
  for (long i = 0; i < n; i += WIDTH) {
    vec x, y, z;
    for (int l = 0; l < WIDTH; l++) {
      const float *start = starts + 3 * (i + l);
      x[l] = start[0], y[l] = start[1], z[l] = start[2];
    }
    for (long t = 0; t < steps; t += BLOCK) {
      long block = steps - t < BLOCK ? steps - t : BLOCK;
      float buffer[BLOCK][3][WIDTH];
      for (long s = 0; s < block; s++) {
        LORENZ_STEP(vec, x, y, z)
        store(buffer[s][0], x), store(buffer[s][1], y), store(buffer[s][2], z);
      }
      for (int l = 0; l < WIDTH; l++) {
        float *path = paths + 3 * ((i + l) * steps + t);
        for (long s = 0; s < block; s++)
          for (int c = 0; c < 3; c++) path[3 * s + c] = buffer[s][c][l];
      }
    }
  }
}

/* ---- generalised advantages ---- */

void gae(long steps, long n, const float *rewards, const float *values,
         const float *dones, float *restrict advantages) {
  for (long i = 0; i < n; i += 1024) {
    long lanes = n - i < 1024 ? n - i : 1024;
    float carry[1024] = {0};
    for (long t = steps - 1; t >= 0; t--) {
      const float *r = rewards + t * n + i, *v = values + t * n + i;
      const float *d = dones + t * n + i;
      float *out = advantages + t * n + i;
      for (long j = 0; j < lanes; j++) {
        float alive = 1.0f - d[j];
        float error = r[j] + 0.99f * v[j + n] * alive - v[j];
        out[j] = carry[j] = error + 0.99f * 0.95f * alive * carry[j];
      }
    }
  }
}

/* ---- Kalman filter: n states, m observations, both constants once inlined ---- */

INLINE void product(int rows, int inner, int cols, const float *a, const float *b,
                    float *out) {
  for (int i = 0; i < rows; i++) {
    float row[8] = {0};
    for (int k = 0; k < inner; k++)
      for (int j = 0; j < cols; j++) row[j] += a[i * inner + k] * b[k * cols + j];
    for (int j = 0; j < cols; j++) out[i * cols + j] = row[j];
  }
}

INLINE void transpose(int rows, int cols, const float *a, float *out) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < cols; j++) out[j * rows + i] = a[i * cols + j];
}

INLINE void kalman(int n, int m, long steps, long filters, const float *f,
                   const float *h, const float *q, const float *r,
                   const float *mean0, const float *cov0, const float *zs,
                   float *means, float *covs) {
  float ft[64], ht[16];
  transpose(n, n, f, ft);
  transpose(m, n, h, ht);
  for (long b = 0; b < filters; b++) {
    float mean[8], cov[64];
    memcpy(mean, mean0 + b * n, 4 * n);
    memcpy(cov, cov0 + b * n * n, 4 * n * n);
    for (long t = 0; t < steps; t++) {
      float moved[8], spread[64], predicted[64], seen[16], s[4], inverse[4];
      float cross[16], gain[16], expected[2], shrink[64];
      product(n, n, 1, f, mean, moved);
      product(n, n, n, f, cov, spread);
      product(n, n, n, spread, ft, predicted);
      for (int i = 0; i < n * n; i++) predicted[i] += q[i];
      product(m, n, n, h, predicted, seen);
      product(m, n, m, seen, ht, s);
      for (int i = 0; i < m * m; i++) s[i] += r[i];
      if (m == 1) {
        inverse[0] = 1.0f / s[0];
      } else {
        float scale = 1.0f / (s[0] * s[3] - s[1] * s[2]);
        inverse[0] = s[3] * scale, inverse[1] = -s[1] * scale;
        inverse[2] = -s[2] * scale, inverse[3] = s[0] * scale;
      }
      product(n, n, m, predicted, ht, cross);
      product(n, m, m, cross, inverse, gain);
      product(m, n, 1, h, moved, expected);
      const float *z = zs + (b * steps + t) * m;
      for (int i = 0; i < n; i++) {
        mean[i] = moved[i];
        for (int k = 0; k < m; k++) mean[i] += gain[i * m + k] * (z[k] - expected[k]);
      }
      product(n, m, n, gain, h, shrink);
      for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) shrink[i * n + j] = (i == j) - shrink[i * n + j];
      product(n, n, n, shrink, predicted, cov);
      memcpy(means + (b * steps + t) * n, mean, 4 * n);
    }
    memcpy(covs + b * n * n, cov, 4 * n * n);
  }
}

#define KALMAN(n, m)                                                               \
  void kalman_##n(long steps, long filters, const float *f, const float *h,        \
                  const float *q, const float *r, const float *mean,               \
                  const float *cov, const float *zs, float *means, float *covs) {  \
    kalman(n, m, steps, filters, f, h, q, r, mean, cov, zs, means, covs);          \
  }

KALMAN(2, 1)
KALMAN(4, 2)
KALMAN(8, 2)

/* ---- hidden Markov forward pass ---- */

float logf(float);

void hmm_forward(long steps, long k, const float *transition, const float *start,
                 const float *likelihoods, float *alphas) {
  const float *alpha = start;
  for (long t = 0; t < steps; t++) {
    float top[256], sum[256] = {0};
    for (long j = 0; j < k; j++) top[j] = alpha[0] + transition[j];
    for (long i = 1; i < k; i++)
      for (long j = 0; j < k; j++) {
        float term = alpha[i] + transition[i * k + j];
        top[j] = term > top[j] ? term : top[j];
      }
    for (long i = 0; i < k; i++)
      for (long j = 0; j < k; j++)
        sum[j] += exp_(alpha[i] + transition[i * k + j] - top[j]);
    for (long j = 0; j < k; j++)
      alphas[t * k + j] = top[j] + logf(sum[j]) + likelihoods[t * k + j];
    alpha = alphas + t * k;
  }
}

/* ---- signal processing ---- */

void biquad(long steps, const float *signal, float *ys) {
  float s1 = 0, s2 = 0;
  for (long t = 0; t < steps; t++) {
    float x = signal[t], y = 0.0675f * x + s1;
    s1 = 0.1349f * x + 1.143f * y + s2;
    s2 = 0.0675f * x - 0.4128f * y;
    ys[t] = y;
  }
}

void echo(long steps, long slots, const float *start, const float *signal,
          float *buffer, float *ys) {
  memcpy(buffer, start, 4 * slots);
  for (long i = 0, t = 0; t < steps; t++) {
    ys[t] = buffer[i] = signal[t] + 0.5f * buffer[i];
    i = i + 1 == slots ? 0 : i + 1;
  }
}

/* ---- recurrent networks: columns in multiples of 32, as all cases have ---- */

INLINE void add_rows(int rows, long inner, long cols, const float *a, const float *w,
                     float *out) {
  for (long j = 0; j < cols; j += 2 * WIDTH) {
    vec low[4], high[4];
    for (int r = 0; r < rows; r++) {
      low[r] = load(out + r * cols + j);
      high[r] = load(out + r * cols + j + WIDTH);
    }
    for (long k = 0; k < inner; k++) {
      vec w0 = load(w + k * cols + j), w1 = load(w + k * cols + j + WIDTH);
      for (int r = 0; r < rows; r++) {
        low[r] += a[r * inner + k] * w0;
        high[r] += a[r * inner + k] * w1;
      }
    }
    for (int r = 0; r < rows; r++) {
      store(out + r * cols + j, low[r]);
      store(out + r * cols + j + WIDTH, high[r]);
    }
  }
}

static void add_product(long rows, long inner, long cols, const float *a,
                        const float *w, float *out) {
  for (; rows >= 4; rows -= 4, a += 4 * inner, out += 4 * cols)
    add_rows(4, inner, cols, a, w, out);
  for (; rows > 0; rows--, a += inner, out += cols)
    add_rows(1, inner, cols, a, w, out);
}

void gru_forward(long steps, long batch, long size, const float *bias,
                 const float *wh, const float *wx, const float *h0, const float *xs,
                 float *hs) {
  static float from_x[64 * 3 * 256], from_h[64 * 3 * 256];
  const float *h = h0;
  for (long t = 0; t < steps; t++, xs += batch * size, hs += batch * size) {
    memset(from_h, 0, 4 * batch * 3 * size);
    for (long b = 0; b < batch; b++)
      memcpy(from_x + b * 3 * size, bias, 4 * 3 * size);
    add_product(batch, size, 3 * size, xs, wx, from_x);
    add_product(batch, size, 3 * size, h, wh, from_h);
    for (long b = 0; b < batch; b++) {
      const float *x = from_x + b * 3 * size, *y = from_h + b * 3 * size;
      for (long j = 0; j < size; j++) {
        float r = sigmoid(x[j] + y[j]), z = sigmoid(x[size + j] + y[size + j]);
        float new = tanh_(x[2 * size + j] + r * y[2 * size + j]);
        hs[b * size + j] = (1.0f - z) * new + z * h[b * size + j];
      }
    }
    h = hs;
  }
}

void lstm_forward(long steps, long batch, long size, const float *bias,
                  const float *wh, const float *wx, const float *h0, const float *xs,
                  float *hs) {
  static float gates[64 * 4 * 256], cell[64 * 256];
  const float *h = h0;
  memset(cell, 0, 4 * batch * size);
  for (long t = 0; t < steps; t++, xs += batch * size, hs += batch * size) {
    for (long b = 0; b < batch; b++) memcpy(gates + b * 4 * size, bias, 16 * size);
    add_product(batch, size, 4 * size, xs, wx, gates);
    add_product(batch, size, 4 * size, h, wh, gates);
    for (long b = 0; b < batch; b++) {
      const float *g = gates + b * 4 * size;
      float *c = cell + b * size;
      for (long j = 0; j < size; j++) {
        c[j] = sigmoid(g[size + j]) * c[j] + sigmoid(g[j]) * tanh_(g[2 * size + j]);
        hs[b * size + j] = sigmoid(g[3 * size + j]) * tanh_(c[j]);
      }
    }
    h = hs;
  }
}
