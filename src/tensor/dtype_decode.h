// The decoders of dtype.c's table. Each takes n elements in whole blocks; see struct dtype_desc.
#ifndef MOTE_TENSOR_DTYPE_DECODE_H
#define MOTE_TENSOR_DTYPE_DECODE_H

#include <stddef.h>

void decode_f32(const void *blocks, float *values, size_t n);
void decode_f16(const void *blocks, float *values, size_t n);
void decode_bf16(const void *blocks, float *values, size_t n);
void decode_f64(const void *blocks, float *values, size_t n);
void decode_i8(const void *blocks, float *values, size_t n);
void decode_i16(const void *blocks, float *values, size_t n);
void decode_i32(const void *blocks, float *values, size_t n);
void decode_i64(const void *blocks, float *values, size_t n);
void decode_q4_0(const void *blocks, float *values, size_t n);
void decode_q4_1(const void *blocks, float *values, size_t n);
void decode_q5_0(const void *blocks, float *values, size_t n);
void decode_q5_1(const void *blocks, float *values, size_t n);
void decode_q8_0(const void *blocks, float *values, size_t n);
void decode_mxfp4(const void *blocks, float *values, size_t n);
void decode_q2_k(const void *blocks, float *values, size_t n);
void decode_q3_k(const void *blocks, float *values, size_t n);
void decode_q4_k(const void *blocks, float *values, size_t n);
void decode_q5_k(const void *blocks, float *values, size_t n);
void decode_q6_k(const void *blocks, float *values, size_t n);

#endif
