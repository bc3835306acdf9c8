/* The Kalman filter for N states and M observations: native.c includes this once for
 * each size.  Matrices are arrays of rows, a row is one vector of N numbers. */

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define ROW PASTE(row_, N)
#define DOT PASTE(dot_, N)

typedef float ROW __attribute__((vector_size(4 * N), aligned(4)));

INLINE float DOT(ROW a, ROW b) {
  ROW terms = a * b;
  float sum = 0;
  for (int i = 0; i < N; i++) sum += terms[i];
  return sum;
}

/* out = a b + c, N columns */
INLINE void PASTE(product_, N)(int rows, int inner, const ROW *a, const ROW *b,
                               const ROW *c, ROW *out) {
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) {
    ROW sum = c[i];
#pragma GCC unroll 8
    for (int k = 0; k < inner; k++) sum += a[i][k] * b[k];
    out[i] = sum;
  }
}

void PASTE(kalman_, N)(long steps, long filters, const float *f_, const float *h_,
                       const float *q_, const float *r, const float *mean_,
                       const float *cov_, const float *zs, float *means,
                       float *covs) {
  ROW f[N], ft[N], h[M], q[N], eye[N] = {0}, zero[N] = {0};
  memcpy(f, f_, sizeof f), memcpy(h, h_, sizeof h), memcpy(q, q_, sizeof q);
  for (int i = 0; i < N; i++) {
    eye[i][i] = 1.0f;
    for (int j = 0; j < N; j++) ft[j][i] = f[i][j];
  }
  for (long b = 0; b < filters; b++) {
    ROW mean, cov[N];
    memcpy(&mean, mean_ + b * N, sizeof mean);
    memcpy(cov, cov_ + b * N * N, sizeof cov);
    for (long t = 0; t < steps; t++) {
      ROW spread[N], ahead[N], columns[N], seen[M], cross[M], gain[M], shrink[N];
      ROW moved;
      float s[M][M], inverse[M][M];
      PASTE(product_, N)(1, N, &mean, ft, zero, &moved);
      PASTE(product_, N)(N, N, f, cov, zero, spread);
      PASTE(product_, N)(N, N, spread, ft, q, ahead);
      for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) columns[j][i] = ahead[i][j];
      PASTE(product_, N)(M, N, h, ahead, zero, seen);
      PASTE(product_, N)(M, N, h, columns, zero, cross);
      for (int k = 0; k < M; k++)
        for (int l = 0; l < M; l++) s[k][l] = r[k * M + l] + DOT(seen[k], h[l]);
#if M == 1
      inverse[0][0] = 1.0f / s[0][0];
#else
      float scale = 1.0f / (s[0][0] * s[1][1] - s[0][1] * s[1][0]);
      inverse[0][0] = s[1][1] * scale, inverse[0][1] = -s[0][1] * scale;
      inverse[1][0] = -s[1][0] * scale, inverse[1][1] = s[0][0] * scale;
#endif
      mean = moved;
      for (int k = 0; k < M; k++) { /* cross and gain are kept transposed */
        gain[k] = zero[0];
        for (int l = 0; l < M; l++) gain[k] += inverse[l][k] * cross[l];
        mean += gain[k] * (zs[(b * steps + t) * M + k] - DOT(h[k], moved));
      }
      for (int i = 0; i < N; i++) {
        shrink[i] = eye[i];
        for (int k = 0; k < M; k++) shrink[i] -= gain[k][i] * h[k];
      }
      PASTE(product_, N)(N, N, shrink, ahead, zero, cov);
      memcpy(means + (b * steps + t) * N, &mean, sizeof mean);
    }
    memcpy(covs + b * N * N, cov, sizeof cov);
  }
}

#undef PASTE_
#undef PASTE
#undef ROW
#undef DOT
#undef N
#undef M
