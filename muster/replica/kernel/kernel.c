/* What Muster does with each value of a round, compiled: codecs, checksums, the weighted mean, the outer step.
 *
 * Every function has a twin in NumPy (codecs/, wire/binary_format.py, rounds/, algorithms/) with the same bits: each
 * operation of float32 is rounded by itself, in the same order. So it is compiled without contraction (a fused
 * multiply-add rounds once, not twice) and without any "fast math".
 *
 * No Python headers and no libc but memcpy and memset: one library serves every version of Python and every libc. It
 * keeps no state and allocates nothing; callers may be many threads. Pointers are aligned to 4 bytes. Bytes are little-
 * endian, which both processors are. On x86-64 it needs AVX2 and F16C: library.py checks that before it loads it.
 */
#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#else
#error "only x86-64 and arm64"
#endif

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
/* Called once for hundreds of values: one copy of it keeps the library small. */
#define ONCE static __attribute__((noinline))
#define COPY __builtin_memcpy

/* The top-k formats have the number of values that a chunk keeps in their upper 24 bits. */
enum { FP32 = 1, BF16, FP16, INT8, INT4, TOPK2, TOPK8 };

enum {
  CHECKSUM_BYTES = 4,
  GROUP4 = 64,
  GROUP8 = 128,
  SPARSE = 4096, /* values of a chunk of top-k */
  CHUNK = 256, /* values of the plain formats that are converted, then hashed: 1 KiB of float32; every block's divisor */
};

/* As in scales.py: a scale is the upper half of a float32, 0 or of a magnitude within these. */
#define SCALE_LEAST 0x0D80u                  /* 2^-100 */
#define SCALE_MOST 0x7149u                   /* below 1e30 */
#define SCALE_PLAIN 0x7140u                  /* up to here no code times its scale is beyond 1e30 */
#define SCALE_MIN_BITS ((uint32_t)SCALE_LEAST << 16)
#define MAGNITUDE 0x7FFFFFFFu
#define TOP 127.0f
/* Adding it leaves the nearest whole number (ties to even) of a value within +-2^22 in the lowest bits. */
#define ROUNDING 12582912.0f

/* Which source this library was made from: library.py loads no other. */
#ifndef SOURCE
#define SOURCE "unknown"
#endif
EXPORT const char muster_kernel_source[] = SOURCE;

/* What lies in the memory of other types. Larger copies than of one value would go through the stack. */
typedef uint32_t Bits __attribute__((may_alias, aligned(4)));
typedef int32_t SignedBits __attribute__((may_alias, aligned(4)));
typedef uint16_t Halves __attribute__((may_alias, aligned(2)));

INLINE float float_of(uint32_t bits) {
  float value;
  COPY(&value, &bits, 4);
  return value;
}

INLINE uint64_t read64(const uint8_t *place) {
  uint64_t value;
  COPY(&value, place, 8);
  return value;
}

/* ---- XXH3-64 of more than 240 bytes, with a seed, as its specification has it ---- */

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 0x9E3779B185EBCA87u
#define PRIME64_2 0xC2B2AE3D27D4EB4Fu
#define PRIME64_3 0x165667B19E3779F9u
#define PRIME64_4 0x85EBCA77C2B2AE63u
#define PRIME64_5 0x27D4EB2F165667C5u

enum { SECRET_BYTES = 192, STRIPE = 64, STRIPES = (SECRET_BYTES - STRIPE) / 8, HASH_BLOCK = STRIPE * STRIPES };

static const uint8_t SECRET[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d,
    0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0,
    0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0,
    0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b,
    0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51,
    0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34,
    0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49,
    0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8,
    0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b,
    0x40, 0x7e,
};

#if defined(__x86_64__)
enum { LANES = 2 };
typedef __m256i Lane;
INLINE Lane load(const void *place) { return _mm256_loadu_si256((const __m256i *)place); }
INLINE void store(void *place, Lane lane) { _mm256_storeu_si256((__m256i *)place, lane); }
INLINE Lane accumulated(Lane sum, const uint8_t *data, const uint8_t *secret) {
  Lane found = load(data), key = _mm256_xor_si256(found, load(secret));
  Lane product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
  return _mm256_add_epi64(sum, _mm256_add_epi64(product, _mm256_shuffle_epi32(found, 0x4E)));
}
INLINE Lane scrambled(Lane sum, const uint8_t *secret) {
  Lane prime = _mm256_set1_epi64x(PRIME32_1);
  sum = _mm256_xor_si256(_mm256_xor_si256(sum, _mm256_srli_epi64(sum, 47)), load(secret));
  Lane upper = _mm256_mul_epu32(_mm256_srli_epi64(sum, 32), prime);
  return _mm256_add_epi64(_mm256_mul_epu32(sum, prime), _mm256_slli_epi64(upper, 32));
}
#else
enum { LANES = 4 };
typedef uint64x2_t Lane;
INLINE Lane load(const void *place) { return vreinterpretq_u64_u8(vld1q_u8((const uint8_t *)place)); }
INLINE void store(void *place, Lane lane) { vst1q_u8((uint8_t *)place, vreinterpretq_u8_u64(lane)); }
INLINE Lane accumulated(Lane sum, const uint8_t *data, const uint8_t *secret) {
  Lane found = load(data), key = veorq_u64(found, load(secret));
  return vmlal_u32(vaddq_u64(sum, vextq_u64(found, found, 1)), vmovn_u64(key), vshrn_n_u64(key, 32));
}
INLINE Lane scrambled(Lane sum, const uint8_t *secret) {
  uint32x2_t prime = vdup_n_u32(PRIME32_1);
  sum = veorq_u64(veorq_u64(sum, vshrq_n_u64(sum, 47)), load(secret));
  Lane upper = vmull_u32(vshrn_n_u64(sum, 32), prime);
  return vmlal_u32(vshlq_n_u64(upper, 32), vmovn_u64(sum), prime);
}
#endif

typedef struct {
  Lane lanes[LANES];
  uint8_t secret[SECRET_BYTES];
} Hash;

ONCE void hash_begin(Hash *hash, uint64_t seed) {
  const uint64_t start[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
  for (int lane = 0; lane < LANES; lane++) hash->lanes[lane] = load((const uint8_t *)start + lane * sizeof(Lane));
  for (int place = 0; place < SECRET_BYTES; place += 16) {
    uint64_t lower = read64(SECRET + place) + seed, upper = read64(SECRET + place + 8) - seed;
    COPY(hash->secret + place, &lower, 8);
    COPY(hash->secret + place + 8, &upper, 8);
  }
}

INLINE void hash_stripes(Hash *hash, const uint8_t *data, const uint8_t *secret, int stripes) {
  Lane lanes[LANES];
  for (int lane = 0; lane < LANES; lane++) lanes[lane] = hash->lanes[lane];
  for (int stripe = 0; stripe < stripes; stripe++)
    for (int lane = 0; lane < LANES; lane++) {
      size_t within = lane * sizeof(Lane);
      lanes[lane] = accumulated(lanes[lane], data + stripe * STRIPE + within, secret + stripe * 8 + within);
    }
  for (int lane = 0; lane < LANES; lane++) hash->lanes[lane] = lanes[lane];
}

/* HASH_BLOCK bytes that are not the last ones. */
ONCE void hash_block(Hash *hash, const uint8_t *data) {
  hash_stripes(hash, data, hash->secret, STRIPES);
  for (int lane = 0; lane < LANES; lane++)
    hash->lanes[lane] = scrambled(hash->lanes[lane], hash->secret + SECRET_BYTES - STRIPE + lane * sizeof(Lane));
}

INLINE uint64_t folded(uint64_t one, uint64_t other) {
  unsigned __int128 product = (unsigned __int128)one * other;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* How many bytes of `size` hash_block takes; hash_end takes the rest. */
INLINE int64_t in_blocks(int64_t size) { return (size - 1) / HASH_BLOCK * HASH_BLOCK; }

/* The lower half of the hash of all `size` bytes from `data` on. */
ONCE uint32_t hash_end(Hash *hash, const uint8_t *data, int64_t size) {
  int64_t before = in_blocks(size);
  hash_stripes(hash, data + before, hash->secret, (int)((size - 1 - before) / STRIPE));
  hash_stripes(hash, data + size - STRIPE, hash->secret + SECRET_BYTES - STRIPE - 7, 1);
  uint8_t sums[STRIPE];
  for (int lane = 0; lane < LANES; lane++) store(sums + lane * sizeof(Lane), hash->lanes[lane]);
  uint64_t merged = (uint64_t)size * PRIME64_1;
  for (int place = 0; place < STRIPE; place += 16)
    merged += folded(read64(sums + place) ^ read64(hash->secret + 11 + place),
                     read64(sums + place + 8) ^ read64(hash->secret + 11 + place + 8));
  merged ^= merged >> 37;
  merged *= 0x165667919E3779F9u;
  return (uint32_t)(merged ^ (merged >> 32));
}

static uint32_t checksum(const uint8_t *data, int64_t size, uint64_t seed) {
  Hash hash;
  hash_begin(&hash, seed);
  for (int64_t place = 0; place < in_blocks(size); place += HASH_BLOCK) hash_block(&hash, data + place);
  return hash_end(&hash, data, size);
}

/* ---- plain formats: CHUNK values at a time ---- */

/* The largest magnitude of CHUNK values, as bits: NaN and infinity are larger than every number. */
ONCE uint32_t magnitude_of(const void *values) {
  const Bits *bits = values;
  uint32_t most = 0;
  for (int i = 0; i < CHUNK; i++) {
    uint32_t magnitude = bits[i] & MAGNITUDE;
    most = magnitude > most ? magnitude : most;
  }
  return most;
}

ONCE uint32_t halves_magnitude(const Halves *halves) {
  uint16_t most = 0;
  for (int i = 0; i < CHUNK; i++) {
    uint16_t magnitude = halves[i] & 0x7FFF;
    most = magnitude > most ? magnitude : most;
  }
  return most;
}

ONCE void to_fp16(const float *values, Halves *halves) {
#if defined(__x86_64__)
  for (int i = 0; i < CHUNK; i += 8)
    _mm_storeu_si128((__m128i *)(halves + i), _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < CHUNK; i += 4) vst1_u16((uint16_t *)(halves + i), vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(values + i))));
#endif
}

ONCE void from_fp16(const Halves *halves, float *values) {
#if defined(__x86_64__)
  for (int i = 0; i < CHUNK; i += 8)
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(halves + i))));
#else
  for (int i = 0; i < CHUNK; i += 4) vst1q_f32(values + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(halves + i)))));
#endif
}

ONCE void to_bf16(const float *values, Halves *halves) {
  const Bits *bits = (const Bits *)values;
  for (int i = 0; i < CHUNK; i++) halves[i] = (uint16_t)((bits[i] + 0x7FFFu + (bits[i] >> 16 & 1u)) >> 16);
}

ONCE void from_bf16(const Halves *halves, float *values) {
  Bits *bits = (Bits *)values;
  for (int i = 0; i < CHUNK; i++) bits[i] = (uint32_t)halves[i] << 16;
}

/* ---- int8 and int4: one group at a time ---- */

/* The 16 levels of int4, and the largest whole number below which each level is nearer than the next one. */
static const int8_t LEVELS[16] = {-108, -82, -63, -47, -33, -20, -10, 0, 9, 19, 31, 44, 58, 76, 97, 127};
static const int8_t MIDDLES[15] = {-95, -73, -55, -40, -27, -15, -5, 4, 14, 25, 37, 51, 67, 86, 112};

/* Random numbers with which a mean is rounded; none: to the nearest. */
typedef struct {
  const float *offsets;
  const uint8_t *bytes;
  const uint8_t *shares; /* for each whole number as a byte, how many of 256 round up to the next level */
} Dither;

/* The scale of `count` values, as bits; `limit` or more than that where they cannot be encoded. */
INLINE int scale_of(const float *values, int count, int is_signed, uint32_t limit, uint32_t *scale) {
  const SignedBits *bits = (const SignedBits *)values;
  int32_t most = INT32_MIN;
  uint32_t least = 0;
  for (int i = 0; i < count; i++) {
    most = bits[i] > most ? bits[i] : most;
    least = (uint32_t)bits[i] > least ? (uint32_t)bits[i] : least;
  }
  uint32_t above = (uint32_t)most & MAGNITUDE, below = least & MAGNITUDE;
  uint32_t magnitude = above > below ? above : below;
  if (magnitude > limit) return 0;
  uint32_t peak = !is_signed ? magnitude : above >= below ? (uint32_t)most : least;
  *scale = magnitude < SCALE_MIN_BITS ? 0 : (peak + 0xFFFFu) & 0xFFFF0000u;
  return 1;
}

INLINE void whole_numbers(const float *values, int count, uint32_t scale, const float *offsets, int8_t *whole) {
  float factor = scale ? TOP / float_of(scale) : 0.0f;
  float sums[GROUP8];
  if (offsets)
    for (int i = 0; i < count; i++) sums[i] = values[i] * factor + offsets[i] + ROUNDING;
  else
    for (int i = 0; i < count; i++) sums[i] = values[i] * factor + ROUNDING;
  const Bits *bits = (const Bits *)sums;
  for (int i = 0; i < count; i++) whole[i] = (int8_t)(uint8_t)bits[i];
}

/* Bytes that are compared together: a comparison gives -1 where it is true. */
typedef int8_t Whole __attribute__((vector_size(32)));

/* How many of `steps` from `first` on are below (or, with `equal`, not above) each of a group's whole numbers. */
INLINE void counted(const int8_t *whole, const int8_t *steps, int equal, uint8_t *codes) {
  for (int at = 0; at < GROUP4; at += (int)sizeof(Whole)) {
    Whole numbers, count = {0};
    COPY(&numbers, whole + at, sizeof numbers);
    for (int step = 0; step < 15; step++) {
      Whole each = numbers - numbers + steps[step];
      count -= equal ? numbers >= each : numbers > each;
    }
    COPY(codes + at, &count, sizeof count);
  }
}

INLINE void codes_of(const int8_t *whole, const uint8_t *bytes, const uint8_t *shares, uint8_t *packed) {
  uint8_t codes[GROUP4];
  if (bytes) {
    counted(whole, LEVELS + 1, 1, codes);
    for (int i = 0; i < GROUP4; i++) codes[i] = (uint8_t)(codes[i] + (bytes[i] < shares[(uint8_t)whole[i]]));
  } else {
    counted(whole, MIDDLES, 0, codes);
  }
  const Halves *pairs = (const Halves *)codes;
  for (int i = 0; i < GROUP4 / 2; i++) packed[i] = (uint8_t)(pairs[i] | pairs[i] >> 4);
}

INLINE void levels_of(const uint8_t *packed, int8_t *levels) {
#if defined(__x86_64__)
  __m128i table = _mm_loadu_si128((const __m128i *)LEVELS), mask = _mm_set1_epi8(15);
  for (int i = 0; i < GROUP4 / 2; i += 16) {
    __m128i two = _mm_loadu_si128((const __m128i *)(packed + i));
    __m128i even = _mm_shuffle_epi8(table, _mm_and_si128(two, mask));
    __m128i odd = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(two, 4), mask));
    _mm_storeu_si128((__m128i *)(levels + 2 * i), _mm_unpacklo_epi8(even, odd));
    _mm_storeu_si128((__m128i *)(levels + 2 * i + 16), _mm_unpackhi_epi8(even, odd));
  }
#else
  int8x16_t table = vld1q_s8(LEVELS);
  for (int i = 0; i < GROUP4 / 2; i += 16) {
    uint8x16_t two = vld1q_u8(packed + i);
    int8x16x2_t both = {{vqtbl1q_s8(table, vandq_u8(two, vdupq_n_u8(15))), vqtbl1q_s8(table, vshrq_n_u8(two, 4))}};
    vst2q_s8(levels + 2 * i, both);
  }
#endif
}

/* ---- top-k: one chunk of SPARSE values at a time ---- */

/* A chunk, and where its parts begin in the payload: each part is there for all chunks of the block, one after another. */
typedef struct {
  int format, kept, lower, upper_bytes;    /* lower: how many bits of a place are not in unary */
  int64_t scales, upper, low, codes, size; /* size: of the payload */
} Sparse;

ONCE Sparse sparse_of(int32_t format, int64_t elements, int64_t chunk) {
  const int wide = (format & 0xFF) == TOPK8, kept = format >> 8, lower = 31 - __builtin_clz((unsigned)(SPARSE / kept));
  const int64_t bytes[4] = {wide ? 2 : 4, (kept + (SPARSE >> lower)) / 8, kept * lower / 8, wide ? kept : kept / 4};
  int64_t starts[5] = {0};
  for (int part = 0; part < 4; part++) starts[part + 1] = starts[part] + elements / SPARSE * bytes[part];
  for (int part = 0; part < 4; part++) starts[part] += chunk * bytes[part];
  return (Sparse){format & 0xFF, kept, lower, (int)bytes[1], starts[0], starts[1], starts[2], starts[3], (starts[4] + 3) / 4 * 4};
}

/* How many of SPARSE numbers reach `least`. */
ONCE int reaching(const int16_t *numbers, int16_t least) {
  int16_t count = 0;
  for (int i = 0; i < SPARSE; i++) count = (int16_t)(count + (numbers[i] >= least));
  return count;
}

/* The places of the `kept` largest magnitudes, ascending; of equal ones the first. 0: one is above the limit.
 *
 * `least`, which so many must reach, is found bit by bit: the upper half from those of all magnitudes, the lower half
 * from the few that reach the upper one.
 */
ONCE int largest(const float *values, int kept, uint32_t limit, uint16_t *places) {
  const Bits *bits = (const Bits *)values;
  int16_t halves[SPARSE];
  uint8_t chosen[SPARSE];
  uint32_t magnitudes[SPARSE], most = 0, least = 0;
  for (int i = 0; i < SPARSE; i++) {
    uint32_t magnitude = bits[i] & MAGNITUDE;
    most = magnitude > most ? magnitude : most;
    halves[i] = (int16_t)(magnitude >> 16);
  }
  if (most > limit) return 0;
  int found = SPARSE, listed = 0, room = kept, next = 0;
  for (uint32_t bit = 1u << 30; bit > 0xFFFF && found != kept; bit >>= 1) {
    int count = (least | bit) > most ? 0 : reaching(halves, (int16_t)((least | bit) >> 16));
    if (count >= kept) least |= bit, found = count;
  }
  for (int i = 0; i < SPARSE; i++) chosen[i] = halves[i] >= (int16_t)(least >> 16);
  for (int at = 0; at < SPARSE; at += 8)
    for (uint64_t rest = read64(chosen + at); rest; rest &= rest - 1)
      places[listed++] = (uint16_t)(at + __builtin_ctzll(rest) / 8);
  if (listed == kept) return 1;
  for (int i = 0; i < listed; i++) magnitudes[i] = bits[places[i]] & MAGNITUDE;
  for (uint32_t bit = 1u << 15; bit; bit >>= 1) {
    int count = 0;
    for (int i = 0; i < listed; i++) count += magnitudes[i] >= (least | bit);
    if (count >= kept) least |= bit;
  }
  for (int i = 0; i < listed; i++) room -= magnitudes[i] > least;
  for (int i = 0; next < kept; i++) {
    int equal = magnitudes[i] == least;
    places[next] = places[i];
    next += (magnitudes[i] > least) | (equal & (room > 0));
    room -= equal;
  }
  return 1;
}

/* The lowest `width` bits of each number, one after another, from a byte's most significant bit on. */
ONCE void pack(const uint16_t *numbers, int count, int width, uint8_t *packed) {
  uint32_t bits = 0;
  for (int i = 0, held = 0; i < count; i++) {
    bits = bits << width | (numbers[i] & ((1u << width) - 1));
    for (held += width; held >= 8; held -= 8) *packed++ = (uint8_t)(bits >> (held - 8));
  }
}

ONCE void unpack(const uint8_t *packed, int count, int width, uint16_t *numbers) {
  uint32_t bits = 0;
  for (int i = 0, held = 0; i < count; i++, held -= width) {
    for (; held < width; held += 8) bits = bits << 8 | *packed++;
    numbers[i] = (uint16_t)(bits >> (held - width) & ((1u << width) - 1));
  }
}

/* The sum of `count` values, a power of two from 8 on, in NumPy's order. */
static float sum_of(const float *values, int count) {
  if (count > 128) return sum_of(values, count / 2) + sum_of(values + count / 2, count / 2);
  float sums[8];
  COPY(sums, values, sizeof sums);
  for (int at = 8; at < count; at += 8)
    for (int i = 0; i < 8; i++) sums[i] += values[at + i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* The mean magnitude of the values whose codes have this lowest bit. */
ONCE float mean_of(const float *values, const uint16_t *codes, int large, int kept) {
  float parts[SPARSE];
  int count = 0;
  for (int i = 0; i < kept; i++) {
    int counts = (codes[i] & 1) == large;
    parts[i] = counts ? __builtin_fabsf(values[i]) : 0.0f;
    count += counts;
  }
  return (float)((double)sum_of(parts, kept) / (count ? count : 1));
}

ONCE int to_sparse(const Sparse *sparse, const float *values, uint32_t limit, uint8_t *payload) {
  const int kept = sparse->kept;
  uint8_t *upper = payload + sparse->upper;
  Halves *scales = (Halves *)(payload + sparse->scales);
  uint16_t places[SPARSE], codes[SPARSE];
  float found[SPARSE];
  uint32_t scale;
  if (!largest(values, kept, limit, places)) return 0;
  for (int i = 0; i < sparse->upper_bytes; i++) upper[i] = 0;
  for (int i = 0; i < kept; i++) {
    int at = (places[i] >> sparse->lower) + i;
    upper[at / 8] |= (uint8_t)(0x80 >> at % 8);
    found[i] = values[places[i]];
    codes[i] = 0;
  }
  pack(places, kept, sparse->lower, payload + sparse->low);
  if (sparse->format == TOPK2) {
    float mean = mean_of(found, codes, 0, kept);
    for (int i = 0; i < kept; i++) codes[i] = (uint16_t)((__builtin_fabsf(found[i]) > mean) | (found[i] < 0) << 1);
    for (int large = 0; large < 2; large++) {
      mean = mean_of(found, codes, large, kept);
      scale_of(&mean, 1, 0, MAGNITUDE, &scale); /* rounded, a mean may be above the limit */
      scales[large] = (uint16_t)(scale >> 16);
    }
    pack(codes, kept, 2, payload + sparse->codes);
  } else {
    scale_of(found, kept, 0, MAGNITUDE, &scale);
    *scales = (uint16_t)(scale >> 16);
    for (int at = 0; at < kept; at += 8) whole_numbers(found + at, 8, scale, NULL, (int8_t *)payload + sparse->codes + at);
  }
  return 1;
}

/* The places of a chunk; 0: they are not `kept` in ascending order. */
ONCE int places_of(const Sparse *sparse, const uint8_t *payload, uint16_t *places) {
  int count = 0, last = -1;
  unpack(payload + sparse->low, sparse->kept, sparse->lower, places);
  for (int byte = 0; byte < sparse->upper_bytes; byte++)
    for (unsigned rest = payload[sparse->upper + byte]; rest; count++) {
      int bit = __builtin_clz(rest) - 24;
      if (count == sparse->kept) return 0;
      int place = (byte * 8 + bit - count) << sparse->lower | places[count];
      if (place <= last || place >= SPARSE) return 0;
      places[count] = (uint16_t)(last = place);
      rest ^= 0x80u >> bit;
    }
  return count == sparse->kept;
}

ONCE void from_sparse(const Sparse *sparse, const uint8_t *payload, float *values) {
  const Halves *scales = (const Halves *)(payload + sparse->scales);
  const int8_t *whole = (const int8_t *)payload + sparse->codes;
  uint16_t places[SPARSE], codes[SPARSE];
  places_of(sparse, payload, places);
  for (int i = 0; i < SPARSE; i++) values[i] = 0.0f;
  float first = float_of((uint32_t)scales[0] << 16);
  if (sparse->format == TOPK2) {
    float second = float_of((uint32_t)scales[1] << 16);
    const float levels[4] = {first, second, -first, -second};
    unpack(payload + sparse->codes, sparse->kept, 2, codes);
    for (int i = 0; i < sparse->kept; i++) values[places[i]] = levels[codes[i]];
  } else {
    for (int i = 0; i < sparse->kept; i++) values[places[i]] = (float)whole[i] * (first / TOP);
  }
}

/* ---- records: a checksum and an encoded block ---- */

/* Where values go, or are added to. */
typedef struct {
  float *place;
  float weight; /* they are multiplied by it */
  float factor; /* and the sums by this */
  int adds;     /* to what is there; else they replace it */
} Target;

/* Values from `values` on, which may be the target itself. */
ONCE void put(const float *values, int count, const Target *target, int64_t at) {
  float *place = target->place + at;
  if (!target->adds)
    for (int i = 0; i < count; i++) place[i] = values[i] * target->weight * target->factor;
  else
    for (int i = 0; i < count; i++) place[i] = (place[i] + values[i] * target->weight) * target->factor;
}

/* What is encoded: the values, or in `room` their sums with what is added to them. */
INLINE const float *summed(const float *values, const float *added, int count, float *room) {
  if (!added) return values;
  for (int i = 0; i < count; i++) room[i] = values[i] + added[i];
  return room;
}

/* What remains to do with CHUNK or GROUP values that are encoded. */
ONCE void keep(const float *values, const float *found, int count, float *error, float *decoded) {
  if (error)
    for (int i = 0; i < count; i++) error[i] = values[i] - found[i];
  if (decoded)
    for (int i = 0; i < count; i++) decoded[i] = found[i];
}

INLINE int encode_plain(int format, const float *values, const float *added, int64_t elements, uint8_t *payload, uint32_t limit,
                        float *error, float *decoded, uint64_t seed, uint32_t *sum) {
  const int item = format == FP32 ? 4 : 2;
  const int64_t size = elements * item, blocks = in_blocks(size);
  int64_t hashed = 0;
  Hash hash;
  hash_begin(&hash, seed);
  for (int64_t at = 0; at < elements; at += CHUNK) {
    float found[CHUNK], room[CHUNK];
    const float *chunk = summed(values + at, added ? added + at : NULL, CHUNK, room);
    float *wrong = error ? error + at : NULL, *kept = decoded ? decoded + at : NULL;
    if (magnitude_of(chunk) > limit) return 0;
    if (format == FP32) {
      Bits *written = (Bits *)(payload + at * 4);
      for (int i = 0; i < CHUNK; i++) written[i] = ((const Bits *)chunk)[i];
      /* A copy: the error may lie where the values do. */
      for (int i = 0; error && i < CHUNK; i++) found[i] = chunk[i];
      keep(chunk, error ? found : chunk, CHUNK, wrong, kept);
    } else {
      Halves *halves = (Halves *)(payload + at * 2);
      if (format == FP16)
        to_fp16(chunk, halves);
      else
        to_bf16(chunk, halves);
      if (error || decoded) {
        if (format == FP16)
          from_fp16(halves, found);
        else
          from_bf16(halves, found);
        keep(chunk, found, CHUNK, wrong, kept);
      }
    }
    for (; hashed < blocks && hashed + HASH_BLOCK <= (at + CHUNK) * item; hashed += HASH_BLOCK)
      hash_block(&hash, payload + hashed);
  }
  *sum = hash_end(&hash, payload, size);
  return 1;
}

INLINE int encode_groups(int format, const float *values, const float *added, int64_t elements, uint8_t *payload, uint32_t limit,
                         const Dither *dither, int64_t random, float *error, float *decoded) {
  const int count = format == INT4 ? GROUP4 : GROUP8;
  uint8_t *codes = payload + elements / count * 2;
  for (int64_t at = 0; at < elements; at += count) {
    float found[GROUP8], room[GROUP8];
    const float *group = summed(values + at, added ? added + at : NULL, count, room);
    int8_t numbers[GROUP8];
    uint32_t scale;
    if (!scale_of(group, count, format == INT4, limit, &scale)) return 0;
    *(Halves *)(payload + at / count * 2) = (uint16_t)(scale >> 16);
    int8_t *whole = format == INT4 ? numbers : (int8_t *)codes + at;
    whole_numbers(group, count, scale, dither->offsets ? dither->offsets + random + at : NULL, whole);
    if (format == INT4)
      codes_of(whole, dither->offsets ? dither->bytes + random + at : NULL, dither->shares, codes + at / 2);
    if (error || decoded) {
      float step = float_of(scale) / TOP;
      if (format == INT4) levels_of(codes + at / 2, whole);
      for (int i = 0; i < count; i++) found[i] = (float)whole[i] * step;
      keep(group, found, count, error ? error + at : NULL, decoded ? decoded + at : NULL);
    }
  }
  return 1;
}

/* Not part of encode_sparse: their arrays are never on the stack together, which musl's threads have 128 KiB of. */
ONCE void keep_sparse(const Sparse *sparse, const float *values, const uint8_t *payload, float *error, float *decoded) {
  float found[SPARSE];
  from_sparse(sparse, payload, found);
  keep(values, found, SPARSE, error, decoded);
}

ONCE int encode_sparse(int32_t format, const float *values, const float *added, int64_t elements, uint8_t *payload,
                       uint32_t limit, float *error, float *decoded) {
  for (int64_t at = 0; at < elements; at += SPARSE) {
    const Sparse sparse = sparse_of(format, elements, at / SPARSE);
    float room[SPARSE];
    const float *chunk = summed(values + at, added ? added + at : NULL, SPARSE, room);
    if (!at) *(Bits *)(payload + sparse.size - 4) = 0; /* what is behind the last part */
    if (!to_sparse(&sparse, chunk, limit, payload)) return 0;
    if (error || decoded) keep_sparse(&sparse, chunk, payload, error ? error + at : NULL, decoded ? decoded + at : NULL);
  }
  return 1;
}

INLINE int64_t payload_bytes(int32_t format, int64_t elements) {
  switch (format) {
    case FP32: return elements * 4;
    case BF16:
    case FP16: return elements * 2;
    case INT8: return elements / GROUP8 * 2 + elements;
    case INT4: return elements / GROUP4 * 2 + elements / 2;
    default: return sparse_of(format, elements, 0).size;
  }
}

/* Encodes `blocks` blocks of `elements` values into records from `rows` on, `stride` bytes apart.
 *
 * elements: a multiple of 256 (top-k: of 4,096), so many that a payload has more than 240 bytes.
 * limit: the largest magnitude that can be encoded, as bits.
 * added: NULL, or what is added to the values first.
 * offsets, bytes, shares: of the first value on; NULL: rounded to the nearest.
 * error, decoded: NULL, or the place of the first value's; they may be `values` or `added`.
 * seed: of the first block's checksum; each of the next one's is larger by one.
 * Returns 0, or 1 where a value is NaN, infinite or too large: the blocks before its own are encoded then.
 */
EXPORT int32_t muster_encode(int32_t format, const float *values, const float *added, int64_t blocks, int64_t elements, uint8_t *rows,
                             int64_t stride, uint32_t limit, const float *offsets, const uint8_t *bytes,
                             const uint8_t *shares, float *error, float *decoded, uint64_t seed) {
  const Dither dither = {offsets, bytes, shares};
  const int64_t size = payload_bytes(format, elements);
  for (int64_t block = 0; block < blocks; block++) {
    int64_t at = block * elements;
    uint8_t *row = rows + block * stride, *payload = row + CHECKSUM_BYTES;
    const float *more = added ? added + at : NULL;
    float *wrong = error ? error + at : NULL, *kept = decoded ? decoded + at : NULL;
    uint32_t sum;
    int done = 0;
    /* A constant format, so that each has a loop of its own. */
    switch (format) {
      case FP32: done = encode_plain(FP32, values + at, more, elements, payload, limit, wrong, kept, seed + block, &sum); break;
      case BF16: done = encode_plain(BF16, values + at, more, elements, payload, limit, wrong, kept, seed + block, &sum); break;
      case FP16: done = encode_plain(FP16, values + at, more, elements, payload, limit, wrong, kept, seed + block, &sum); break;
      case INT8: done = encode_groups(INT8, values + at, more, elements, payload, limit, &dither, at, wrong, kept); break;
      case INT4: done = encode_groups(INT4, values + at, more, elements, payload, limit, &dither, at, wrong, kept); break;
      default: done = encode_sparse(format, values + at, more, elements, payload, limit, wrong, kept);
    }
    if (!done) return 1;
    if (format >= INT8) sum = checksum(payload, size, seed + block);
    COPY(row, &sum, CHECKSUM_BYTES);
  }
  return 0;
}

ONCE int are_usable_scales(const uint8_t *payload, int64_t groups) {
  int wrong = 0;
  for (int64_t group = 0; group < groups; group++) {
    uint16_t scale = ((const Halves *)payload)[group], magnitude = scale & 0x7FFF;
    wrong |= (scale != 0) & ((magnitude < SCALE_LEAST) | (magnitude > SCALE_PLAIN));
  }
  return !wrong;
}

/* Whether a record is as it was written, and all its values are within the limit. */
INLINE int is_sound(int format, const uint8_t *row, int64_t elements, uint32_t limit, uint64_t seed) {
  const uint8_t *payload = row + CHECKSUM_BYTES;
  const int64_t size = payload_bytes(format, elements);
  uint32_t stored, most = 0;
  Hash hash;
  COPY(&stored, row, CHECKSUM_BYTES);
  hash_begin(&hash, seed);
  for (int64_t place = 0; place < in_blocks(size); place += HASH_BLOCK) {
    hash_block(&hash, payload + place);
    if (format == FP32) {
      uint32_t found = magnitude_of(payload + place);
      most = found > most ? found : most;
    }
  }
  if (hash_end(&hash, payload, size) != stored) return 0;
  if (format == INT8 || format == INT4) return are_usable_scales(payload, elements / (format == INT4 ? GROUP4 : GROUP8));
  /* What is not hashed with its chunk. */
  for (int64_t at = format == FP32 ? elements - CHUNK : 0; at < elements; at += CHUNK) {
    uint32_t found = format == FP32 ? magnitude_of(payload + at * 4) : halves_magnitude((const Halves *)payload + at);
    most = found > most ? found : most;
  }
  if (format == FP16) return most < 0x7C00;
  return format == BF16 ? most <= limit >> 16 : most <= limit;
}

ONCE int is_sound_sparse(int32_t format, const uint8_t *row, int64_t elements, uint64_t seed) {
  const uint8_t *payload = row + CHECKSUM_BYTES;
  uint16_t places[SPARSE];
  uint32_t stored;
  COPY(&stored, row, CHECKSUM_BYTES);
  const Sparse first = sparse_of(format, elements, 0);
  int sound = checksum(payload, first.size, seed) == stored && are_usable_scales(payload, first.upper / 2);
  for (int64_t at = 0; sound && at < elements; at += SPARSE) {
    const Sparse sparse = sparse_of(format, elements, at / SPARSE);
    sound = places_of(&sparse, payload, places);
  }
  return sound;
}

ONCE void put_sparse(int32_t format, const uint8_t *row, int64_t elements, int64_t count, const Target *target, int64_t start) {
  for (int64_t at = 0; at < count; at += SPARSE) {
    const Sparse sparse = sparse_of(format, elements, at / SPARSE);
    float found[SPARSE];
    from_sparse(&sparse, row + CHECKSUM_BYTES, found);
    put(found, count - at < SPARSE ? (int)(count - at) : SPARSE, target, start + at);
  }
}

/* `count` values of a sound record into their target. */
INLINE void put_record(int format, const uint8_t *row, int64_t elements, int64_t count, const Target *target,
                       int64_t start) {
  const uint8_t *payload = row + CHECKSUM_BYTES;
  const int grouped = format == INT8 || format == INT4;
  const int each = format == INT4 ? GROUP4 : format == INT8 ? GROUP8 : CHUNK;
  const uint8_t *codes = payload + (grouped ? elements / each * 2 : 0);
  for (int64_t at = 0; at < count; at += each) {
    float room[CHUNK];
    const float *found = room;
    if (format == FP32) {
      found = (const float *)(const void *)(payload + at * 4);
    } else if (grouped) {
      int8_t numbers[GROUP4];
      const int8_t *whole = format == INT4 ? numbers : (const int8_t *)codes + at;
      float step = float_of((uint32_t)((const Halves *)payload)[at / each] << 16) / TOP;
      if (format == INT4) levels_of(codes + at / 2, numbers);
      for (int i = 0; i < each; i++) room[i] = (float)whole[i] * step;
    } else if (format == FP16) {
      from_fp16((const Halves *)codes + at, room);
    } else {
      from_bf16((const Halves *)codes + at, room);
    }
    if (count - at >= each)
      put(found, each, target, start + at);
    else
      put(found, (int)(count - at), target, start + at);
  }
}

/* Verifies `blocks` records from `rows` on, `stride` bytes apart, and then decodes their first `count` values.
 *
 * limit: the largest magnitude that a value may have, as bits: of 1e30.
 * target: where they go; NULL: nowhere, they are only verified.
 * weight, factor, adds: each is multiplied by `weight`, is added to what is there or replaces it, and the result is
 *     multiplied by `factor`.
 * Returns 0; or 1 where a record is damaged, holds what no encoder writes, or may hold values beyond the limit: then the
 * target is as it was.
 */
EXPORT int32_t muster_decode(int32_t format, const uint8_t *rows, int64_t stride, int64_t blocks, int64_t elements,
                             int64_t count, uint32_t limit, uint64_t seed, float *place, float weight,
                             float factor, int32_t adds) {
  const Target target = {place, weight, factor, adds};
  for (int64_t block = 0; block < blocks; block++) {
    const uint8_t *row = rows + block * stride;
    int sound = 0;
    switch (format) {
      case FP32: sound = is_sound(FP32, row, elements, limit, seed + block); break;
      case BF16: sound = is_sound(BF16, row, elements, limit, seed + block); break;
      case FP16: sound = is_sound(FP16, row, elements, limit, seed + block); break;
      case INT8: sound = is_sound(INT8, row, elements, limit, seed + block); break;
      case INT4: sound = is_sound(INT4, row, elements, limit, seed + block); break;
      default: sound = is_sound_sparse(format, row, elements, seed + block);
    }
    if (!sound) return 1;
  }
  for (int64_t block = 0; place && block < blocks; block++) {
    const uint8_t *row = rows + block * stride;
    int64_t at = block * elements, left = count - at < elements ? count - at : elements;
    switch (format) {
      case FP32: put_record(FP32, row, elements, left, &target, at); break;
      case BF16: put_record(BF16, row, elements, left, &target, at); break;
      case FP16: put_record(FP16, row, elements, left, &target, at); break;
      case INT8: put_record(INT8, row, elements, left, &target, at); break;
      case INT4: put_record(INT4, row, elements, left, &target, at); break;
      default: put_sparse(format, row, elements, left, &target, at);
    }
  }
  return 0;
}

/* Values into a target, as muster_decode puts them; they may lie where it does. */
EXPORT void muster_put(const float *values, int64_t count, float *place, float weight, float factor, int32_t adds) {
  const Target target = {place, weight, factor, adds};
  for (int64_t at = 0; at < count; at += CHUNK)
    put(values + at, count - at < CHUNK ? (int)(count - at) : CHUNK, &target, at);
}

/* One step of SGD with Nesterov momentum, as Nesterov.step. */
EXPORT void muster_nesterov(float *parameters, float *momentum, const float *gradient, int64_t count, float mu,
                            float eta) {
  for (int64_t at = 0; at < count; at++) {
    float moved = momentum[at] * mu + gradient[at];
    float update = (moved * mu + gradient[at]) * eta;
    momentum[at] = moved;
    parameters[at] = parameters[at] - update;
  }
}
