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

/* log of a normal positive number, likewise. */
INLINE float log_(float x) {
  union { float f; int i; } bits = {x};
  int exponent = (bits.i - 0x3f3504f3) >> 23; /* the rest is in sqrt(1/2)..sqrt(2) */
  bits.i -= exponent << 23;
  float r = bits.f - 1.0f, n = (float)exponent, p = 7.0376836292e-2f;
  p = p * r - 1.1514610310e-1f;
  p = p * r + 1.1676998740e-1f;
  p = p * r - 1.2420140846e-1f;
  p = p * r + 1.4249322787e-1f;
  p = p * r - 1.6668057665e-1f;
  p = p * r + 2.0000714765e-1f;
  p = p * r - 2.4999993993e-1f;
  p = p * r + 3.3333331174e-1f;
  return (p * r - 0.5f) * r * r + r - n * 2.12194440e-4f + n * 0.693359375f;
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
  for (; i + 4 * WIDTH <= n; i += 4 * WIDTH) { /* four chains hide the latency */
    vec x[4], y[4], z[4];
    for (int c = 0; c < 4; c++) {
      long at = i + c * WIDTH;
      x[c] = load(x0 + at), y[c] = load(y0 + at), z[c] = load(z0 + at);
    }
    for (long t = 0; t < steps; t++)
      for (int c = 0; c < 4; c++) { LORENZ_STEP(vec, x[c], y[c], z[c]) }
    for (int c = 0; c < 4; c++) {
      long at = i + c * WIDTH;
      store(xn + at, x[c]), store(yn + at, y[c]), store(zn + at, z[c]);
    }
  }
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
         const float *last, const float *dones, float *restrict advantages) {
  for (long i = 0; i < n; i += 1024) {
    long lanes = n - i < 1024 ? n - i : 1024;
    float carry[1024] = {0};
    for (long t = steps - 1; t >= 0; t--) {
      const float *r = rewards + t * n + i, *v = values + t * n + i;
      const float *d = dones + t * n + i;
      const float *next = t + 1 < steps ? v + n : last + i;
      float *out = advantages + t * n + i;
      for (long j = 0; j < lanes; j++) {
        float alive = 1.0f - d[j];
        float error = r[j] + 0.99f * next[j] * alive - v[j];
        out[j] = carry[j] = error + 0.99f * 0.95f * alive * carry[j];
      }
    }
  }
}

/* ---- Kalman filter ---- */

#define N 2
#define M 1
#include "kalman.h"
#define N 4
#define M 2
#include "kalman.h"
#define N 8
#define M 2
#include "kalman.h"

/* ---- hidden Markov forward pass ---- */

INLINE void hmm(long steps, int k, const float *transition, const float *start,
                const float *likelihoods, float *alphas) {
  const float *alpha = start;
  for (long t = 0; t < steps; t++, alphas += k, likelihoods += k) {
    float top[64], sum[64];
    for (int j = 0; j < k; j++) top[j] = alpha[0] + transition[j], sum[j] = 0;
    for (int i = 1; i < k; i++)
      for (int j = 0; j < k; j++) {
        float term = alpha[i] + transition[i * k + j];
        top[j] = term > top[j] ? term : top[j];
      }
    for (int i = 0; i < k; i++)
      for (int j = 0; j < k; j++)
        sum[j] += exp_(alpha[i] + transition[i * k + j] - top[j]);
    for (int j = 0; j < k; j++) alphas[j] = top[j] + log_(sum[j]) + likelihoods[j];
    alpha = alphas;
  }
}

void hmm_forward(long steps, long k, const float *transition, const float *start,
                 const float *likelihoods, float *alphas) {
  if (k == 4) hmm(steps, 4, transition, start, likelihoods, alphas);
  if (k == 16) hmm(steps, 16, transition, start, likelihoods, alphas);
  if (k == 64) hmm(steps, 64, transition, start, likelihoods, alphas);
}

/* ---- signal processing ---- */

void biquad(long steps, const float *signal, float *ys) {
  float s1 = 0, s2 = 0;
  for (long t = 0; t < steps; t++) {
    float x = signal[t], y = 0.0675f * x + s1;
    s1 = 0.1349f * x + s2 + 1.143f * y;
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

enum { PANEL = 2 * WIDTH, BATCH = 64, SIZE = 256 };

/* Weights as panels of 32 columns, so that a product walks through memory in order. */
static void pack(long inner, long cols, const float *w, float *panels) {
  for (long j = 0; j < cols; j += PANEL)
    for (long k = 0; k < inner; k++, panels += PANEL)
      memcpy(panels, w + k * cols + j, 4 * PANEL);
}

INLINE void add_rows(int rows, long inner, long cols, const float *a,
                     const float *panels, float *out) {
  for (long j = 0; j < cols; j += PANEL) {
    vec low[8], high[8];
    for (int r = 0; r < rows; r++) {
      low[r] = load(out + r * cols + j);
      high[r] = load(out + r * cols + j + WIDTH);
    }
    for (long k = 0; k < inner; k++, panels += PANEL) {
      vec left = load(panels), right = load(panels + WIDTH);
      for (int r = 0; r < rows; r++) {
        low[r] += a[r * inner + k] * left;
        high[r] += a[r * inner + k] * right;
      }
    }
    for (int r = 0; r < rows; r++) {
      store(out + r * cols + j, low[r]);
      store(out + r * cols + j + WIDTH, high[r]);
    }
  }
}

static void add_product(long rows, long inner, long cols, const float *a,
                        const float *panels, float *out) {
  for (; rows >= 8; rows -= 8, a += 8 * inner, out += 8 * cols)
    add_rows(8, inner, cols, a, panels, out);
  for (; rows > 0; rows--, a += inner, out += cols)
    add_rows(1, inner, cols, a, panels, out);
}

void gru_forward(long steps, long batch, long size, const float *bias,
                 const float *wh, const float *wx, const float *h0, const float *xs,
                 float *hs) {
  static float from_x[BATCH * 3 * SIZE], from_h[BATCH * 3 * SIZE];
  static float x_panels[3 * SIZE * SIZE], h_panels[3 * SIZE * SIZE];
  pack(size, 3 * size, wx, x_panels);
  pack(size, 3 * size, wh, h_panels);
  const float *h = h0;
  for (long t = 0; t < steps; t++, xs += batch * size, hs += batch * size) {
    memset(from_h, 0, 4 * batch * 3 * size);
    for (long b = 0; b < batch; b++)
      memcpy(from_x + b * 3 * size, bias, 4 * 3 * size);
    add_product(batch, size, 3 * size, xs, x_panels, from_x);
    add_product(batch, size, 3 * size, h, h_panels, from_h);
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
  static float gates[BATCH * 4 * SIZE], cell[BATCH * SIZE];
  static float x_panels[4 * SIZE * SIZE], h_panels[4 * SIZE * SIZE];
  pack(size, 4 * size, wx, x_panels);
  pack(size, 4 * size, wh, h_panels);
  const float *h = h0;
  memset(cell, 0, 4 * batch * size);
  for (long t = 0; t < steps; t++, xs += batch * size, hs += batch * size) {
    for (long b = 0; b < batch; b++) memcpy(gates + b * 4 * size, bias, 16 * size);
    add_product(batch, size, 4 * size, xs, x_panels, gates);
    add_product(batch, size, 4 * size, h, h_panels, gates);
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
